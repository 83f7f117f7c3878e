//! Patterns of file names.

use std::str::FromStr;

/// A pattern as shells have them: `*` stands for any characters, slashes
/// included, `?` for one, `[abc]` and `[a-z]` for one of those, `[!a-z]` for one
/// that is not. It is compared with a whole path inside the repository.
///
/// ```
/// use k3_integrity::Pattern;
/// let pattern: Pattern = "model-0000[1-3]-*.safetensors".parse().unwrap();
/// assert!(pattern.matches("model-00002-of-000096.safetensors"));
/// assert!(!pattern.matches("model-00004-of-000096.safetensors"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Char(char),
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(next) = chars.next() {
            let part = match next {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '[' => class(&mut chars).ok_or_else(|| format!("`{text}`: [ without ]"))?,
                other => Part::Char(other),
            };
            parts.push(part);
        }
        if parts.is_empty() {
            return Err("an empty pattern matches nothing".to_owned());
        }
        Ok(Self { parts })
    }
}

/// What stands between brackets, the opening one read.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Part> {
    let negated = chars.next_if(|next| matches!(next, '!' | '^')).is_some();
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let first = chars.next()?;
        if first == ']' && !ranges.is_empty() {
            return Some(Part::Class { negated, ranges });
        }
        let mut ahead = chars.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *chars = ahead;
                last
            }
            _ => first,
        };
        ranges.push((first, last));
    }
}

impl Part {
    fn takes(&self, found: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(wanted) => *wanted == found,
            Self::Class { negated, ranges } => {
                let inside = ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&found));
                inside != *negated
            }
        }
    }
}

impl Pattern {
    /// Whether all of `path` is what the pattern says. Linear in both lengths
    /// multiplied: there is one place to go back to, the last star.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < path.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(next) if next.takes(path[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => match &mut star {
                    Some((after, from)) => {
                        *from += 1;
                        (part, at) = (*after + 1, *from);
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|part| *part == Part::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_shells() {
        let cases = [
            ("*", "a/b.c", true),
            ("*.json", "config.json", true),
            ("*.json", "a/b.json", true),
            ("*.json", "config.jsonx", false),
            ("model-?.bin", "model-1.bin", true),
            ("model-?.bin", "model-12.bin", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("**a**", "bab", true),
            ("a", "", false),
        ];
        for (pattern, path, wanted) in cases {
            let parsed: Pattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(path), wanted, "{pattern} of {path}");
        }
        for wrong in ["", "[ab", "["] {
            wrong.parse::<Pattern>().unwrap_err();
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern: Pattern = "*a*a*a*a*a*a*a*a*b".parse().unwrap();
        assert!(!pattern.matches(&"a".repeat(20_000)));
    }
}
