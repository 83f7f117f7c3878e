//! The bytes of a synthetic checkpoint's tensors, any range of them.

use super::layout::{TensorLayout, TensorRole};
use super::statistics::SCALE_STATISTICS;
use super::tables::{Tables, WINDOW, counter_hash, exp, narrow};
use crate::config::MXFP4_GROUP_COLUMNS;
use crate::dtype::Dtype;

/// Standard deviation of the logarithm of a row's scale.
const ROW_SPREAD: f64 = 0.25;
/// The same for a router: rows that differ more would make some experts a
/// favourite of every token.
const ROUTER_ROW_SPREAD: f64 = 0.1;

/// Packed bytes of one group.
const GROUP_BYTES: usize = MXFP4_GROUP_COLUMNS / 2;
/// Packed bytes of the groups whose scales are drawn together.
const PACKED_BYTES: usize = WINDOW * GROUP_BYTES;

/// The values of all tensors for one seed.
///
/// Matrices are normal with a log-normal scale per row, over the square root of
/// the inputs, so that a normalised input gives an output of its own size and
/// activations stay finite at any depth. Experts have the statistics of
/// [`SCALE_STATISTICS`], which come to nearly the same at the released sizes.
///
/// A value depends on the seed, the tensor's name and its place in the tensor,
/// and on nothing else.
#[derive(Debug)]
pub struct SynthValues {
    seed: u64,
    tables: Tables,
}

/// How the rows of a float tensor are made.
#[derive(Debug, Clone, Copy)]
enum Recipe {
    /// Normal: mean, deviation, and the spread of its logarithm over rows.
    Normal {
        mean: f32,
        deviation: f64,
        row_spread: f64,
    },
    /// Uniform between two bounds; zero from `len` on.
    Uniform { low: f32, high: f32, len: u64 },
}

impl SynthValues {
    /// The values of `seed`. Takes some milliseconds and half a megabyte.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            tables: Tables::new(),
        }
    }

    /// Fills `out` with the bytes of `tensor` from `offset` on.
    ///
    /// # Panics
    ///
    /// When the range leaves the tensor, or its type is not one that the
    /// released layout gives its role.
    pub fn fill(&self, tensor: &TensorLayout, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        assert!(end <= tensor.size_bytes(), "a range of {}", tensor.name);
        let row_bytes = tensor.row_len() * tensor.dtype.size_bytes();
        let key = self.key(&tensor.name);
        let mut rest = out;
        let mut row = offset / row_bytes;
        let mut skip = offset % row_bytes;
        while !rest.is_empty() {
            let left = usize::try_from(row_bytes - skip).unwrap_or(usize::MAX);
            let (part, after) = rest.split_at_mut(left.min(rest.len()));
            let skipped = usize::try_from(skip).expect("rows fit the address space");
            self.fill_row(tensor, counter_hash(key, row), skipped, part);
            (rest, row, skip) = (after, row + 1, 0);
        }
    }

    /// The stream of a tensor. An expert's packed values and their scales share
    /// one, for they belong together.
    fn key(&self, name: &str) -> u64 {
        let stem = name
            .strip_suffix(".weight_packed")
            .or_else(|| name.strip_suffix(".weight_scale"))
            .unwrap_or(name);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(stem.as_bytes());
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk().expect("32 bytes");
        u64::from_le_bytes(*first)
    }

    fn fill_row(&self, tensor: &TensorLayout, key: u64, skip: usize, out: &mut [u8]) {
        match (tensor.role, tensor.dtype) {
            (TensorRole::ExpertPacked, Dtype::U8) => {
                pieces(skip, out, |index| self.packed(key, index));
            }
            (TensorRole::ExpertScale, Dtype::U8) => {
                pieces(skip, out, |index| self.scales(key, index));
            }
            (_, Dtype::Bf16) => {
                let draw = self.drawing(tensor, key);
                pieces(skip, out, |index| bf16_bytes(draw(index)));
            }
            (_, Dtype::F32) => {
                let draw = self.drawing(tensor, key);
                pieces(skip, out, |index| f32_bytes(draw(index)));
            }
            (role, dtype) => panic!("{}: {role:?} is never {dtype}", tensor.name),
        }
    }

    /// Eight groups of packed values.
    #[inline]
    fn packed(&self, key: u64, index: u64) -> [u8; PACKED_BYTES] {
        let scales = self.tables.scales(counter_hash(key, index));
        // A stream beside that of the scales.
        let key = !key;
        let mut bytes = [0; PACKED_BYTES];
        let halves = bytes.chunks_exact_mut(GROUP_BYTES / 2);
        for (half, number) in halves.zip(index * 2 * WINDOW as u64..) {
            let scale = scales[(number / 2 % WINDOW as u64) as usize];
            half.copy_from_slice(&self.tables.nibbles(scale, counter_hash(key, number)));
        }
        bytes
    }

    fn scales(&self, key: u64, index: u64) -> [u8; WINDOW] {
        let scales = self.tables.scales(counter_hash(key, index));
        scales.map(|scale| SCALE_STATISTICS[usize::from(scale)].scale)
    }

    /// What gives the window of a row of floats.
    fn drawing(&self, tensor: &TensorLayout, key: u64) -> impl Fn(u64) -> [f32; WINDOW] {
        let recipe = recipe(tensor);
        let factor = match recipe {
            Recipe::Normal {
                deviation,
                row_spread,
                ..
            } => narrow(deviation * exp(row_spread * f64::from(self.tables.bell(key)[0]))),
            Recipe::Uniform { low, high, .. } => high - low,
        };
        move |index| match recipe {
            Recipe::Normal { mean, .. } => {
                let window = self.tables.bell(counter_hash(!key, index));
                window.map(|value| mean + factor * value)
            }
            Recipe::Uniform { low, len, .. } => std::array::from_fn(|lane| {
                let place = index * WINDOW as u64 + lane as u64;
                let share = unit(counter_hash(!key, place));
                if place < len {
                    low + factor * share
                } else {
                    0.0
                }
            }),
        }
    }
}

fn recipe(tensor: &TensorLayout) -> Recipe {
    let row_len = tensor.row_len();
    let normal = |mean, deviation, row_spread| Recipe::Normal {
        mean,
        deviation,
        row_spread,
    };
    let per_input = 1.0 / (row_len as f64).sqrt();
    match tensor.role {
        TensorRole::Embedding => normal(0.0, 1.0, ROW_SPREAD),
        // Logits spread enough for likely and unlikely tokens.
        TensorRole::Head => normal(0.0, 2.0 * per_input, ROW_SPREAD),
        TensorRole::Router => normal(0.0, per_input, ROUTER_ROW_SPREAD),
        TensorRole::Norm => normal(1.0, 0.1, 0.0),
        // Scores of the size of 1: sources compete.
        TensorRole::ResidualProjection => normal(0.0, 1.5 * per_input, 0.0),
        TensorRole::ConvTaps => normal(0.0, per_input, 0.0),
        TensorRole::RouterBias => normal(0.0, 0.02, 0.0),
        TensorRole::DecayRate { head_count } => Recipe::Uniform {
            low: -1.0,
            high: 1.0,
            len: head_count as u64,
        },
        // Channels that forget within a token to channels that keep hundreds.
        TensorRole::DecayBias => Recipe::Uniform {
            low: -6.0,
            high: 0.0,
            len: row_len,
        },
        TensorRole::Matrix | TensorRole::ExpertPacked | TensorRole::ExpertScale => {
            normal(0.0, per_input, ROW_SPREAD)
        }
    }
}

/// Uniform in [0, 1), in steps of 2^-24.
#[allow(
    clippy::cast_possible_truncation,
    reason = "24 bits are left after the shift"
)]
fn unit(hash: u64) -> f32 {
    (hash >> 40) as u32 as f32 * f32::from_bits(0x3380_0000)
}

/// Fills `out` with what stands from byte `skip` on in a sequence of pieces.
#[inline]
fn pieces<const N: usize>(skip: usize, out: &mut [u8], piece: impl Fn(u64) -> [u8; N]) {
    let mut index = (skip / N) as u64;
    let mut out = out;
    let inside = skip % N;
    if inside > 0 {
        let bytes = piece(index);
        let count = (N - inside).min(out.len());
        let (begin, rest) = out.split_at_mut(count);
        begin.copy_from_slice(&bytes[inside..inside + count]);
        (out, index) = (rest, index + 1);
    }
    let (whole, rest) = out.as_chunks_mut::<N>();
    for chunk in whole {
        *chunk = piece(index);
        index += 1;
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&piece(index)[..rest.len()]);
    }
}

/// Rounded to nearest, ties to even; the values are finite.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper half of a u32 is a u16"
)]
#[inline]
fn bf16_bytes(values: [f32; WINDOW]) -> [u8; 2 * WINDOW] {
    let mut bytes = [0; 2 * WINDOW];
    for (chunk, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        let bits = value.to_bits();
        let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        *chunk = (rounded as u16).to_le_bytes();
    }
    bytes
}

#[inline]
fn f32_bytes(values: [f32; WINDOW]) -> [u8; 4 * WINDOW] {
    let mut bytes = [0; 4 * WINDOW];
    for (chunk, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *chunk = value.to_le_bytes();
    }
    bytes
}
