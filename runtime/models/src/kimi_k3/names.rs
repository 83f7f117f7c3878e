//! Names from files, fit for a message.

use std::fmt;

/// How many names, and the first three: a foreign configuration may ask for
/// millions, and a hostile file may hold names of any length and content.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) count: u64,
    first: Vec<String>,
}

/// Longest part of a name that a message shows, in characters.
const SHOWN_CHARACTERS: usize = 100;

impl Names {
    /// Counts `count` tensors, of which `name` names one.
    pub(super) fn add(&mut self, count: u64, name: impl FnOnce() -> String) {
        self.count += count;
        if count > 0 && self.first.len() < 3 {
            self.first.push(shown(&name()));
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))
    }
}

/// `name` fit for a terminal: control characters escaped, the rest clipped.
fn shown(name: &str) -> String {
    let mut text: String = name
        .chars()
        .take(SHOWN_CHARACTERS)
        .flat_map(char::escape_debug)
        .collect();
    if name.chars().nth(SHOWN_CHARACTERS).is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_names_are_kept_and_all_are_counted() {
        let mut names = Names::default();
        for index in 0..5 {
            names.add(2, || format!("t{index}"));
        }
        names.add(0, || panic!("nothing to name"));
        assert_eq!(
            (names.count, names.to_string().as_str()),
            (10, "t0, t1, t2")
        );
    }

    #[test]
    fn hostile_names_are_escaped_and_clipped() {
        let mut names = Names::default();
        names.add(1, || "a\u{1b}[31m\nb".to_owned());
        names.add(1, || "x".repeat(1000));
        let text = names.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.chars().count() < 150 && text.ends_with('…'), "{text}");
    }
}
