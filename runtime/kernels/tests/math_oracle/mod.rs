//! What `exp` and `tanh` must return, computed by other means than the code under test.
//!
//! Two stages. An f64 estimate with a proved error bound decides nearly every input: when the
//! whole interval around the estimate rounds to one f32, that f32 is the answer. The few
//! inputs left are decided by comparing a 256-bit value with the midpoint of the two
//! candidates. The estimates share no method with the library: exp is a product of e^i,
//! e^(f/256) and a short series, with no ln2 anywhere; tanh below 1 is a continued fraction.

#![allow(
    dead_code,
    reason = "each test binary that includes this module uses a part of it"
)]

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;

/// Relative error allowed to the estimates. Proved below: 2^-50; the rest is margin that also
/// pays for the roundings of the interval's ends.
pub(crate) const ESTIMATE_BOUND: f64 = 1.0 / (1u64 << 48) as f64;
/// Bits of the deciding evaluation.
pub(crate) const PRECISION_BITS: usize = 256;
const LOWEST: i32 = -104;
const HIGHEST: i32 = 89;

type Big = FBig<HalfEven, 2>;

/// A function under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Exp,
    Tanh,
}

/// What decided a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// NaN, infinities, and magnitudes where the function is saturated: by monotonicity.
    Argument,
    /// The f64 estimate.
    Estimate,
    /// The 256-bit evaluation.
    Exact,
}

/// The tables of the estimates.
pub(crate) struct Oracle {
    /// e^i, i = LOWEST..=HIGHEST, each the nearest f64.
    integer: Vec<f64>,
    /// e^(f/256), f = 0..256, each the nearest f64.
    fraction: Vec<f64>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let nearest = |x: f64| exact_exp(x).to_f64().value();
        Self {
            integer: (LOWEST..=HIGHEST).map(|i| nearest(f64::from(i))).collect(),
            fraction: (0..256).map(|f| nearest(f64::from(f) / 256.0)).collect(),
        }
    }

    /// The correctly rounded result for `x` (any NaN for a NaN result) and what decided it.
    pub(crate) fn expected(&self, function: Function, x: f32) -> (f32, Decision) {
        if let Some(value) = saturated(function, x) {
            return (value, Decision::Argument);
        }
        let (low, high) = self.candidates(function, x);
        let (magnitude, decision) = if low.to_bits() == high.to_bits() {
            (low, Decision::Estimate)
        } else {
            (decide_exactly(function, x, low, high), Decision::Exact)
        };
        match function {
            Function::Exp => (magnitude, decision),
            Function::Tanh => (magnitude.copysign(x), decision),
        }
    }

    /// What the two ends of the interval around the estimate round to.
    fn candidates(&self, function: Function, x: f32) -> (f32, f32) {
        let estimate = self.estimate(function, f64::from(x));
        let slack = estimate * ESTIMATE_BOUND;
        (to_f32(estimate - slack), to_f32(estimate + slack))
    }

    /// e^x, or tanh |x|, with a relative error below 2^-50.
    pub(crate) fn estimate(&self, function: Function, x: f64) -> f64 {
        match function {
            Function::Exp => self.estimate_exp(x),
            Function::Tanh if x.abs() < 1.0 => estimate_small_tanh(x.abs()),
            // The quotient is below 0.24 and carries 2^-49.6 of itself; the result is over
            // 0.76 and is rounded once: below 2^-50 together.
            Function::Tanh => 1.0 - 2.0 / (self.estimate_exp(2.0 * x.abs()) + 1.0),
        }
    }

    /// x = i + f/256 + r exactly (x has 24 significant bits), |r| <= 2^-9. The two table
    /// values, the series (its truncation is 2^-75, its last addition dominates) and the two
    /// products each add at most 2^-53 and a little: below 2^-50.
    fn estimate_exp(&self, x: f64) -> f64 {
        let steps = (x * 256.0).round_ties_even();
        let r = x - steps / 256.0;
        let steps = to_i32(steps);
        let integer = self.integer[usize::try_from((steps >> 8) - LOWEST).expect("clamped")];
        let fraction = self.fraction[usize::try_from(steps & 255).expect("masked")];
        let h = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0));
        let series = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * h)));
        integer * fraction * series
    }
}

/// Lambert's fraction x / (1 + s/(3 + s/(5 + ...))), s = x^2 (exact), cut after 2*11-1: for
/// x <= 1 the rest is below 1/(21!!)^2 = 2^-67. Every term is positive, so relative errors
/// only shrink on the way up: under three roundings, 2^-51.
fn estimate_small_tanh(x: f64) -> f64 {
    let s = x * x;
    let mut denominator = 21.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        denominator = odd + s / denominator;
    }
    x / denominator
}

/// The results that need no evaluation. exp(89) > 2^128 and exp(-104) < 2^-150, so every
/// larger or smaller x gives infinity or zero; tanh(9.1) > 1 - 2^-25 likewise gives 1.
fn saturated(function: Function, x: f32) -> Option<f32> {
    if x.is_nan() {
        return Some(x);
    }
    match function {
        Function::Exp if x >= 89.0 => Some(f32::INFINITY),
        Function::Exp if x <= -104.0 => Some(0.0),
        Function::Tanh if x.abs() >= 9.1 => Some(1.0f32.copysign(x)),
        Function::Tanh if x == 0.0 => Some(x),
        _ => None,
    }
}

/// Which of two neighbouring f32 the true value is nearer to. It is never their midpoint: exp
/// and tanh of a nonzero rational are irrational.
fn decide_exactly(function: Function, x: f32, low: f32, high: f32) -> f32 {
    assert_eq!(high.to_bits(), low.to_bits() + 1, "not neighbours at {x:e}");
    let upper = if high.is_infinite() {
        2.0f64.powi(128)
    } else {
        f64::from(high)
    };
    let midpoint = big((f64::from(low) + upper) / 2.0);
    let difference = exact(function, f64::from(x)) - &midpoint;
    let ratio = (difference / midpoint).to_f64().value();
    assert!(ratio.abs() > 2.0f64.powi(-150), "not decided at {x:e}");
    if ratio > 0.0 { high } else { low }
}

/// e^x, or tanh |x|, to more than 200 bits.
pub(crate) fn exact(function: Function, x: f64) -> Big {
    match function {
        Function::Exp => exact_exp(x),
        Function::Tanh => {
            let e = exact_exp(2.0 * x.abs());
            (e.clone() - Big::ONE) / (e + Big::ONE)
        }
    }
}

fn exact_exp(x: f64) -> Big {
    big(x).exp()
}

/// ln of a positive finite `x`.
pub(crate) fn exact_ln(x: f64) -> Big {
    big(x).ln()
}

/// `x` without rounding, in a number that computes with `PRECISION_BITS`.
pub(crate) fn big(x: f64) -> Big {
    Big::try_from(x)
        .expect("a finite number")
        .with_precision(PRECISION_BITS)
        .value()
}

/// Equal bits, or both NaN: payloads are not part of the contract.
pub(crate) fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "rounds to f32 on purpose, to nearest"
)]
pub(crate) fn to_f32(value: f64) -> f32 {
    value as f32
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "an integer below 2^15 in magnitude"
)]
fn to_i32(value: f64) -> i32 {
    value as i32
}
