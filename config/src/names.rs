//! Enums that users write by name, and the nearest name to a mistyped one.

/// A text that is none of the names a value may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a known {what}: {}write one of {}",
    suggestion(*.nearest),
    .known.join(", ")
)]
pub struct UnknownName {
    /// What kind of value was expected.
    pub what: &'static str,
    /// What was given.
    pub text: String,
    /// Every name that would have been right.
    pub known: &'static [&'static str],
    /// The known name that looks like a typing mistake away, if one does.
    pub nearest: Option<&'static str>,
}

impl UnknownName {
    /// `text` is not one of `known`.
    pub(crate) fn new(what: &'static str, text: &str, known: &'static [&'static str]) -> Self {
        Self {
            what,
            text: text.to_owned(),
            known,
            nearest: nearest(text, known),
        }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

/// The known name closest to `text`, if it is close enough to be a slip: at
/// most one edit per three characters of the shorter, and never more than two.
pub(crate) fn nearest(text: &str, known: &[&'static str]) -> Option<&'static str> {
    let text = text.trim().to_ascii_lowercase();
    known
        .iter()
        .map(|name| (edits(&text, name), *name))
        .filter(|(distance, name)| *distance <= text.len().min(name.len()).div_ceil(3).min(2))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a`
/// into `b` (optimal string alignment).
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Declares an enum whose variants users write by name.
///
/// The enum gets `ALL`, `NAMES`, `name()`, `Display`, `FromStr` (any case,
/// surrounding blanks ignored) and `Serialize` as its name.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $enum:ident: $what:literal {
            $($(#[$variant_meta:meta])* $variant:ident => $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $enum {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $enum {
            /// Every variant, in the order of [`Self::NAMES`].
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The names users write.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name users write for it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = $crate::names::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.name().eq_ignore_ascii_case(text.trim()))
                    .ok_or_else(|| $crate::names::UnknownName::new($what, text, Self::NAMES))
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

pub(crate) use named_enum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_count_swaps_once() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("memory", "memory", 0),
            ("memroy", "memory", 1),
            ("contxt", "context", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(a, b), want, "{a} {b}");
            assert_eq!(edits(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn nearest_needs_to_be_near() {
        let known = &["memory", "chunk", "pins", "trunk_gb"];
        assert_eq!(nearest("Memroy", known), Some("memory"));
        assert_eq!(nearest("trunk-gb", known), Some("trunk_gb"));
        assert_eq!(nearest("temperature", known), None);
        assert_eq!(nearest("", known), None);
        // Two edits are no slip in a word of three letters, nor three in any.
        assert_eq!(nearest("foo", &["root"]), None);
        assert_eq!(nearest("rot", &["root"]), Some("root"));
        assert_eq!(nearest("wrkstatin", &["workstation"]), Some("workstation"));
        assert_eq!(nearest("wrkstatn", &["workstation"]), None);
    }

    #[test]
    fn names_say_what_would_be_right() {
        let error = UnknownName::new("pin placement", "spred", &["spread", "prefix"]);
        assert_eq!(
            error.to_string(),
            "`spred` is not a known pin placement: did you mean `spread`? write one of spread, prefix"
        );
    }
}
