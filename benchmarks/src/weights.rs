//! Seeded weights in memory, more of them than any cache holds.
//!
//! One reservation holds matrices of one kind at a time. Calls take the next
//! bytes, around and around, whichever measure they belong to: by the time a
//! byte comes again, all others have been read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k3_formats::Dtype;
use k3_formats::synth::{SynthValues, TensorLayout, TensorRole};
use k3_io::{HugeArena, PagePolicy, SlotArena, WriteLease};
use k3_runtime::Cancel;

use crate::MeasureError;

/// Columns of the bf16 matrices: the width of a released hidden state.
pub const BF16_COLUMNS: usize = 7168;
/// Rows of the bf16 matrices: a released query projection's.
pub const BF16_ROWS: usize = 12_288;
/// Rows that one call of a bf16 product takes, about a block of a run.
pub const BF16_CALL_ROWS: usize = 256;
/// Columns of the MXFP4 matrices: the input of a released expert.
pub const MXFP4_COLUMNS: usize = 3584;
/// Rows of the MXFP4 matrices: a released expert's first matrix.
pub const MXFP4_ROWS: usize = 3072;
/// Rows that one call of an MXFP4 product takes.
pub const MXFP4_CALL_ROWS: usize = 768;

/// Bytes of one bf16 matrix.
pub const BF16_BYTES: usize = BF16_ROWS * BF16_COLUMNS * 2;
const PACKED_BYTES: usize = MXFP4_ROWS * MXFP4_COLUMNS / 2;
const SCALE_BYTES: usize = MXFP4_ROWS * MXFP4_COLUMNS / 32;
/// Bytes of one MXFP4 matrix: packed values, then scales.
pub const MXFP4_BYTES: usize = PACKED_BYTES + SCALE_BYTES;

/// Least bytes of weights: one call of any kernel.
pub const WEIGHTS_MIN_BYTES: usize = 16 << 20;

const SEED: u64 = 20_261_130;

/// What the weights are at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightKind {
    /// bf16 rows of [`BF16_COLUMNS`] values.
    Bf16,
    /// MXFP4 matrices, each its packed values and then its scales.
    Mxfp4,
}

/// Rows of an MXFP4 matrix.
#[derive(Debug, Clone, Copy)]
pub struct Mxfp4Rows<'w> {
    /// `[rows][cols / 2]`.
    pub packed: &'w [u8],
    /// `[rows][cols / 32]`.
    pub scales: &'w [u8],
}

/// Weights that are taken in turn.
#[derive(Debug)]
pub struct Weights {
    bytes: WriteLease,
    arena: Arc<HugeArena>,
    /// Next byte.
    next: AtomicUsize,
}

impl Weights {
    /// Reserves `bytes`, rounded up to whole pages, without filling them.
    ///
    /// # Errors
    ///
    /// Too few, or memory that cannot be had.
    pub fn reserve(bytes: usize) -> Result<Self, MeasureError> {
        if bytes < WEIGHTS_MIN_BYTES {
            return Err(MeasureError::TooFewWeights {
                bytes,
                least: WEIGHTS_MIN_BYTES,
            });
        }
        let (arena, report) = HugeArena::reserve(bytes, PagePolicy::Transparent)?;
        let slots = SlotArena::new(&arena, 0..report.bytes, report.bytes)?;
        Ok(Self {
            bytes: slots.acquire_any().expect("a fresh slot"),
            arena,
            next: AtomicUsize::new(0),
        })
    }

    /// Bytes of the reservation.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of it in 2 MiB pages, as the kernel tells.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        self.arena.resident().ok().map(|pages| pages.huge_bytes)
    }

    /// Fills all of it with weights of one kind, with the statistics of a
    /// synthetic checkpoint, by `threads` threads. Ends early, with weights that
    /// may be anything, when a stop is asked for.
    pub fn fill(&mut self, kind: WeightKind, threads: usize, cancel: &Cancel) {
        let values = SynthValues::new(SEED);
        let piece_bytes = match kind {
            WeightKind::Bf16 => BF16_COLUMNS * 2 * 256,
            WeightKind::Mxfp4 => MXFP4_BYTES,
        };
        let pieces = self.bytes.chunks_mut(piece_bytes).enumerate();
        let pieces = Mutex::new(pieces);
        let next = || {
            let mut pieces = pieces.lock().expect("no filler panics");
            pieces.next().filter(|_| !cancel.is_requested())
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((index, piece)) = next() {
                        match kind {
                            WeightKind::Bf16 => fill_bf16(&values, index, piece),
                            WeightKind::Mxfp4 => fill_mxfp4(&values, index, piece),
                        }
                    }
                });
            }
        });
        self.next = AtomicUsize::new(0);
    }

    /// The next `bytes` in one piece.
    ///
    /// # Panics
    ///
    /// When there are not as many.
    #[must_use]
    pub fn take(&self, bytes: usize) -> &[u8] {
        let len = self.bytes.len();
        assert!(bytes <= len, "{bytes} bytes at once of {len}");
        let start = self.advance(|next| if next + bytes > len { 0 } else { next }, bytes);
        &self.bytes[start..][..bytes]
    }

    /// Moves on to `start(next) + bytes` and returns that start.
    fn advance(&self, start: impl Fn(usize) -> usize, bytes: usize) -> usize {
        let order = Ordering::Relaxed;
        let moved = self
            .next
            .fetch_update(order, order, |next| Some(start(next) + bytes));
        start(moved.expect("always moved"))
    }

    /// The next [`MXFP4_CALL_ROWS`] rows.
    #[must_use]
    pub fn take_mxfp4(&self) -> Mxfp4Rows<'_> {
        const CALLS: usize = MXFP4_ROWS / MXFP4_CALL_ROWS;
        const CALL_BYTES: usize = MXFP4_BYTES / CALLS;
        let calls = self.bytes.len() / MXFP4_BYTES * CALLS;
        let first = |next: usize| next.div_ceil(CALL_BYTES) % calls * CALL_BYTES;
        let call = self.advance(first, CALL_BYTES) / CALL_BYTES;
        let (matrix, part) = (call / CALLS, call % CALLS);
        let matrix = &self.bytes[matrix * MXFP4_BYTES..][..MXFP4_BYTES];
        let (packed, scales) = matrix.split_at(PACKED_BYTES);
        let (packed_bytes, scale_bytes) = (PACKED_BYTES / CALLS, SCALE_BYTES / CALLS);
        Mxfp4Rows {
            packed: &packed[part * packed_bytes..][..packed_bytes],
            scales: &scales[part * scale_bytes..][..scale_bytes],
        }
    }
}

fn tensor(name: String, dtype: Dtype, shape: [usize; 2], role: TensorRole) -> TensorLayout {
    TensorLayout {
        name,
        dtype,
        shape: shape.map(|side| side as u64).to_vec(),
        role,
    }
}

/// Rows of bf16; the last piece may end within a row.
fn fill_bf16(values: &SynthValues, index: usize, piece: &mut [u8]) {
    let rows = piece.len().div_ceil(BF16_COLUMNS * 2);
    let name = format!("bench.{index}.weight");
    let shape = [rows, BF16_COLUMNS];
    values.fill(
        &tensor(name, Dtype::Bf16, shape, TensorRole::Matrix),
        0,
        piece,
    );
}

/// One matrix; what is left at the end of the memory is no whole one and never
/// taken.
fn fill_mxfp4(values: &SynthValues, index: usize, piece: &mut [u8]) {
    if piece.len() < MXFP4_BYTES {
        return;
    }
    let (packed, scales) = piece.split_at_mut(PACKED_BYTES);
    let name = format!("bench.{index}.weight_packed");
    let shape = [MXFP4_ROWS, MXFP4_COLUMNS / 2];
    let role = TensorRole::ExpertPacked;
    values.fill(&tensor(name, Dtype::U8, shape, role), 0, packed);
    let name = format!("bench.{index}.weight_scale");
    let shape = [MXFP4_ROWS, MXFP4_COLUMNS / 32];
    let role = TensorRole::ExpertScale;
    values.fill(&tensor(name, Dtype::U8, shape, role), 0, scales);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kind: WeightKind, threads: usize) -> Weights {
        let mut weights = Weights::reserve(WEIGHTS_MIN_BYTES).unwrap();
        weights.fill(kind, threads, &Cancel::default());
        weights
    }

    #[test]
    fn fillings_depend_on_nothing_but_their_kind() {
        for kind in [WeightKind::Bf16, WeightKind::Mxfp4] {
            let (one, two) = (filled(kind, 1), filled(kind, 2));
            assert!(one.bytes[..] == two.bytes[..]);
        }
    }

    #[test]
    fn bf16_weights_are_finite_and_vary() {
        let weights = filled(WeightKind::Bf16, 2);
        let values = weights.bytes.as_chunks::<2>().0;
        let mut large = 0;
        for &bytes in values {
            let value = f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
            assert!(value.abs() < 1.0, "{value}");
            large += usize::from(value.abs() > 1.0 / 85.0);
        }
        // A third of normal values is beyond their deviation.
        assert!(large > values.len() / 5 && large < values.len() / 2);
    }

    #[test]
    fn takes_go_around_and_cover_everything_before_they_repeat() {
        let weights = filled(WeightKind::Bf16, 1);
        let bytes = 3 << 20;
        let starts: Vec<usize> = (0..10)
            .map(|_| weights.take(bytes).as_ptr().addr() - weights.bytes.as_ptr().addr())
            .collect();
        let lots = weights.len_bytes() / bytes;
        let expected: Vec<usize> = (0..10).map(|take| take % lots * bytes).collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn mxfp4_rows_stand_beside_their_own_scales() {
        let weights = filled(WeightKind::Mxfp4, 1);
        let start = weights.bytes.as_ptr().addr();
        for call in 0..10 {
            let rows = weights.take_mxfp4();
            assert_eq!(rows.packed.len(), MXFP4_CALL_ROWS * MXFP4_COLUMNS / 2);
            assert_eq!(rows.scales.len(), MXFP4_CALL_ROWS * MXFP4_COLUMNS / 32);
            let (matrix, part) = (call / 4 % 2, call % 4);
            let packed = matrix * MXFP4_BYTES + part * rows.packed.len();
            let scales = matrix * MXFP4_BYTES + PACKED_BYTES + part * rows.scales.len();
            assert_eq!(rows.packed.as_ptr().addr() - start, packed);
            assert_eq!(rows.scales.as_ptr().addr() - start, scales);
            assert!(rows.scales.iter().all(|&scale| scale != 255));
        }
    }

    #[test]
    fn too_few_weights_are_refused() {
        let error = Weights::reserve(WEIGHTS_MIN_BYTES - 1).unwrap_err();
        assert!(error.to_string().contains("16777216"), "{error}");
    }
}
