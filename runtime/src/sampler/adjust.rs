//! Penalties and biases: the steps before the temperature.

use super::history::History;
use super::settings::{SampleError, SamplingSettings};
use super::{index_of, token_id};

impl SamplingSettings {
    /// Changes `logits`, `[vocab]`, by penalties and biases: repetition,
    /// frequency, presence, bias, each an f32 operation. Banned ids become minus
    /// infinity; everything else stays finite.
    ///
    /// # Errors
    ///
    /// An id in `history` or the biases that `logits` has none for; a logit
    /// that does not stay finite; a ban of every id.
    pub fn adjust(&self, logits: &mut [f32], history: &History) -> Result<(), SampleError> {
        self.check_vocabulary(logits.len())?;
        if self.looks_back() {
            let vocab_size = logits.len();
            for (id, count) in history.iter() {
                let logit = index_of(id).and_then(|index| logits.get_mut(index));
                let logit = logit.ok_or(SampleError::UnknownId {
                    what: "prompt or output have",
                    id,
                    vocab_size,
                })?;
                *logit = self.penalised(*logit, count);
            }
        }
        for (id, bias) in &self.logit_bias {
            let index = index_of(*id).expect("checked above");
            // A ban must not depend on the logit, so it is set below.
            if *bias != f32::NEG_INFINITY {
                logits[index] += bias;
            }
        }
        for id in self.banned() {
            logits[index_of(id).expect("checked above")] = 0.0;
        }
        if let Some(index) = logits.iter().position(|logit| !logit.is_finite()) {
            let id = token_id(index);
            return Err(SampleError::AdjustedNotFinite { id });
        }
        for id in self.banned() {
            logits[index_of(id).expect("checked above")] = f32::NEG_INFINITY;
        }
        Ok(())
    }

    /// The logit of an id that is in the prompt or the output, in the latter
    /// `count` times.
    fn penalised(&self, mut x: f32, count: u32) -> f32 {
        let repetition = self.repetition_penalty;
        if repetition != 1.0 {
            x = if x > 0.0 {
                x / repetition
            } else {
                x * repetition
            };
        }
        if count > 0 {
            #[allow(clippy::cast_precision_loss, reason = "rounded once, by definition")]
            let count = count as f32;
            x -= self.frequency_penalty * count;
            x -= self.presence_penalty;
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(
        settings: &SamplingSettings,
        mut logits: Vec<f32>,
    ) -> Result<Vec<f32>, SampleError> {
        // Id 0 is in the prompt, 1 in both, 2 in the output twice, 3 in neither.
        let history = History::rebuilt(&[0, 1, 1], &[1, 2, 2]);
        settings.adjust(&mut logits, &history)?;
        Ok(logits)
    }

    #[test]
    fn each_looks_at_its_own_ids() {
        let base = SamplingSettings::default;
        let logits = vec![2.0, -2.0, 4.0, 8.0];
        let repetition = SamplingSettings {
            repetition_penalty: 2.0,
            ..base()
        };
        let got = adjusted(&repetition, logits.clone());
        assert_eq!(got, Ok(vec![1.0, -4.0, 2.0, 8.0]));
        let frequency = SamplingSettings {
            frequency_penalty: 0.5,
            ..base()
        };
        let got = adjusted(&frequency, logits.clone());
        assert_eq!(got, Ok(vec![2.0, -2.5, 3.0, 8.0]));
        let presence = SamplingSettings {
            presence_penalty: -0.5,
            ..base()
        };
        let got = adjusted(&presence, logits.clone());
        assert_eq!(got, Ok(vec![2.0, -1.5, 4.5, 8.0]));
        let bias = SamplingSettings {
            logit_bias: vec![(0, -3.0), (3, f32::NEG_INFINITY)],
            ..base()
        };
        let got = adjusted(&bias, logits.clone());
        assert_eq!(got, Ok(vec![-1.0, -2.0, 4.0, f32::NEG_INFINITY]));
        assert_eq!(adjusted(&base(), logits.clone()), Ok(logits));
    }

    /// Division before subtraction before addition: any other order gives other
    /// numbers here.
    #[test]
    fn they_come_in_order() {
        let all = SamplingSettings {
            repetition_penalty: 4.0,
            frequency_penalty: 0.25,
            presence_penalty: 1.0e8,
            logit_bias: vec![(2, 1.0e8)],
            ..SamplingSettings::default()
        };
        // 4 / 4 = 1, - 0.5 = 0.5, - 1e8 = -1e8 (the half is lost), + 1e8 = 0.
        let got = adjusted(&all, vec![0.0, 0.0, 4.0]).unwrap();
        assert_eq!(got[2].to_bits(), 0);
    }

    #[test]
    fn what_leaves_the_numbers_is_an_error_unless_it_is_banned() {
        let mut steep = SamplingSettings {
            repetition_penalty: 1e-30,
            ..SamplingSettings::default()
        };
        let error = adjusted(&steep, vec![0.0, 0.0, 1e30]);
        assert_eq!(error, Err(SampleError::AdjustedNotFinite { id: 2 }));
        steep.logit_bias = vec![(2, f32::NEG_INFINITY)];
        let got = adjusted(&steep, vec![0.0, 0.0, 1e30]);
        assert_eq!(got, Ok(vec![0.0, 0.0, f32::NEG_INFINITY]));
        // A finite bias never bans.
        let low = SamplingSettings {
            logit_bias: vec![(0, f32::MIN)],
            ..SamplingSettings::default()
        };
        let error = adjusted(&low, vec![f32::MIN, 0.0, 0.0]);
        assert_eq!(error, Err(SampleError::AdjustedNotFinite { id: 0 }));
    }

    #[test]
    fn ids_that_are_not_there_are_errors() {
        let penalty = SamplingSettings {
            presence_penalty: 1.0,
            ..SamplingSettings::default()
        };
        let error = adjusted(&penalty, vec![0.0, 0.0]).unwrap_err();
        assert!(error.to_string().contains("output have id 2"), "{error}");
        let bias = SamplingSettings {
            logit_bias: vec![(2, 1.0)],
            ..SamplingSettings::default()
        };
        let error = adjusted(&bias, vec![0.0, 0.0]).unwrap_err();
        assert!(
            error.to_string().contains("--logit-bias names id 2"),
            "{error}"
        );
    }
}
