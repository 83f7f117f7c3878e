//! Seeded weights in memory, more of them than any cache holds.
//!
//! One reservation holds matrices of one kind at a time. Calls take the next
//! bytes, around and around, whichever measure they belong to: by the time a
//! byte comes again, all others have been read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k3_formats::Dtype;
use k3_formats::synth::{SynthValues, TensorLayout, TensorRole};
use k3_formats::trunk::bf16_x3;
use k3_io::{HugeArena, PagePolicy, SlotArena, WriteLease};
use k3_kernels::Bf16X3;
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
/// Bytes of the bf16 rows that one call takes.
const BLOCK_BYTES: usize = BF16_CALL_ROWS * BF16_COLUMNS * 2;
/// Room for the same rows packed: more than the 0.71 that they are, in pages.
const PACKED_PLACE_BYTES: usize = (BLOCK_BYTES / 100 * 74).next_multiple_of(4096);
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
    /// The same bf16 rows, and beside them their `bf16-x3` payloads.
    Bf16X3,
    /// MXFP4 matrices, each its packed values and then its scales.
    Mxfp4,
}

/// Rows that one call of a product takes, as they are and packed.
#[derive(Debug, Clone, Copy)]
pub struct PackedRows<'w> {
    /// `[rows][cols]` bf16.
    pub raw: &'w [u8],
    /// The same weights.
    pub packed: Bf16X3<'w>,
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
    /// Whether all of it are bf16 rows.
    has_bf16: bool,
    packed: Option<PackedBlocks>,
}

/// Payloads of the rows that calls take, each in a place of
/// [`PACKED_PLACE_BYTES`].
#[derive(Debug)]
struct PackedBlocks {
    bytes: WriteLease,
    lens: Vec<usize>,
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
            has_bf16: false,
            packed: None,
        })
    }

    /// Bytes that [`WeightKind::Bf16X3`] takes beside so many.
    #[must_use]
    pub fn packed_bytes(bytes: usize) -> usize {
        bytes / BLOCK_BYTES * PACKED_PLACE_BYTES
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
    ///
    /// # Errors
    ///
    /// Memory for packed rows that cannot be had.
    pub fn fill(
        &mut self,
        kind: WeightKind,
        threads: usize,
        cancel: &Cancel,
    ) -> Result<(), MeasureError> {
        let values = SynthValues::new(SEED);
        if kind == WeightKind::Mxfp4 {
            self.has_bf16 = false;
            let pieces = self.bytes.chunks_mut(MXFP4_BYTES).enumerate();
            each(pieces, threads, cancel, |(index, piece)| {
                fill_mxfp4(&values, index, piece);
            });
        } else if !self.has_bf16 {
            let pieces = self.bytes.chunks_mut(BLOCK_BYTES).enumerate();
            each(pieces, threads, cancel, |(index, piece)| {
                fill_bf16(&values, index, piece);
            });
            self.has_bf16 = true;
        }
        self.next = AtomicUsize::new(0);
        self.packed = None;
        if kind == WeightKind::Bf16X3 {
            self.packed = Some(self.pack(threads, cancel)?);
        }
        Ok(())
    }

    /// Packs the rows of every call.
    fn pack(&self, threads: usize, cancel: &Cancel) -> Result<PackedBlocks, MeasureError> {
        let blocks = self.bytes.as_chunks::<BLOCK_BYTES>().0;
        let (arena, report) = HugeArena::reserve(
            Self::packed_bytes(self.bytes.len()),
            PagePolicy::Transparent,
        )?;
        let slots = SlotArena::new(&arena, 0..report.bytes, report.bytes)?;
        let mut bytes = slots.acquire_any().expect("a fresh slot");
        let mut lens = vec![0; blocks.len()];
        let places = bytes.as_chunks_mut::<PACKED_PLACE_BYTES>().0;
        let pieces = blocks.iter().zip(places).zip(&mut lens);
        each(pieces, threads, cancel, |((raw, place), len)| {
            let mut payload = Vec::new();
            let stored = bf16_x3::encode(raw, BF16_CALL_ROWS, BF16_COLUMNS, &mut payload);
            assert!(stored, "seeded weights are finite and alike");
            *len = payload.len();
            place[..payload.len()].copy_from_slice(&payload);
        });
        Ok(PackedBlocks {
            bytes,
            lens,
            next: AtomicUsize::new(0),
        })
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

    /// The next [`BF16_CALL_ROWS`] packed rows.
    ///
    /// # Panics
    ///
    /// When the weights were last filled with another kind.
    #[must_use]
    pub fn take_packed(&self) -> PackedRows<'_> {
        let packed = self.packed.as_ref().expect("filled with packed rows");
        let block = packed.next.fetch_add(1, Ordering::Relaxed) % packed.lens.len();
        let payload = &packed.bytes[block * PACKED_PLACE_BYTES..][..packed.lens[block]];
        PackedRows {
            raw: &self.bytes[block * BLOCK_BYTES..][..BLOCK_BYTES],
            packed: Bf16X3::new(payload, BF16_CALL_ROWS, BF16_COLUMNS).expect("as it was encoded"),
        }
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

/// Calls `work` for every piece, on `threads` threads, until a stop is asked for.
fn each<T: Send>(
    pieces: impl Iterator<Item = T> + Send,
    threads: usize,
    cancel: &Cancel,
    work: impl Fn(T) + Sync,
) {
    let pieces = Mutex::new(pieces);
    let next = || {
        let mut pieces = pieces.lock().expect("no filler panics");
        pieces.next().filter(|_| !cancel.is_requested())
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(piece) = next() {
                    work(piece);
                }
            });
        }
    });
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
        let filled = weights.fill(kind, threads, &Cancel::default());
        filled.expect("memory for packed rows");
        weights
    }

    #[test]
    fn packed_rows_are_the_rows_beside_them_and_come_in_turn() {
        let weights = filled(WeightKind::Bf16X3, 2);
        let blocks = weights.len_bytes() / BLOCK_BYTES;
        let start = weights.bytes.as_ptr().addr();
        for call in 0..=blocks {
            let PackedRows { raw, packed } = weights.take_packed();
            assert_eq!(raw.as_ptr().addr() - start, call % blocks * BLOCK_BYTES);
            let ratio = packed.payload_bytes() as f64 / raw.len() as f64;
            assert!(ratio <= 0.71, "{ratio}");
            let mut decoded = vec![0; raw.len()];
            let set = k3_kernels::KernelSet::detect();
            (set.decode_bf16_x3)(packed, 0..packed.rows(), &mut decoded);
            assert!(decoded == raw);
        }
    }

    #[test]
    fn fillings_depend_on_nothing_but_their_kind() {
        for kind in [WeightKind::Bf16, WeightKind::Bf16X3, WeightKind::Mxfp4] {
            let (one, two) = (filled(kind, 1), filled(kind, 2));
            assert!(one.bytes[..] == two.bytes[..]);
            let lens = |weights: &Weights| weights.packed.as_ref().map(|p| p.lens.clone());
            assert_eq!(lens(&one), lens(&two));
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
