//! How likely an id was.

use k3_kernels::math::{exp, ln64};
use serde::Serialize;

use super::settings::SampleError;
use super::{index_of, token_id};

/// An id and how likely it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenLogprob {
    /// The id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// A drawn id beside the likeliest ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprobs {
    /// The id that was drawn.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest ids, the likeliest first, the lower id on ties.
    pub top: Vec<TokenLogprob>,
}

/// The logprobs of one position.
#[derive(Debug, Clone)]
pub struct Logprobs<'a> {
    logits: &'a [f32],
    maximum: f32,
    ln_z: f64,
    top: Vec<TokenLogprob>,
}

/// Logprobs of raw `logits`, `[vocab]`: before penalties, biases, temperature
/// and filters. The `top_n` likeliest, or all if there are fewer, come sorted.
///
/// # Errors
///
/// Logits that are not finite, or none at all.
pub fn logprobs(logits: &[f32], top_n: usize) -> Result<Logprobs<'_>, SampleError> {
    if logits.is_empty() || logits.iter().any(|logit| !logit.is_finite()) {
        return Err(SampleError::RawNotFinite);
    }
    let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let z = logits
        .iter()
        .fold(0.0, |z, logit| z + f64::from(exp(logit - maximum)));
    let mut found = Logprobs {
        logits,
        maximum,
        ln_z: ln64(z),
        top: Vec::new(),
    };
    let top = likeliest(logits, top_n);
    let top = top.into_iter().map(|(logit, id)| TokenLogprob {
        id,
        logprob: found.of_logit(logit),
    });
    found.top = top.collect();
    Ok(found)
}

impl Logprobs<'_> {
    /// That of `id`; `None` where the vocabulary has no such id.
    #[must_use]
    pub fn of(&self, id: u32) -> Option<f32> {
        let logit = self.logits.get(index_of(id)?)?;
        Some(self.of_logit(*logit))
    }

    /// The likeliest, the likeliest first, the lower id on ties.
    #[must_use]
    pub fn top(&self) -> &[TokenLogprob] {
        &self.top
    }

    /// Those of a token that was drawn; `None` where the vocabulary has no such
    /// id.
    #[must_use]
    pub fn of_drawn(self, id: u32) -> Option<TokenLogprobs> {
        let logprob = self.of(id)?;
        let top = self.top;
        Some(TokenLogprobs { id, logprob, top })
    }

    fn of_logit(&self, logit: f32) -> f32 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "rounded to f32 by definition"
        )]
        let logprob = (f64::from(logit - self.maximum) - self.ln_z) as f32;
        logprob
    }
}

/// The `count` largest, the lower id first among equals.
fn likeliest(logits: &[f32], count: usize) -> Vec<(f32, u32)> {
    let mut top: Vec<(f32, u32)> = Vec::with_capacity(count.min(logits.len()) + 1);
    for (index, logit) in logits.iter().enumerate() {
        let is_full = top.len() == count;
        if is_full && top.last().is_none_or(|last| *logit <= last.0) {
            continue;
        }
        // Behind its equals, whose ids are lower.
        let at = top.partition_point(|(other, _)| other >= logit);
        top.insert(at, (*logit, token_id(index)));
        top.truncate(count);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_all_ids_add_up() {
        let logits = [1.0, -2.0, 0.5, 3.0, 3.0];
        let found = logprobs(&logits, 0).unwrap();
        let sum: f64 = (0..5).map(|id| f64::from(exp(found.of(id).unwrap()))).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(found.of(5), None);
        assert!(found.top().is_empty());
        assert_eq!(found.of_drawn(5), None);
    }

    #[test]
    fn the_likeliest_come_first_and_the_lower_id_among_equals() {
        let logits = [1.0, 3.0, -0.0, 3.0, 0.0, 2.0];
        let ids = |top_n| -> Vec<u32> {
            let found = logprobs(&logits, top_n).unwrap();
            found.top().iter().map(|entry| entry.id).collect()
        };
        let all = [1, 3, 5, 0, 2, 4];
        for top_n in 0..10 {
            assert_eq!(ids(top_n), all[..top_n.min(6)], "{top_n}");
        }
        let drawn = logprobs(&logits, 2).unwrap().of_drawn(3).unwrap();
        assert_eq!((drawn.id, drawn.logprob), (3, drawn.top[1].logprob));
    }

    #[test]
    fn one_id_alone_is_certain_and_a_hopeless_one_has_a_number() {
        assert_eq!(logprobs(&[5.0], 1).unwrap().of(0), Some(0.0));
        let found = logprobs(&[0.0, -1000.0], 2).unwrap();
        assert_eq!((found.of(0), found.of(1)), (Some(0.0), Some(-1000.0)));
        for wrong in [&[][..], &[f32::NAN], &[0.0, f32::NEG_INFINITY]] {
            assert!(logprobs(wrong, 1).is_err());
        }
    }
}
