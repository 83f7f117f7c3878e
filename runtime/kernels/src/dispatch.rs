//! The table of kernels and the choice of an instruction set.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::arch;
use crate::generic;
use crate::generic::bf16_x3::Bf16X3;
use crate::generic::kda::KdaStep;
use crate::generic::mxfp4_prepared::Mxfp4Group;

/// An instruction set that a [`KernelSet`] is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// The definitions themselves, for every target.
    Scalar,
    /// x86-64 with AVX2 and FMA (and BMI1 and POPCNT, which came with them).
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, besides AVX2 and FMA.
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first, whether or not it is available.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The name used on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Whether this processor, under this operating system, runs the set.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => arch::has_avx2(),
            Self::Avx512 => arch::has_avx512(),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not the name of an [`Isa`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set {text:?}: expected scalar, avx2 or avx512")]
pub struct ParseIsaError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Isa {
    type Err = ParseIsaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.name() == text)
            .ok_or_else(|| ParseIsaError {
                text: text.to_owned(),
            })
    }
}

/// The kernels of one instruction set.
///
/// All sets compute the same bits (any NaN equals any NaN). Every kernel panics
/// when the lengths of its slices disagree, and does nothing else on error:
/// non-finite values propagate. "Matmul order" is: 16 f64 lanes, lane `l` takes
/// the elements with `i mod 16 = l` of the full 16-blocks in ascending order;
/// `b_j = (a[j] + a[j+4]) + (a[j+8] + a[j+12])`; `(b0 + b1) + (b2 + b3)`; the
/// remainder added to that sum serially; one rounding to f32.
#[derive(Debug, Clone, Copy)]
#[allow(
    clippy::type_complexity,
    reason = "each signature is written out once, here, where it is documented"
)]
pub struct KernelSet {
    /// The instruction set of this table.
    pub isa: Isa,
    /// `weights: [rows][cols]` bf16, `x: [positions][cols]`, positions,
    /// `out: [rows][positions]`; matmul order.
    pub matmul_bf16: fn(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]),
    /// As `matmul_bf16` with f32 weights.
    pub matmul_f32: fn(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]),
    /// `packed: [rows][cols / 2]` (low nibble = even column), `scales: [rows]
    /// [cols / 32]`, `x: [positions][cols]`, positions, `out:
    /// [rows][positions]`. Per group of 32: 8 f64 lanes, lane = i mod 8, `s_j =
    /// lane[j] + lane[j+4]`, `sub = (s0 + s1) + (s2 + s3)`, `acc += sub *
    /// 2^(scale - 127)`, groups ascending. Returns the number of groups skipped
    /// because their scale is NaN (255), once per row whatever the positions.
    pub matmul_mxfp4:
        fn(packed: &[u8], scales: &[u8], x: &[f32], positions: usize, out: &mut [f32]) -> u64,
    /// Prepares `x: [groups][32]` for `matmul_mxfp4_prepared`: the same bytes in
    /// every set.
    pub mxfp4_prepare: fn(x: &[f32], prepared: &mut [Mxfp4Group]),
    /// As `matmul_mxfp4` for the positions `chosen` of `x: [any][cols]`, which
    /// `prepared: [any][cols / 32]` holds as `mxfp4_prepare` wrote it; `out:
    /// [rows][chosen]`, the same bits as `matmul_mxfp4`.
    pub matmul_mxfp4_prepared: fn(
        packed: &[u8],
        scales: &[u8],
        x: &[f32],
        prepared: &[Mxfp4Group],
        chosen: &[usize],
        out: &mut [f32],
    ) -> u64,
    /// `weights: [n][cols]` bf16, `x: [n]`, `out: [cols]`: `out[j]` = sum over i
    /// of `x[i] * weights[i][j]`, matmul order over i; one position.
    pub columns_bf16: fn(weights: &[u8], x: &[f32], out: &mut [f32]),
    /// `weights: [rows][cols]` bf16, `x: [positions][cols]`, positions, `out:
    /// [rows][positions]`; one serial f64 accumulator, i ascending, no lanes.
    pub router_bf16: fn(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]),
    /// As `matmul_bf16` over the rows `rows` of packed weights: `x:
    /// [positions][cols]`, `out: [rows.len()][positions]`. The same bits.
    pub matmul_bf16_x3:
        fn(weights: Bf16X3<'_>, rows: Range<usize>, x: &[f32], positions: usize, out: &mut [f32]),
    /// As `router_bf16` over the rows `rows` of packed weights.
    pub router_bf16_x3:
        fn(weights: Bf16X3<'_>, rows: Range<usize>, x: &[f32], positions: usize, out: &mut [f32]),
    /// Writes the rows `rows` of packed weights to `out: [rows.len()][cols]` bf16.
    pub decode_bf16_x3: fn(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]),
    /// As `router_bf16` with f32 weights.
    pub router_f32: fn(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]),
    /// `x`, `weight`, eps, `out`, all `[n]`: sum of squares in one serial f64
    /// accumulator, `inv = f32(1 / sqrt(ss / n + f64(eps)))`, `out = (weight *
    /// x) * inv` in f32.
    pub rmsnorm: fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
    /// `v: [n]` in place: sum of squares as in `rmsnorm`, `inv = f32(1 / sqrt(ss
    /// + f64(1e-6f32)))`, `v *= inv`.
    pub l2norm: fn(v: &mut [f32]),
    /// In place, `1 / (1 + exp(-x))` in f32.
    pub sigmoid: fn(x: &mut [f32]),
    /// In place, correctly rounded.
    pub exp: fn(x: &mut [f32]),
    /// In place, correctly rounded.
    pub tanh: fn(x: &mut [f32]),
    /// `gate`, `up`, beta, linear beta, `out`: `(beta * tanh(gate / beta)) *
    /// sigmoid(gate) * (linear_beta * tanh(up / linear_beta))` in f32, left to
    /// right.
    pub situ_glu: fn(gate: &[f32], up: &[f32], beta: f32, linear_beta: f32, out: &mut [f32]),
    /// `values *= sigmoid(gate)` in f32.
    pub gate_sigmoid: fn(values: &mut [f32], gate: &[f32]),
    /// `taps: [channels][k]`, `history: [k - 1][channels]` oldest first (updated:
    /// the oldest row leaves, `current` enters), `current` and `out:
    /// [channels]`. `acc = taps[k-1] * current`, then oldest to newest `acc +=
    /// taps[j] * history[j]`, f32, multiply then add; `out = acc * sigmoid(acc)`.
    pub shortconv: fn(taps: &[f32], history: &mut [f32], current: &[f32], out: &mut [f32]),
    /// One head: `z`, `dt_bias`, `a = exp(A_log)`, lower bound, `alpha`:
    /// `alpha = exp(lower_bound * sigmoid(a * (z + dt_bias)))` in f32.
    pub kda_decay: fn(z: &[f32], dt_bias: &[f32], a: f32, lower_bound: f32, alpha: &mut [f32]),
    /// One head, one position of the gated delta rule; see [`KdaStep`]. f32,
    /// i ascending for every j, multiply then add; `k[i] == 0` skips i in the
    /// prediction and the update, `q[i] == 0` in the readout.
    pub kda_step: fn(KdaStep<'_>),
    /// In place: `e = exp(s - max)` in f32, `z` = f64 serial sum of e, `p =
    /// f32(f64(e) / z)`.
    pub softmax: fn(scores: &mut [f32]),
    /// `sources: [count][n]` (at most [`crate::MAX_SOURCES`]), `fold: [n]`, eps,
    /// `out: [n]`. Per source: serial f64 sum of squares, `inv` as in `rmsnorm`,
    /// score = f32 of the serial f64 sum of `f32(v * inv) * fold`; softmax over
    /// the sources; `out += p * v` in f32, sources ascending, with the raw v.
    pub attn_res: fn(sources: &[&[f32]], fold: &[f32], eps: f32, out: &mut [f32]),
    /// Latent form, one head: `qa: [latent]`, `q_rope: [rope]`, `cache:
    /// [positions][latent + rope]`, scale, `scores: [positions]`. Matmul order
    /// over the latent, then the rope products added serially; f32; times scale
    /// in f32.
    pub mla_scores_latent:
        fn(qa: &[f32], q_rope: &[f32], cache: &[f32], scale: f32, scores: &mut [f32]),
    /// `weights: [positions]`, `cache: [positions][stride]`, stride, `sums` and
    /// `out: [latent]`: `sums[j] += weights[s] * cache[s][j]` in f64, serially, s
    /// ascending, then `out[j]` = f32 of `sums[j]`. A past in several parts takes a
    /// call for each, in order, over `sums` that start at zero: the same bits.
    pub mla_mix_latent:
        fn(weights: &[f32], cache: &[f32], stride: usize, sums: &mut [f64], out: &mut [f32]),
    /// Expanded form, one head: `q_nope: [nope]`, `q_rope: [rope]`, `keys:
    /// [positions][nope]`, `ropes: [positions][rope]`, scale, `scores:
    /// [positions]`. One serial f64 accumulator over nope then rope; f32; times
    /// scale in f32.
    pub mla_scores_expanded: fn(
        q_nope: &[f32],
        q_rope: &[f32],
        keys: &[f32],
        ropes: &[f32],
        scale: f32,
        scores: &mut [f32],
    ),
    /// `weights: [positions]`, `values: [positions][v]`, `out: [v]`: `out +=
    /// weights[s] * values[s]` in f32, s ascending. `out` starts at zero, and goes
    /// on where a past has several parts.
    pub mla_mix_expanded: fn(weights: &[f32], values: &[f32], out: &mut [f32]),
    /// `acc += x` in f32.
    pub add: fn(acc: &mut [f32], x: &[f32]),
    /// `acc += weight * x` in f32, multiply then add.
    pub add_scaled: fn(acc: &mut [f32], weight: f32, x: &[f32]),
    /// `out *= x` in f32.
    pub multiply: fn(out: &mut [f32], x: &[f32]),
    /// `bytes: [n]` bf16, `out: [n]`: exact, by a 16-bit shift.
    pub widen_bf16: fn(bytes: &[u8], out: &mut [f32]),
    /// Wrapping sums of the little-endian 64-bit words of `bytes` by their index
    /// modulo 8, the last word padded with zero bytes. No part of a model: it
    /// reads as fast as the instruction set can, which bounds what reads weights.
    pub read_sums: fn(bytes: &[u8]) -> [u64; 8],
}

/// The definitions.
static SCALAR: KernelSet = KernelSet {
    isa: Isa::Scalar,
    matmul_bf16: generic::matmul::matmul_bf16,
    matmul_f32: generic::matmul::matmul_f32,
    matmul_mxfp4: generic::mxfp4::matmul_mxfp4,
    mxfp4_prepare: generic::mxfp4_prepared::mxfp4_prepare,
    matmul_mxfp4_prepared: generic::mxfp4::matmul_mxfp4_prepared,
    columns_bf16: generic::matmul::columns_bf16,
    router_bf16: generic::router::router_bf16,
    matmul_bf16_x3: generic::bf16_x3::matmul_bf16_x3,
    router_bf16_x3: generic::bf16_x3::router_bf16_x3,
    decode_bf16_x3: generic::bf16_x3::decode_bf16_x3,
    router_f32: generic::router::router_f32,
    rmsnorm: generic::norm::rmsnorm,
    l2norm: generic::norm::l2norm,
    sigmoid: generic::elementwise::sigmoid,
    exp: generic::elementwise::exp,
    tanh: generic::elementwise::tanh,
    situ_glu: generic::elementwise::situ_glu,
    gate_sigmoid: generic::elementwise::gate_sigmoid,
    shortconv: generic::elementwise::shortconv,
    kda_decay: generic::elementwise::kda_decay,
    kda_step: generic::kda::kda_step,
    softmax: generic::elementwise::softmax,
    attn_res: generic::attn_res::attn_res,
    mla_scores_latent: generic::mla::mla_scores_latent,
    mla_mix_latent: generic::mla::mla_mix_latent,
    mla_scores_expanded: generic::mla::mla_scores_expanded,
    mla_mix_expanded: generic::mla::mla_mix_expanded,
    add: generic::vector::add,
    add_scaled: generic::vector::add_scaled,
    multiply: generic::vector::multiply,
    widen_bf16: generic::vector::widen_bf16,
    read_sums: generic::stream::read_sums,
};

impl KernelSet {
    /// The kernels of `isa`, or `None` where the processor or the target lacks
    /// it.
    #[must_use]
    pub fn for_isa(isa: Isa) -> Option<&'static Self> {
        if !isa.is_available() {
            return None;
        }
        match isa {
            Isa::Scalar => Some(&SCALAR),
            Isa::Avx2 => arch::avx2(),
            Isa::Avx512 => arch::avx512(),
        }
    }

    /// The kernels of the best available instruction set, chosen once.
    #[must_use]
    pub fn detect() -> &'static Self {
        static DETECTED: OnceLock<&'static KernelSet> = OnceLock::new();
        DETECTED.get_or_init(|| {
            Isa::ALL
                .into_iter()
                .rev()
                .find_map(Self::for_isa)
                .unwrap_or(&SCALAR)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Isa, KernelSet};

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        let error = "sse2".parse::<Isa>().unwrap_err();
        assert!(error.to_string().contains("\"sse2\""));
    }

    #[test]
    fn a_table_exists_exactly_where_its_instruction_set_does() {
        for isa in Isa::ALL {
            let set = KernelSet::for_isa(isa);
            assert_eq!(set.is_some(), isa.is_available());
            assert_eq!(set.map_or(isa, |set| set.isa), isa);
        }
    }

    #[test]
    fn detection_picks_the_best_available_set() {
        let best = Isa::ALL.into_iter().filter(|isa| isa.is_available()).max();
        assert_eq!(Some(KernelSet::detect().isa), best);
    }
}
