//! Products with bf16 weights in packed rows: the payload of a `bf16-x3` block.
//!
//! Rotated left by one, a bf16 weight is its exponent in the high byte and
//! mantissa and sign in the low one. A payload keeps the low bytes as they are
//! and the exponents as codes of three bits into a dictionary of the row's seven
//! most frequent ones; code 7 takes the next of the row's escapes.
//! `docs/formats/trunk.md` has every bit.

use std::ops::Range;

use super::lanes::{dot_serial, dot16, round_f32};
use super::shape::MatmulShape;

/// Columns of a group: its codes, then its low bytes.
pub(crate) const GROUP: usize = 64;
/// The code of an escape.
const ESCAPE: u8 = 7;
/// Bytes of a dictionary.
pub(crate) const DICTIONARY_BYTES: usize = 8;
/// Bytes after the escapes, for decoders that read whole vectors.
pub(crate) const TAIL_BYTES: usize = 64;

/// A payload does not fit its shape or itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Bf16X3Error {
    /// The length is not what shape and directory imply.
    #[error(
        "packed weights of {rows} rows of {cols} columns take {expected} bytes, found {found}: \
         the block is damaged or of another shape"
    )]
    Length {
        /// Rows of the block.
        rows: usize,
        /// Columns of the block.
        cols: usize,
        /// Bytes they take, as far as the directory can be read; `usize::MAX`
        /// when that is beyond all memory.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// The directory does not begin with zero, or descends.
    #[error(
        "the escapes of row {row} are said to begin at {start} and to end at {end}: the block is damaged"
    )]
    Directory {
        /// The row.
        row: usize,
        /// Where they begin.
        start: u32,
        /// Where they end.
        end: u32,
    },
}

/// The payload of a `bf16-x3` block, with its shape. What makes reading it safe
/// was checked; a payload that no encoder wrote has weights that are not
/// specified, and no others.
#[derive(Debug, Clone, Copy)]
pub struct Bf16X3<'p> {
    payload: &'p [u8],
    rows: usize,
    cols: usize,
}

/// What a payload holds of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedRow<'p> {
    pub(crate) dictionary: [u8; DICTIONARY_BYTES],
    /// The row's groups and all that follows in the payload: at least
    /// [`TAIL_BYTES`] more than [`Bf16X3::row_bytes`].
    pub(crate) groups: &'p [u8],
    /// The row's escapes and all that follows: at least [`TAIL_BYTES`].
    pub(crate) escapes: &'p [u8],
}

impl<'p> Bf16X3<'p> {
    /// A view of `payload: [rows][cols]`. Takes time for the rows, not for the
    /// columns.
    ///
    /// # Errors
    ///
    /// [`Bf16X3Error`] if the payload has another length than shape and directory
    /// say, or the directory is none.
    pub fn new(payload: &'p [u8], rows: usize, cols: usize) -> Result<Self, Bf16X3Error> {
        let wrong_length = |expected| Bf16X3Error::Length {
            rows,
            cols,
            expected,
            found: payload.len(),
        };
        let escapes = checked_escapes_start(rows, cols)
            .filter(|start| start.checked_add(TAIL_BYTES).is_some())
            .ok_or_else(|| wrong_length(usize::MAX))?;
        if payload.len() < escapes + TAIL_BYTES {
            return Err(wrong_length(escapes + TAIL_BYTES));
        }
        let view = Self {
            payload,
            rows,
            cols,
        };
        let mut start = 0;
        if view.directory(0) != 0 {
            let (start, end) = (view.directory(0), view.directory(rows.min(1)));
            return Err(Bf16X3Error::Directory { row: 0, start, end });
        }
        for row in 0..rows {
            let end = view.directory(row + 1);
            if end < start {
                return Err(Bf16X3Error::Directory { row, start, end });
            }
            start = end;
        }
        let expected = (escapes + TAIL_BYTES).saturating_add(to_usize(start));
        if payload.len() == expected {
            Ok(view)
        } else {
            Err(wrong_length(expected))
        }
    }

    /// Rows of the block.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the block.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Bytes of a row's groups.
    pub(crate) fn row_bytes(&self) -> usize {
        self.cols.div_ceil(8) * 11
    }

    /// Entry `index` of the directory.
    fn directory(&self, index: usize) -> u32 {
        let bytes = self.payload[4 * index..][..4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes"))
    }

    /// # Panics
    ///
    /// If there is no such row.
    pub(crate) fn row(&self, row: usize) -> PackedRow<'p> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let dictionaries = 4 * (self.rows + 1);
        let groups = dictionaries + DICTIONARY_BYTES * self.rows;
        let escapes = groups + self.row_bytes() * self.rows;
        let dictionary = &self.payload[dictionaries + DICTIONARY_BYTES * row..];
        PackedRow {
            dictionary: dictionary[..DICTIONARY_BYTES]
                .try_into()
                .expect("eight bytes"),
            groups: &self.payload[groups + self.row_bytes() * row..],
            escapes: &self.payload[escapes + to_usize(self.directory(row))..],
        }
    }
}

/// Where the escapes begin; `None` beyond all memory.
fn checked_escapes_start(rows: usize, cols: usize) -> Option<usize> {
    let fixed = rows.checked_add(1)?.checked_mul(4)?;
    let dictionaries = rows.checked_mul(DICTIONARY_BYTES)?;
    let row_bytes = cols.div_ceil(8).checked_mul(11)?;
    fixed
        .checked_add(dictionaries)?
        .checked_add(rows.checked_mul(row_bytes)?)
}

fn to_usize(value: u32) -> usize {
    usize::try_from(value).expect("a usize has 32 bits")
}

/// The weights of a row, in order, as bits.
struct Weights<'p> {
    row: PackedRow<'p>,
    cols: usize,
    next: usize,
}

impl<'p> Weights<'p> {
    fn of(weights: Bf16X3<'p>, row: usize) -> Self {
        Self {
            row: weights.row(row),
            cols: weights.cols(),
            next: 0,
        }
    }

    /// The next weight; there must be one.
    fn take(&mut self) -> u16 {
        let (group, j) = (self.next / GROUP, self.next % GROUP);
        self.next += 1;
        let columns = (self.cols - group * GROUP).min(GROUP);
        let bytes = &self.row.groups[group * (GROUP / 8 * 11)..];
        let (codes, low_bytes) = bytes.split_at(columns.div_ceil(8) * 3);
        let (byte, bit) = (3 * j / 8, 3 * j % 8);
        let next_byte = codes.get(byte + 1).copied().unwrap_or(0);
        let pair = u16::from_le_bytes([codes[byte], next_byte]);
        let code = (pair >> bit).to_le_bytes()[0] & ESCAPE;
        let mut exponent = self.row.dictionary[usize::from(code)];
        if code == ESCAPE {
            // A row with more of them than stored repeats the last byte.
            exponent = self.row.escapes[0];
            if self.row.escapes.len() > 1 {
                self.row.escapes = &self.row.escapes[1..];
            }
        }
        u16::from_le_bytes([low_bytes[j], exponent]).rotate_right(1)
    }

    /// The next weight, widened exactly.
    fn take_f64(&mut self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.take()) << 16))
    }
}

/// Checks rows of packed weights against `x: [positions][cols]` and `out:
/// [rows.len()][positions]`.
///
/// # Panics
/// As [`MatmulShape::new`], if the shapes differ, or if there are no such rows.
#[inline]
pub(crate) fn check_product(
    weights: Bf16X3<'_>,
    rows: &Range<usize>,
    x: &[f32],
    positions: usize,
    out: &[f32],
) {
    check_rows(weights, rows);
    let shape = MatmulShape::new(x.len(), positions, out.len());
    let expected = MatmulShape {
        rows: rows.len(),
        cols: weights.cols,
    };
    assert_eq!(shape, expected, "x and out do not match the packed weights");
}

/// Checks rows of packed weights against `out: [rows.len()][cols]` bf16.
///
/// # Panics
/// If the shapes differ or if there are no such rows.
#[inline]
pub(crate) fn check_decode(weights: Bf16X3<'_>, rows: &Range<usize>, out: &[u8]) {
    check_rows(weights, rows);
    let weights = rows.len().checked_mul(weights.cols);
    assert_eq!(
        Some(out.len()),
        weights.and_then(|count| count.checked_mul(2)),
        "out does not match the packed weights"
    );
}

fn check_rows(weights: Bf16X3<'_>, rows: &Range<usize>) {
    assert!(
        rows.start <= rows.end && rows.end <= weights.rows,
        "rows {rows:?} of {}",
        weights.rows
    );
}

/// As `matmul_bf16` over the rows `rows` of packed weights.
///
/// Shapes: `x: [positions][cols]`, `out: [rows.len()][positions]`. Order,
/// exactness and bounds as there: a packed weight is a bf16 weight.
pub(crate) fn matmul_bf16_x3(
    weights: Bf16X3<'_>,
    rows: Range<usize>,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    check_product(weights, &rows, x, positions, out);
    for (row, out) in rows.zip(out.chunks_exact_mut(positions)) {
        for (position, out) in out.iter_mut().enumerate() {
            let x = &x[position * weights.cols..][..weights.cols];
            let mut row = Weights::of(weights, row);
            // The sum takes its products in the order of the columns.
            let sum = dot16(weights.cols, |i| row.take_f64() * f64::from(x[i]));
            *out = round_f32(sum);
        }
    }
}

/// As `router_bf16` over the rows `rows` of packed weights.
///
/// Shapes as [`matmul_bf16_x3`]; order, exactness and bounds as `router_bf16`.
pub(crate) fn router_bf16_x3(
    weights: Bf16X3<'_>,
    rows: Range<usize>,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    check_product(weights, &rows, x, positions, out);
    for (row, out) in rows.zip(out.chunks_exact_mut(positions)) {
        for (position, out) in out.iter_mut().enumerate() {
            let x = &x[position * weights.cols..][..weights.cols];
            let mut row = Weights::of(weights, row);
            let sum = dot_serial(0.0, weights.cols, |i| row.take_f64() * f64::from(x[i]));
            *out = round_f32(sum);
        }
    }
}

/// Writes the rows `rows` of packed weights to `out: [rows.len()][cols]` bf16:
/// exact, whatever the weights.
pub(crate) fn decode_bf16_x3(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]) {
    check_decode(weights, &rows, out);
    // Without columns nothing is written, and there are no pieces of length 0.
    for (row, out) in rows.zip(out.chunks_exact_mut((2 * weights.cols).max(1))) {
        let mut row = Weights::of(weights, row);
        for out in out.as_chunks_mut::<2>().0 {
            *out = row.take().to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row of 1.0, -1.5 and 0.0, as in `docs/formats/trunk.md`.
    fn payload() -> Vec<u8> {
        let mut payload = vec![0; 8];
        payload.extend([0x7F, 0, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF]);
        payload.extend([0x40, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0]);
        payload.extend([0; TAIL_BYTES]);
        payload
    }

    #[test]
    fn the_documented_example_decodes() {
        let payload = payload();
        let weights = Bf16X3::new(&payload, 1, 3).unwrap();
        assert_eq!((weights.rows(), weights.cols()), (1, 3));
        assert_eq!(weights.payload_bytes(), payload.len());
        let mut out = [0; 6];
        decode_bf16_x3(weights, 0..1, &mut out);
        assert_eq!(out, [0x80, 0x3F, 0xC0, 0xBF, 0, 0]);
    }

    #[test]
    fn other_lengths_shapes_and_directories_are_refused() {
        let payload = payload();
        for len in 0..payload.len() {
            let error = Bf16X3::new(&payload[..len], 1, 3).unwrap_err();
            assert!(matches!(error, Bf16X3Error::Length { found, .. } if found == len));
        }
        for (rows, cols) in [
            (0, 3),
            (2, 3),
            (1, 9),
            (1, 0),
            (usize::MAX, 3),
            (1, usize::MAX),
        ] {
            assert!(
                Bf16X3::new(&payload, rows, cols).is_err(),
                "{rows} x {cols}"
            );
        }
        for at in 0..8 {
            let mut changed = payload.clone();
            changed[at] = 1;
            let error = Bf16X3::new(&changed, 1, 3).unwrap_err();
            assert!(!error.to_string().is_empty(), "{at}");
        }
        // Two rows without columns whose directory descends.
        let mut descending = vec![0; 12 + 16 + TAIL_BYTES];
        descending[4] = 1;
        let error = Bf16X3::new(&descending, 2, 0).unwrap_err();
        let expected = Bf16X3Error::Directory {
            row: 1,
            start: 1,
            end: 0,
        };
        assert_eq!(error, expected);
    }
}
