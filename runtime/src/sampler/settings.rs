//! How the next token is chosen, and why it could not be.

use serde::ser::{SerializeSeq as _, Serializer};

/// How the next token is chosen.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SamplingSettings {
    /// 0 takes the largest logit, the lowest id on ties.
    pub temperature: f32,
    /// Keep the `top_k` largest; 0 keeps all.
    pub top_k: usize,
    /// Keep the shortest prefix that reaches this share of the probability.
    pub top_p: f64,
    /// Drop what is less probable than this share of the largest.
    pub min_p: f32,
    /// What positive logits of ids in prompt or output are divided by, and
    /// others multiplied with; 1 leaves them.
    pub repetition_penalty: f32,
    /// What an id's logit falls by for each time it is in the output.
    pub frequency_penalty: f32,
    /// What an id's logit falls by if it is in the output at all.
    pub presence_penalty: f32,
    /// What is added to the logits of single ids, ids ascending. Minus infinity
    /// bans an id: it is never drawn.
    #[serde(serialize_with = "serialize_bias")]
    pub logit_bias: Vec<(u32, f32)>,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Default for SamplingSettings {
    /// Greedy.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Why a token could not be drawn.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A setting outside its range.
    #[error("--{name} {value} is outside {range}")]
    Setting {
        /// Flag name.
        name: &'static str,
        /// Given value.
        value: String,
        /// Allowed range.
        range: &'static str,
    },
    /// A bias for an id that comes twice.
    #[error("--logit-bias names id {id} more than once; give it one value")]
    BiasTwice {
        /// The id.
        id: u32,
    },
    /// Biases that are not in the order of their ids.
    #[error("--logit-bias is sorted by id, but {id} comes after {before}")]
    BiasOrder {
        /// The id that comes too late.
        id: u32,
        /// The larger one before it.
        before: u32,
    },
    /// A bias or a penalty for an id that the model does not have.
    #[error("{what} id {id}, but this model's vocabulary has {vocab_size} ids, counted from 0")]
    UnknownId {
        /// What named the id, with its verb.
        what: &'static str,
        /// The id.
        id: u32,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// Nothing is left to draw.
    #[error("--logit-bias bans all {vocab_size} ids of the vocabulary; leave at least one")]
    AllBanned {
        /// Ids of the model.
        vocab_size: usize,
    },
    /// Logits that are no numbers before anything is done to them.
    #[error("the model's logits are not all finite, or there are none")]
    RawNotFinite,
    /// Logits that are no longer finite when divided by the temperature.
    #[error(
        "a logit divided by the temperature {temperature} is not finite; raise --temperature, \
         or use 0 for the largest logit"
    )]
    NotFinite {
        /// The temperature in force.
        temperature: f32,
    },
    /// A logit that penalties and bias carry out of the numbers.
    #[error(
        "the logit of id {id} is not finite after penalties and bias; give --repetition-penalty, \
         --frequency-penalty, --presence-penalty and --logit-bias values nearer to none"
    )]
    AdjustedNotFinite {
        /// The id.
        id: u32,
    },
}

impl SamplingSettings {
    /// Checks every setting against its range. Whether a model has the ids of
    /// the biases is decided by [`SamplingSettings::check_vocabulary`].
    ///
    /// # Errors
    ///
    /// The first setting outside its range; biases that are not sorted or name
    /// an id twice.
    pub fn validate(&self) -> Result<(), SampleError> {
        let fail = |name, value: String, range| Err(SampleError::Setting { name, value, range });
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return fail(
                "temperature",
                self.temperature.to_string(),
                "0 and up, finite",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail("top-p", self.top_p.to_string(), "(0, 1]");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return fail("min-p", self.min_p.to_string(), "[0, 1]");
        }
        let repetition = self.repetition_penalty;
        if !(repetition > 0.0 && repetition.is_finite()) {
            let range = "numbers above 0, finite";
            return fail("repetition-penalty", repetition.to_string(), range);
        }
        for (name, penalty) in [
            ("frequency-penalty", self.frequency_penalty),
            ("presence-penalty", self.presence_penalty),
        ] {
            if !penalty.is_finite() {
                return fail(name, penalty.to_string(), "the finite numbers");
            }
        }
        self.validate_bias()
    }

    fn validate_bias(&self) -> Result<(), SampleError> {
        for (id, bias) in &self.logit_bias {
            if bias.is_nan() || *bias == f32::INFINITY {
                return Err(SampleError::Setting {
                    name: "logit-bias",
                    value: format!("{id}={bias}"),
                    range: "the finite numbers and -inf, which bans an id",
                });
            }
        }
        let unsorted = self
            .logit_bias
            .windows(2)
            .find(|pair| pair[0].0 >= pair[1].0);
        match unsorted.map(|pair| (pair[0].0, pair[1].0)) {
            None => Ok(()),
            Some((before, id)) if before == id => Err(SampleError::BiasTwice { id }),
            Some((before, id)) => Err(SampleError::BiasOrder { id, before }),
        }
    }

    /// Checks the biases against a model with `vocab_size` ids.
    ///
    /// # Errors
    ///
    /// A bias for an id that the model does not have, or a ban of every id.
    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<(), SampleError> {
        let is_known = |id: u32| super::index_of(id).is_some_and(|index| index < vocab_size);
        if let Some((id, _)) = self.logit_bias.iter().find(|(id, _)| !is_known(*id)) {
            return Err(SampleError::UnknownId {
                what: "--logit-bias names",
                id: *id,
                vocab_size,
            });
        }
        if self.banned().count() == vocab_size {
            return Err(SampleError::AllBanned { vocab_size });
        }
        Ok(())
    }

    /// Whether logits change at all before the temperature.
    #[must_use]
    pub fn adjusts(&self) -> bool {
        self.looks_back() || !self.logit_bias.is_empty()
    }

    /// Whether what is drawn depends on what came before.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }

    /// Ids that are never drawn.
    pub(super) fn banned(&self) -> impl Iterator<Item = u32> {
        let banned = |bias: &f32| *bias == f32::NEG_INFINITY;
        let biases = self.logit_bias.iter();
        biases
            .filter(move |(_, bias)| banned(bias))
            .map(|(id, _)| *id)
    }
}

/// JSON has no infinities: a ban is the string `-inf`, as on the command line.
fn serialize_bias<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
    struct Value(f32);
    impl serde::Serialize for Value {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            if self.0 == f32::NEG_INFINITY {
                return "-inf".serialize(to);
            }
            self.0.serialize(to)
        }
    }
    let mut list = to.serialize_seq(Some(biases.len()))?;
    for (id, bias) in biases {
        list.serialize_element(&(id, Value(*bias)))?;
    }
    list.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_range_and_the_error_names_its_flag() {
        let base = SamplingSettings::default;
        #[rustfmt::skip]
        let bad = [
            ("--temperature", SamplingSettings { temperature: -1.0, ..base() }),
            ("--temperature", SamplingSettings { temperature: f32::NAN, ..base() }),
            ("--temperature", SamplingSettings { temperature: f32::INFINITY, ..base() }),
            ("--top-p", SamplingSettings { top_p: 0.0, ..base() }),
            ("--top-p", SamplingSettings { top_p: 1.5, ..base() }),
            ("--top-p", SamplingSettings { top_p: f64::NAN, ..base() }),
            ("--min-p", SamplingSettings { min_p: -0.1, ..base() }),
            ("--min-p", SamplingSettings { min_p: f32::NAN, ..base() }),
            ("--repetition-penalty", SamplingSettings { repetition_penalty: 0.0, ..base() }),
            ("--repetition-penalty", SamplingSettings { repetition_penalty: -1.0, ..base() }),
            ("--repetition-penalty", SamplingSettings { repetition_penalty: f32::NAN, ..base() }),
            ("--repetition-penalty", SamplingSettings { repetition_penalty: f32::INFINITY, ..base() }),
            ("--frequency-penalty", SamplingSettings { frequency_penalty: f32::NAN, ..base() }),
            ("--frequency-penalty", SamplingSettings { frequency_penalty: f32::INFINITY, ..base() }),
            ("--presence-penalty", SamplingSettings { presence_penalty: f32::NEG_INFINITY, ..base() }),
            ("--logit-bias 1=NaN", SamplingSettings { logit_bias: vec![(1, f32::NAN)], ..base() }),
            ("--logit-bias 1=inf", SamplingSettings { logit_bias: vec![(1, f32::INFINITY)], ..base() }),
            ("id 1 more than once", SamplingSettings { logit_bias: vec![(1, 0.0), (1, 1.0)], ..base() }),
            ("1 comes after 2", SamplingSettings { logit_bias: vec![(2, 0.0), (1, 1.0)], ..base() }),
        ];
        for (named, settings) in bad {
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        let good = SamplingSettings {
            temperature: 2.0,
            repetition_penalty: 0.5,
            frequency_penalty: -2.0,
            presence_penalty: 2.0,
            logit_bias: vec![(1, -100.0), (4, f32::NEG_INFINITY)],
            ..base()
        };
        assert_eq!(good.validate(), Ok(()));
    }

    #[test]
    fn biases_are_of_ids_that_the_model_has_and_leave_one() {
        let with = |logit_bias| SamplingSettings {
            logit_bias,
            ..SamplingSettings::default()
        };
        assert_eq!(with(vec![(3, 1.0)]).check_vocabulary(4), Ok(()));
        let error = with(vec![(4, 1.0)]).check_vocabulary(4).unwrap_err();
        assert!(error.to_string().contains("id 4"), "{error}");
        let ban = f32::NEG_INFINITY;
        assert_eq!(with(vec![(0, ban)]).check_vocabulary(2), Ok(()));
        let error = with(vec![(0, ban), (1, ban)]).check_vocabulary(2);
        assert_eq!(error, Err(SampleError::AllBanned { vocab_size: 2 }));
    }

    #[test]
    fn only_settings_that_do_something_adjust() {
        let base = SamplingSettings::default;
        assert!(!base().adjusts() && !base().looks_back());
        let bias = SamplingSettings {
            logit_bias: vec![(0, 0.0)],
            ..base()
        };
        assert!(bias.adjusts() && !bias.looks_back());
        let penalty = SamplingSettings {
            presence_penalty: -1.0,
            ..base()
        };
        assert!(penalty.adjusts() && penalty.looks_back());
    }

    #[test]
    fn a_ban_survives_json() {
        let settings = SamplingSettings {
            logit_bias: vec![(1, 2.5), (4, f32::NEG_INFINITY)],
            ..SamplingSettings::default()
        };
        let json = serde_json::to_value(settings).unwrap();
        assert_eq!(json["logit_bias"].to_string(), r#"[[1,2.5],[4,"-inf"]]"#);
    }
}
