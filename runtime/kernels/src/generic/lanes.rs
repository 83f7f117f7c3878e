//! The two accumulation orders of dot products, each written once.

/// f64 lanes of a matrix-row dot product: lane `l` takes the elements with
/// `i mod 16 = l`.
pub(crate) const LANES: usize = 16;

/// Reduction of the 16 lanes: `b_j = (a[j] + a[j+4]) + (a[j+8] + a[j+12])` for
/// `j = 0..4`, then `(b0 + b1) + (b2 + b3)`.
#[inline(always)]
pub(crate) fn tree16(a: &[f64; LANES]) -> f64 {
    let b = |j: usize| (a[j] + a[j + 4]) + (a[j + 8] + a[j + 12]);
    (b(0) + b(1)) + (b(2) + b(3))
}

/// Reduction of the 8 lanes of one MXFP4 group: `s_j = a[j] + a[j+4]` for
/// `j = 0..4`, then `(s0 + s1) + (s2 + s3)`.
#[inline(always)]
pub(crate) fn tree8(a: &[f64; 8]) -> f64 {
    let s = |j: usize| a[j] + a[j + 4];
    (s(0) + s(1)) + (s(2) + s(3))
}

/// "Matmul order": the sum of `product(i)` for `i` in `0..len`, asked for in
/// ascending order.
///
/// Full blocks of 16 go to 16 lanes in ascending order, the lanes are reduced
/// by [`tree16`], and the `len mod 16` remaining products are added to that sum
/// one by one. Every accumulator starts at +0.0.
#[inline(always)]
pub(crate) fn dot16(len: usize, mut product: impl FnMut(usize) -> f64) -> f64 {
    let full = len - len % LANES;
    let mut lanes = [0.0_f64; LANES];
    for block in (0..full).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += product(block + lane);
        }
    }
    let mut sum = tree16(&lanes);
    for i in full..len {
        sum += product(i);
    }
    sum
}

/// The sum of `product(i)` for `i` in `0..len`, one by one onto `start`.
#[inline(always)]
pub(crate) fn dot_serial(start: f64, len: usize, mut product: impl FnMut(usize) -> f64) -> f64 {
    let mut sum = start;
    for i in 0..len {
        sum += product(i);
    }
    sum
}

/// Rounds an f64 sum to the f32 a kernel returns (round to nearest, ties to
/// even; overflow gives an infinity). The only place where precision is given
/// up after an f64 accumulation.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the one rounding step the contract asks for"
)]
pub(crate) fn round_f32(sum: f64) -> f32 {
    sum as f32
}
