//! Choices among scores: the next token and the experts of a position.

use crate::math;

/// A value that must be finite is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the router value of expert {index} is not finite")]
pub struct NonFinite {
    /// Index of the first offending value.
    pub index: usize,
}

/// One chosen expert and the weight of its output.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pick {
    /// Index of the expert within its layer.
    pub expert: u32,
    /// The factor its output is multiplied with.
    pub weight: f32,
}

/// The index of the first maximum of `values`; `None` when `values` is empty or
/// holds a value that is not finite. `-0.0` and `+0.0` are equal.
#[must_use]
pub fn argmax(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if !value.is_finite() {
            return None;
        }
        if value > values[best] {
            best = index;
        }
    }
    (!values.is_empty()).then_some(best)
}

/// Chooses `top_k` distinct experts of one position and their weights.
///
/// `logits` and `bias`: `[experts]`. `score = sigmoid(logit)`, `choice = score +
/// bias` in f32; `top_k` passes of a strict `>`, so that the lower id wins ties;
/// the weight is the unbiased score. With `renormalize` and `top_k > 1`: `s` =
/// f64 serial sum of the weights in pick order, `inv = f32(1 / (s + 1e-20))`,
/// `weight *= inv`. Then `weight *= scaling_factor`. `picks` are in pick order.
///
/// # Errors
/// [`NonFinite`] with the lowest index whose logit, score or choice is not
/// finite; `picks` is then untouched.
///
/// # Panics
/// If `bias` is not as long as `logits`, `scratch` not twice as long, `picks`
/// not `top_k` long, or `top_k` exceeds the number of experts.
pub fn router_select(
    logits: &[f32],
    bias: &[f32],
    top_k: usize,
    renormalize: bool,
    scaling_factor: f32,
    scratch: &mut [f32],
    picks: &mut [Pick],
) -> Result<(), NonFinite> {
    let experts = logits.len();
    assert_eq!(bias.len(), experts, "one bias per expert");
    assert_eq!(scratch.len(), 2 * experts, "scratch is not [2][experts]");
    assert_eq!(picks.len(), top_k, "picks is not [top_k]");
    assert!(top_k <= experts, "{top_k} picks among {experts} experts");
    assert!(u32::try_from(experts).is_ok(), "expert ids are u32");

    let (scores, choices) = scratch.split_at_mut(experts);
    for index in 0..experts {
        scores[index] = math::sigmoid(logits[index]);
        choices[index] = scores[index] + bias[index];
        let finite = logits[index].is_finite() && choices[index].is_finite();
        if !finite || !scores[index].is_finite() {
            return Err(NonFinite { index });
        }
    }
    for pick in picks.iter_mut() {
        let mut best = 0;
        for index in 1..experts {
            if choices[index] > choices[best] {
                best = index;
            }
        }
        // Every choice is finite, so a taken expert never wins again.
        choices[best] = f32::NEG_INFINITY;
        *pick = Pick {
            expert: u32::try_from(best).unwrap_or(u32::MAX),
            weight: scores[best],
        };
    }
    scale_weights(renormalize, scaling_factor, picks);
    Ok(())
}

/// The weight rule of [`router_select`].
fn scale_weights(renormalize: bool, scaling_factor: f32, picks: &mut [Pick]) {
    if renormalize && picks.len() > 1 {
        let mut sum = 0.0_f64;
        for pick in picks.iter() {
            sum += f64::from(pick.weight);
        }
        let inv = crate::generic::lanes::round_f32(1.0 / (sum + 1e-20));
        for pick in picks.iter_mut() {
            pick.weight *= inv;
        }
    }
    for pick in picks {
        pick.weight *= scaling_factor;
    }
}
