//! From logits to a token, reproducibly.
//!
//! Everything is defined in `docs/numerics.md`: the order of the steps, their
//! types and the random number of each position. The result depends on the
//! logits, the settings and the position alone.

use k3_kernels::{KernelSet, argmax};

use crate::philox::uniform;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SamplingSettings {
    /// 0 takes the largest logit, the lowest id on ties.
    pub temperature: f32,
    /// Keep the `top_k` largest; 0 keeps all.
    pub top_k: usize,
    /// Keep the shortest prefix that reaches this share of the probability.
    pub top_p: f64,
    /// Drop what is less probable than this share of the largest.
    pub min_p: f32,
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
    /// Logits that are not finite, or become so when divided by the
    /// temperature.
    #[error(
        "a logit divided by the temperature {temperature} is not finite; raise --temperature, \
         or use 0 for the largest logit"
    )]
    NotFinite {
        /// The temperature in force.
        temperature: f32,
    },
}

impl SamplingSettings {
    /// Checks every setting against its range.
    ///
    /// # Errors
    ///
    /// The first setting outside its range.
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
        Ok(())
    }
}

/// Draws tokens; keeps its buffers between draws.
#[derive(Debug)]
pub struct Sampler {
    settings: SamplingSettings,
    candidates: Vec<(f32, u32)>,
    probabilities: Vec<f32>,
}

impl Sampler {
    /// A sampler for `settings`.
    ///
    /// # Errors
    ///
    /// A setting outside its range.
    pub fn new(settings: SamplingSettings) -> Result<Self, SampleError> {
        settings.validate()?;
        Ok(Self {
            settings,
            candidates: Vec::new(),
            probabilities: Vec::new(),
        })
    }

    /// The token at absolute index `position`, drawn from `logits`: `[vocab]`.
    ///
    /// # Errors
    ///
    /// Logits that are not finite.
    pub fn draw(&mut self, logits: &[f32], position: u64) -> Result<u32, SampleError> {
        let temperature = self.settings.temperature;
        let not_finite = SampleError::NotFinite { temperature };
        let best = argmax(logits).ok_or_else(|| not_finite.clone())?;
        if temperature == 0.0 {
            return Ok(token_id(best));
        }
        self.candidates.clear();
        let scaled = logits
            .iter()
            .enumerate()
            .map(|(id, x)| (x / temperature, token_id(id)));
        self.candidates.extend(scaled);
        if self.candidates.iter().any(|(x, _)| !x.is_finite()) {
            return Err(not_finite);
        }
        // Ids are distinct, so the order is total and the sort's kind cannot
        // show. Zeros of either sign are equal: the lower id goes first.
        self.candidates.sort_unstable_by(|a, b| {
            let by_value = b.0.partial_cmp(&a.0).expect("all are finite");
            by_value.then(a.1.cmp(&b.1))
        });
        if self.settings.top_k > 0 {
            self.candidates.truncate(self.settings.top_k);
        }
        self.keep_probable();
        let u = uniform(self.settings.seed, position, 0);
        Ok(self.pick(u))
    }

    /// Softmax over the candidates, then top-p, then min-p.
    fn keep_probable(&mut self) {
        self.probabilities.clear();
        self.probabilities
            .extend(self.candidates.iter().map(|(x, _)| *x));
        (KernelSet::detect().softmax)(&mut self.probabilities);
        let total = serial_sum(&self.probabilities);
        let mut cumulative = 0.0;
        let kept = self
            .probabilities
            .iter()
            .position(|p| {
                cumulative += f64::from(*p);
                cumulative >= self.settings.top_p * total
            })
            .map_or(self.probabilities.len(), |index| index + 1);
        self.probabilities.truncate(kept);
        // Sorted, so what is too improbable is a suffix.
        let floor = self.settings.min_p * self.probabilities[0];
        self.probabilities.retain(|p| *p >= floor);
        self.candidates.truncate(self.probabilities.len());
    }

    /// The first candidate whose cumulative share exceeds `u`.
    fn pick(&self, u: f64) -> u32 {
        let total = serial_sum(&self.probabilities);
        let mut cumulative = 0.0;
        let index = self
            .probabilities
            .iter()
            .position(|p| {
                cumulative += f64::from(*p);
                cumulative > u * total
            })
            .unwrap_or(self.probabilities.len() - 1);
        self.candidates[index].1
    }
}

/// One f64 accumulator, in order.
fn serial_sum(values: &[f32]) -> f64 {
    values
        .iter()
        .fold(0.0, |sum, value| sum + f64::from(*value))
}

fn token_id(index: usize) -> u32 {
    u32::try_from(index).expect("vocabularies are capped far below 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(settings: SamplingSettings) -> Sampler {
        Sampler::new(settings).unwrap()
    }

    #[test]
    fn greedy_takes_the_first_maximum() {
        let mut greedy = sampler(SamplingSettings::default());
        assert_eq!(greedy.draw(&[1.0, 3.0, 3.0, -1.0], 0), Ok(1));
        assert!(greedy.draw(&[1.0, f32::NAN], 0).is_err());
    }

    #[test]
    fn draws_follow_the_probabilities_and_repeat() {
        let settings = SamplingSettings {
            temperature: 1.0,
            seed: 42,
            ..SamplingSettings::default()
        };
        // Probabilities 1/2, 1/4, 1/4.
        let logits = [std::f32::consts::LN_2, 0.0, 0.0];
        let draws: Vec<u32> = (0..4000)
            .map(|p| sampler(settings).draw(&logits, p).unwrap())
            .collect();
        let share = |id| draws.iter().filter(|draw| **draw == id).count();
        assert!((1850..2150).contains(&share(0)), "{}", share(0));
        assert!((880..1120).contains(&share(1)), "{}", share(1));
        let again = sampler(settings).draw(&logits, 77).unwrap();
        assert_eq!(again, draws[77]);
    }

    #[test]
    fn filters_keep_what_they_say() {
        let base = SamplingSettings {
            temperature: 1.0,
            ..SamplingSettings::default()
        };
        let logits = [0.0, 2.0, 1.0, 2.0, -1.0];
        let kept = |settings: SamplingSettings| {
            let mut sampler = sampler(settings);
            sampler.draw(&logits, 0).unwrap();
            sampler
                .candidates
                .iter()
                .map(|(_, id)| *id)
                .collect::<Vec<_>>()
        };
        // Equal logits: the lower id first.
        assert_eq!(kept(base), [1, 3, 2, 0, 4]);
        assert_eq!(kept(SamplingSettings { top_k: 2, ..base }), [1, 3]);
        // The two largest hold 0.78 of the probability.
        assert_eq!(kept(SamplingSettings { top_p: 0.7, ..base }), [1, 3]);
        assert_eq!(
            kept(SamplingSettings {
                top_p: 1e-9,
                ..base
            }),
            [1]
        );
        // e^-1 = 0.37 of the largest.
        assert_eq!(kept(SamplingSettings { min_p: 0.3, ..base }), [1, 3, 2]);
        assert_eq!(kept(SamplingSettings { min_p: 1.0, ..base }), [1, 3]);
    }

    #[test]
    fn zeros_of_either_sign_are_equal() {
        let settings = SamplingSettings {
            temperature: 1.0,
            ..SamplingSettings::default()
        };
        let mut sampler = sampler(settings);
        sampler.draw(&[-0.0, 0.0, -0.0, 1.0], 0).unwrap();
        let order: Vec<_> = sampler.candidates.iter().map(|(_, id)| *id).collect();
        assert_eq!(order, [3, 0, 1, 2]);
    }

    #[test]
    fn refuses_settings_out_of_range() {
        let base = SamplingSettings::default();
        for bad in [
            SamplingSettings {
                temperature: -1.0,
                ..base
            },
            SamplingSettings {
                temperature: f32::NAN,
                ..base
            },
            SamplingSettings {
                temperature: f32::INFINITY,
                ..base
            },
            SamplingSettings { top_p: 0.0, ..base },
            SamplingSettings { top_p: 1.5, ..base },
            SamplingSettings {
                top_p: f64::NAN,
                ..base
            },
            SamplingSettings {
                min_p: -0.1,
                ..base
            },
            SamplingSettings {
                min_p: f32::NAN,
                ..base
            },
        ] {
            assert!(Sampler::new(bad).is_err(), "{bad:?}");
        }
        let tiny = SamplingSettings {
            temperature: 1e-45,
            ..base
        };
        let error = sampler(tiny).draw(&[1.0, 2.0], 0).unwrap_err();
        assert!(error.to_string().contains("--temperature"), "{error}");
    }
}
