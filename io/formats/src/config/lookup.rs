//! Finding keys in either form of the file, collecting every problem.

use super::json::Json;
use super::problem::ConfigProblem;

/// The objects a key may stand in, most specific first, and what went wrong so far.
pub(super) struct Lookup<'a> {
    /// `text_config`, when there is one, then the root.
    pub(super) scopes: Vec<(&'static str, &'a Json)>,
    /// `linear_attn_config` inside `text_config`, then at the root.
    linear: Vec<(&'static str, &'a Json)>,
    pub(super) problems: Vec<ConfigProblem>,
}

/// A found value and the full name of its key.
pub(super) struct Found<'a> {
    pub(super) key: String,
    pub(super) value: &'a Json,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(root: &'a Json) -> Self {
        let mut lookup = Self {
            scopes: Vec::new(),
            linear: Vec::new(),
            problems: Vec::new(),
        };
        if let Some(text) = lookup.section(root, "text_config", "text_config") {
            lookup.scopes.push(("text_config.", text));
            let name = "text_config.linear_attn_config";
            if let Some(linear) = lookup.section(text, "linear_attn_config", name) {
                lookup
                    .linear
                    .push(("text_config.linear_attn_config.", linear));
            }
        }
        lookup.scopes.push(("", root));
        if let Some(linear) = lookup.section(root, "linear_attn_config", "linear_attn_config") {
            lookup.linear.push(("linear_attn_config.", linear));
        }
        lookup
    }

    fn section(&mut self, parent: &'a Json, key: &str, full_key: &str) -> Option<&'a Json> {
        let value = parent.get(key)?;
        if matches!(value, Json::Object(_)) {
            return Some(value);
        }
        self.ill_typed(full_key.to_owned(), "an object", value);
        None
    }

    pub(super) fn ill_typed(&mut self, key: String, expected: impl Into<String>, found: &Json) {
        self.problems.push(ConfigProblem::IllTyped {
            key,
            expected: expected.into(),
            found: found.to_string(),
        });
    }

    pub(super) fn out_of_range(
        &mut self,
        key: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) {
        self.problems.push(ConfigProblem::OutOfRange {
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
        });
    }

    /// A key of the language model: `text_config`, then the root; in each the
    /// primary name before the aliases.
    pub(super) fn find(&self, keys: &[&str]) -> Option<Found<'a>> {
        first_of(&self.scopes, keys)
    }

    /// A key of the linear attention: `linear_attn_config` by its plain name,
    /// then the aliases of a flat file.
    pub(super) fn find_linear(&self, key: &str, flat_keys: &[&str]) -> Option<Found<'a>> {
        first_of(&self.linear, &[key]).or_else(|| first_of(&self.scopes, flat_keys))
    }

    /// Every place where `key` stands, for values that must not differ anywhere.
    pub(super) fn find_all(&self, key: &str) -> Vec<Found<'a>> {
        self.linear
            .iter()
            .chain(&self.scopes)
            .filter_map(|scope| first_of(std::slice::from_ref(scope), &[key]))
            .collect()
    }

    /// Reports a missing key unless there is a value.
    pub(super) fn require(&mut self, found: Option<Found<'a>>, name: &str) -> Option<Found<'a>> {
        if found.is_none() {
            self.problems.push(ConfigProblem::Missing {
                key: name.to_owned(),
            });
        }
        found
    }

    /// An integer in `minimum..=maximum`.
    pub(super) fn integer(
        &mut self,
        found: Option<Found<'a>>,
        minimum: usize,
        maximum: usize,
    ) -> Option<usize> {
        let Found { key, value } = found?;
        let Json::Integer(number) = *value else {
            self.ill_typed(key, "an integer", value);
            return None;
        };
        match usize::try_from(number) {
            Ok(number) if (minimum..=maximum).contains(&number) => Some(number),
            _ => {
                self.out_of_range(key, format!("in {minimum}..={maximum}"), number);
                None
            }
        }
    }

    /// A number, rounded from the nearest double to f32, that satisfies `accept`
    /// after that rounding.
    pub(super) fn real(
        &mut self,
        found: Option<Found<'a>>,
        expected: &str,
        accept: impl Fn(f32) -> bool,
    ) -> Option<f32> {
        let Found { key, value } = found?;
        let number = match *value {
            Json::Float(number) => round_to_f32(number),
            Json::Integer(number) => round_to_f32(integer_to_f64(number)),
            _ => {
                self.ill_typed(key, "a number", value);
                return None;
            }
        };
        if number.is_finite() && accept(number) {
            return Some(number);
        }
        self.out_of_range(key, expected, value);
        None
    }

    /// `true` or `false`; `default` when the key is absent.
    pub(super) fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.find(&[key]) {
            None => default,
            Some(Found {
                value: Json::Bool(flag),
                ..
            }) => *flag,
            Some(Found { key, value }) => {
                self.ill_typed(key, "true or false", value);
                default
            }
        }
    }
}

fn first_of<'a>(scopes: &[(&'static str, &'a Json)], keys: &[&str]) -> Option<Found<'a>> {
    for (prefix, scope) in scopes {
        for key in keys {
            if let Some(value) = scope.get(key) {
                return Some(Found {
                    key: format!("{prefix}{key}"),
                    value,
                });
            }
        }
    }
    None
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "rounding a double to the nearest f32 is what is meant; infinities are refused by the caller"
)]
fn round_to_f32(number: f64) -> f32 {
    number as f32
}

fn integer_to_f64(number: i128) -> f64 {
    number as f64
}
