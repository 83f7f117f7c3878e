//! `exp` and `tanh` against what they must return, and the error of `ln64`.
//!
//! The fast tier: a sweep of the input space, the neighbourhoods of every place where the
//! evaluation changes, and the hardest inputs there are. `math_exhaustive.rs` runs them all.

#![allow(clippy::print_stdout, reason = "the measured error goes into the docs")]

mod gates;
#[path = "math_hard_cases/mod.rs"]
mod hard_cases;
#[path = "math_oracle/mod.rs"]
mod oracle;

use k3_kernels::math;
use oracle::{Decision, Function, Oracle, big, exact, exact_ln, same};

/// One input in this many: a prime, so that every low bit pattern occurs.
const STRIDE: usize = 4_099;
/// The bound that `ln64` promises.
const LN64_BOUND_ULP: f64 = 0.52;

fn under_test(function: Function) -> fn(f32) -> f32 {
    match function {
        Function::Exp => math::exp,
        Function::Tanh => math::tanh,
    }
}

fn check(oracle: &Oracle, function: Function, bits: u32) -> Decision {
    let x = f32::from_bits(bits);
    let (expected, decision) = oracle.expected(function, x);
    let got = under_test(function)(x);
    assert!(
        same(got, expected),
        "{function:?}({x:e} = {bits:#010x}) is {got:e}, must be {expected:e}"
    );
    decision
}

/// Bit patterns around each place where something changes, both signs: the special values, the
/// first results that differ from 1 or x, saturation, and every change of the table index.
fn neighbourhoods() -> impl Iterator<Item = u32> {
    let places = [
        0.0,
        f32::from_bits(0x007f_ffff),
        2.0f32.powi(-25),
        2.0f32.powi(-24),
        2.0f32.powi(-12),
        2.0f32.powi(-11),
        0.5,
        1.0,
        9.010_914,
        10.0,
        87.336_54,
        88.722_84,
        89.0,
        103.972_08,
        104.0,
        f32::MAX,
        f32::INFINITY,
        f32::from_bits(0x7fff_fff0),
    ];
    let wide = places.into_iter().map(|place| (place, 64));
    let steps = (0..4_900_u16).map(|k| {
        let boundary = (f32::from(k) + 0.5) * (std::f32::consts::LN_2 / 32.0);
        (boundary, 3)
    });
    wide.chain(steps).flat_map(|(place, radius)| {
        let bits = place.to_bits();
        (bits.saturating_sub(radius)..=bits.saturating_add(radius).min(0x7fff_ffff))
            .flat_map(|bits| [bits, bits | 0x8000_0000])
    })
}

fn check_sweep(function: Function) {
    let oracle = Oracle::new();
    let mut estimated = 0_u32;
    for bits in (0..=u32::MAX).step_by(STRIDE).chain(neighbourhoods()) {
        if check(&oracle, function, bits) == Decision::Estimate {
            estimated += 1;
        }
    }
    assert!(estimated > 400_000, "only {estimated} inputs were computed");
}

#[test]
fn exp_is_correctly_rounded_on_a_sweep() {
    check_sweep(Function::Exp);
}

#[test]
fn tanh_is_correctly_rounded_on_a_sweep() {
    check_sweep(Function::Tanh);
}

fn hard_cases() -> impl Iterator<Item = (Function, f32, f32)> {
    let list = |function, cases: &'static [(u32, u32)]| {
        cases
            .iter()
            .map(move |&(input, result)| (function, f32::from_bits(input), f32::from_bits(result)))
    };
    list(Function::Exp, hard_cases::EXP).chain(list(Function::Tanh, hard_cases::TANH))
}

#[test]
fn hard_cases_are_correctly_rounded() {
    let oracle = Oracle::new();
    for (function, x, expected) in hard_cases() {
        let got = under_test(function)(x);
        assert_eq!(got.to_bits(), expected.to_bits(), "{function:?}({x:e})");
        // The list comes from decimal arithmetic in Python: it checks the oracle as well.
        let (oracle, decision) = oracle.expected(function, x);
        assert_eq!(oracle.to_bits(), expected.to_bits(), "{function:?}({x:e})");
        assert_eq!(decision, Decision::Exact);
    }
}

/// What the hard cases are for: an evaluation with a relative error of 2^-46 gets every one
/// of them wrong in one direction.
#[test]
fn hard_cases_refuse_a_less_accurate_evaluation() {
    let oracle = Oracle::new();
    for (function, x, expected) in hard_cases() {
        let estimate = oracle.estimate(function, f64::from(x));
        let error = 2.0f64.powi(-46);
        let wrong = [1.0 - error, 1.0 + error]
            .map(|factor| oracle::to_f32(estimate * factor).to_bits())
            .into_iter()
            .any(|bits| bits != expected.abs().to_bits());
        assert!(wrong, "{function:?}({x:e}) is not hard");
    }
}

/// The bound that lets the oracle decide by its f64 estimates, measured.
#[test]
fn oracle_estimates_keep_their_bound() {
    let oracle = Oracle::new();
    let mut random = Random(1);
    for function in [Function::Exp, Function::Tanh] {
        let range = match function {
            Function::Exp => -104.0..89.0,
            Function::Tanh => -9.1..9.1,
        };
        let mut worst = 0.0_f64;
        for n in 0..3_000_i32 {
            // Half of them uniform in the exponent, half in the value.
            let unit = random.unit();
            let mut x = range.start + unit * (range.end - range.start);
            if n % 2 == 0 {
                x = x.signum() * (0.5 + unit) * 2.0f64.powi(-(n % 30));
            }
            let x = f64::from(oracle::to_f32(x));
            let truth = exact(function, x);
            let difference = big(oracle.estimate(function, x)) - &truth;
            worst = worst.max((difference / truth).to_f64().value().abs());
        }
        assert!(worst < 2.0f64.powi(-50), "{function:?}: {worst:e}");
        assert!(worst > 2.0f64.powi(-54), "{function:?} measured nothing");
    }
}

/// The error of `ln64(x)` in units of the last place of the true value.
fn ln64_error_ulp(x: f64) -> f64 {
    let got = math::ln64(x);
    if x == 1.0 {
        return if got == 0.0 { 0.0 } else { f64::INFINITY };
    }
    let truth = exact_ln(x);
    let magnitude = truth.to_f64().value().abs();
    let difference = (big(got) - truth).to_f64().value().abs();
    difference / (magnitude.next_up() - magnitude)
}

#[test]
fn ln64_keeps_its_bound() {
    let random_count = if gates::slow() { 200_000 } else { 8_000 };
    let mut random = Random(2);
    let mut inputs = Vec::new();
    for n in 0..random_count {
        // Every exponent, subnormals included; then the neighbourhood of 1.
        inputs.push(f64::from_bits(random.next() % 0x7ff0_0000_0000_0000).max(5e-324));
        let distance = (random.unit() - 0.5) * 2.0f64.powi(-(n % 54));
        inputs.push(1.0 + distance);
        // Where the table's part is smallest, and with it the last place.
        inputs.push(1.0 + (random.unit() - 0.5) / 16.0);
    }
    // The first and last number of each table interval, in three binades.
    for interval in 0..128_u64 {
        for exponent in [0x3fd_u64, 0x3fe, 0x3ff] {
            let start = (exponent << 52) + (interval << 45);
            inputs.extend((start - 2..start + 2).map(f64::from_bits));
        }
    }
    // Every power of two and its neighbours; the smallest and the largest numbers.
    inputs.extend((1..2047_u64).flat_map(|e| [(e << 52) - 1, e << 52].map(f64::from_bits)));
    inputs.extend((0..52).map(|shift| f64::from_bits(1 << shift)));
    inputs.extend([f64::MAX, f64::MIN_POSITIVE, f64::from_bits(3)]);

    let count = inputs.len();
    let (worst, at) = inputs
        .into_iter()
        .map(|x| (ln64_error_ulp(x), x))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("inputs");
    println!("ln64: {count} inputs, at most {worst:.4} ulp, at {at:e}");
    assert!(worst <= LN64_BOUND_ULP, "{worst} ulp at {at:e}");
    assert!(worst > 0.49, "{worst} ulp: the error was not measured");
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
