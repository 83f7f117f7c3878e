//! The payload of a `bf16-x3` block: bf16 without loss, in three bits for most
//! exponents.
//!
//! A bf16 weight is a sign, an exponent of eight bits and a mantissa of seven.
//! Signs and mantissas of trained weights do not compress; their exponents lie
//! close together. Each row has a dictionary of its seven most frequent
//! exponents and a code of three bits a weight; the code that is left over means
//! that the exponent is one of the row's *escapes*. Rotated left by one, a
//! weight is its exponent in the high byte and mantissa and sign in the low one,
//! so that a decoder puts two bytes together and rotates back.
//!
//! Areas, back to back:
//!
//! 1. directory: `rows + 1` u32; the escapes of row `r` are the bytes
//!    `directory[r]..directory[r + 1]` of area 4;
//! 2. dictionaries: eight bytes a row, the last of them [`MARKER`];
//! 3. rows: in groups of [`GROUP`] columns, the codes and then the low bytes;
//! 4. the escapes of all rows, and [`TAIL_BYTES`] zero bytes.
//!
//! `docs/formats/trunk.md` has every bit. One matrix has one payload: equal
//! weights give equal bytes.

/// Columns of a group: 24 bytes of codes and 64 low bytes.
pub const GROUP: usize = 64;
/// The code of an escape; smaller ones are places in the row's dictionary.
pub const ESCAPE: u8 = 7;
/// The last byte of a dictionary: the exponent of infinities and NaNs, which no
/// coded weight has.
pub const MARKER: u8 = 0xFF;
/// Zero bytes after the escapes: a decoder may read whole vectors.
pub const TAIL_BYTES: usize = 64;

/// Bytes of a row's dictionary.
const DICTIONARY_BYTES: usize = 8;
/// Exponents in a dictionary.
const ENTRIES: usize = ESCAPE as usize;
/// Blocks lie at multiples of this in a trunk.
const PAGE_BYTES: usize = 4096;

/// What contradicts itself in a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Bf16X3Error {
    /// The payload has another length than its shape and directory imply.
    #[error(
        "a bf16-x3 payload of {rows} rows of {cols} columns with {escape_bytes} bytes of escapes \
         has {expected} bytes, found {found}"
    )]
    Length {
        /// Rows of the block.
        rows: usize,
        /// Columns of the block.
        cols: usize,
        /// Escapes by the directory; 0 where it is not even whole.
        escape_bytes: usize,
        /// Bytes by the shape and the directory; at least as many where the
        /// directory is not whole.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// No memory holds a block of this shape.
    #[error("a block of {rows} rows of {cols} columns is beyond all memory")]
    Shape {
        /// Rows of the block.
        rows: usize,
        /// Columns of the block.
        cols: usize,
    },
    /// The directory does not begin with zero or descends.
    #[error("row {row}: its escapes begin at {start} and end at {end}")]
    Directory {
        /// The row.
        row: usize,
        /// Where they begin by the directory.
        start: u32,
        /// Where they end by the directory.
        end: u32,
    },
    /// A dictionary that no encoder writes, or not for these weights.
    #[error("row {row}: its dictionary is {found:02x?}")]
    Dictionary {
        /// The row.
        row: usize,
        /// The dictionary.
        found: [u8; DICTIONARY_BYTES],
    },
    /// A row has more or fewer escapes than the directory says.
    #[error("row {row}: {found} codes are escapes, but {expected} escapes are stored")]
    EscapeCount {
        /// The row.
        row: usize,
        /// Escapes by the directory.
        expected: usize,
        /// Codes that are escapes.
        found: usize,
    },
    /// An escaped exponent is in the dictionary, or is that of infinities.
    #[error("row {row}, column {col}: exponent {exponent} must not be an escape")]
    Escaped {
        /// The row.
        row: usize,
        /// The column.
        col: usize,
        /// The exponent.
        exponent: u8,
    },
    /// A code stands for an entry of the dictionary that is not used.
    #[error("row {row}, column {col}: code {code} stands for nothing")]
    UnusedCode {
        /// The row.
        row: usize,
        /// The column.
        col: usize,
        /// The code.
        code: u8,
    },
    /// A bit that must be zero is not.
    #[error("byte {offset} is {found:#04x}, which must be zero")]
    Padding {
        /// Where it stands in the payload.
        offset: usize,
        /// What it is.
        found: u8,
    },
}

/// Where the areas of a payload begin.
#[derive(Debug, Clone, Copy)]
struct Layout {
    dictionaries: usize,
    rows: usize,
    /// Bytes of one row in area 3.
    row_bytes: usize,
    escapes: usize,
}

impl Layout {
    /// `None` beyond all memory.
    fn new(rows: usize, cols: usize) -> Option<Self> {
        let dictionaries = rows.checked_add(1)?.checked_mul(4)?;
        let rows_start = dictionaries.checked_add(rows.checked_mul(DICTIONARY_BYTES)?)?;
        let row_bytes = cols.div_ceil(8).checked_mul(11)?;
        let escapes = rows_start.checked_add(rows.checked_mul(row_bytes)?)?;
        // Room for an escape a weight and the tail, so that sums below are safe.
        escapes
            .checked_add(rows.checked_mul(cols)?)?
            .checked_add(TAIL_BYTES)?;
        Some(Self {
            dictionaries,
            rows: rows_start,
            row_bytes,
            escapes,
        })
    }
}

/// Most bytes a payload of this shape can have: every weight an escape. `None`
/// beyond all memory.
#[must_use]
pub fn payload_bytes_max(rows: usize, cols: usize) -> Option<usize> {
    Layout::new(rows, cols).map(|layout| layout.escapes + rows * cols + TAIL_BYTES)
}

/// Encodes `raw: [rows][cols]` bf16, little-endian, into `out`, whose contents
/// are lost. Returns whether a trunk stores the block so: with every weight
/// finite, and in fewer pages of 4096 bytes than `raw` takes. Where not, `out`
/// is left empty.
///
/// # Panics
///
/// If `raw` does not have `2 * rows * cols` bytes.
pub fn encode(raw: &[u8], rows: usize, cols: usize, out: &mut Vec<u8>) -> bool {
    let pages = |bytes: usize| bytes.div_ceil(PAGE_BYTES);
    let stored = encode_any_size(raw, rows, cols, out) && pages(out.len()) < pages(raw.len());
    if !stored {
        out.clear();
    }
    stored
}

/// As [`encode`], however many bytes it takes. Returns whether every weight is
/// finite and the block has any; where not, `out` is left empty.
///
/// # Panics
///
/// As [`encode`].
pub fn encode_any_size(raw: &[u8], rows: usize, cols: usize, out: &mut Vec<u8>) -> bool {
    assert_eq!(
        Some(raw.len()),
        rows.checked_mul(cols)
            .and_then(|count| count.checked_mul(2)),
        "raw bytes do not match {rows} rows of {cols} columns"
    );
    out.clear();
    if raw.is_empty() {
        return false;
    }
    let layout = Layout::new(rows, cols).expect("weights that are in memory");
    out.resize(layout.escapes, 0);
    for (row, weights) in raw.chunks_exact(2 * cols).enumerate() {
        let (weights, _) = weights.as_chunks::<2>();
        let Some(dictionary) = Dictionary::of(weights) else {
            out.clear();
            return false;
        };
        let place = layout.dictionaries + row * DICTIONARY_BYTES;
        out[place..][..DICTIONARY_BYTES].copy_from_slice(&dictionary.entries);
        let mut start = layout.rows + row * layout.row_bytes;
        for group in weights.chunks(GROUP) {
            let bytes = group.len().div_ceil(8) * 11;
            let mut escapes = [0_u8; 2 * GROUP];
            let count = encode_group(
                group,
                &dictionary.codes,
                &mut out[start..][..bytes],
                &mut escapes,
            );
            out.extend_from_slice(&escapes[..count]);
            start += bytes;
        }
        let Ok(end) = u32::try_from(out.len() - layout.escapes) else {
            out.clear();
            return false;
        };
        out[4 * (row + 1)..][..4].copy_from_slice(&end.to_le_bytes());
    }
    out.resize(out.len() + TAIL_BYTES, 0);
    true
}

/// Low byte (mantissa, then sign) and exponent of a weight.
#[inline(always)]
fn split(weight: [u8; 2]) -> [u8; 2] {
    u16::from_le_bytes(weight).rotate_left(1).to_le_bytes()
}

/// A row's dictionary, and the code of every exponent.
struct Dictionary {
    entries: [u8; DICTIONARY_BYTES],
    codes: [u8; 256],
}

impl Dictionary {
    /// `None` if a weight of `row`, which has some, is not finite.
    fn of(row: &[[u8; 2]]) -> Option<Self> {
        let counts = exponent_counts(row);
        if counts[usize::from(MARKER)] > 0 {
            return None;
        }
        // Descending; of equal counts the smaller exponent is met first.
        let mut top = [(0_u32, 0_u8); ENTRIES];
        for (exponent, &count) in (0..=MARKER).zip(&counts) {
            let place = top.iter().position(|&(other, _)| count > other);
            if let Some(place) = place {
                top[place..].rotate_right(1);
                top[place] = (count, exponent);
            }
        }
        let mut entries = [MARKER; DICTIONARY_BYTES];
        let mut codes = [ESCAPE; 256];
        for (code, (entry, (count, exponent))) in (0..ESCAPE).zip(entries.iter_mut().zip(top)) {
            *entry = if count > 0 { exponent } else { top[0].1 };
            if count > 0 {
                codes[usize::from(exponent)] = code;
            }
        }
        Some(Self { entries, codes })
    }
}

/// How often each exponent occurs. Neighbours count in different tables: a count
/// that was just written is slow to read.
fn exponent_counts(row: &[[u8; 2]]) -> [u32; 256] {
    let mut tables = [[0_u32; 256]; 4];
    let (fours, rest) = row.as_chunks::<4>();
    for four in fours {
        for (table, &weight) in tables.iter_mut().zip(four) {
            table[usize::from(split(weight)[1])] += 1;
        }
    }
    for &weight in rest {
        tables[0][usize::from(split(weight)[1])] += 1;
    }
    let [mut counts, others @ ..] = tables;
    for other in others {
        for (count, other) in counts.iter_mut().zip(other) {
            *count += other;
        }
    }
    counts
}

/// Writes the codes and low bytes of at most [`GROUP`] weights, and their
/// escapes; returns how many these are.
fn encode_group(
    weights: &[[u8; 2]],
    codes: &[u8; 256],
    out: &mut [u8],
    escapes: &mut [u8; 2 * GROUP],
) -> usize {
    let eights = weights.len().div_ceil(8);
    let (code_bytes, low_bytes) = out.split_at_mut(3 * eights);
    let code_bytes = code_bytes.as_chunks_mut::<3>().0;
    let low_bytes = low_bytes.as_chunks_mut::<8>().0;
    let (full, rest) = weights.as_chunks::<8>();
    let mut count = 0;
    for ((eight, codes_out), low) in full.iter().zip(&mut *code_bytes).zip(&mut *low_bytes) {
        *codes_out = encode_eight(eight, codes, low, escapes, &mut count);
    }
    if !rest.is_empty() {
        let (codes_out, low) = (&mut code_bytes[eights - 1], &mut low_bytes[eights - 1]);
        *codes_out = encode_eight(rest, codes, low, escapes, &mut count);
    }
    count
}

/// At most eight weights; returns their codes.
#[inline(always)]
fn encode_eight(
    weights: &[[u8; 2]],
    codes: &[u8; 256],
    low: &mut [u8; 8],
    escapes: &mut [u8; 2 * GROUP],
    count: &mut usize,
) -> [u8; 3] {
    let mut bits = 0_u32;
    for (j, (&weight, low)) in weights.iter().zip(low).enumerate() {
        let [low_byte, exponent] = split(weight);
        *low = low_byte;
        let code = codes[usize::from(exponent)];
        bits |= u32::from(code) << (3 * j);
        // Written whether or not it is one: a branch would be mispredicted.
        escapes[*count % (2 * GROUP)] = exponent;
        *count += usize::from(code == ESCAPE);
    }
    let [first, second, third, _] = bits.to_le_bytes();
    [first, second, third]
}

/// Decodes a payload into `out: [rows][cols]` bf16, little-endian: the
/// definition of the format. Accounts for every bit: what [`encode_any_size`]
/// would not have written is refused.
///
/// # Errors
///
/// [`Bf16X3Error`]; `out` then holds anything.
///
/// # Panics
///
/// If `out` does not have `2 * rows * cols` bytes.
pub fn decode(payload: &[u8], rows: usize, cols: usize, out: &mut [u8]) -> Result<(), Bf16X3Error> {
    assert_eq!(
        Some(out.len()),
        rows.checked_mul(cols)
            .and_then(|count| count.checked_mul(2)),
        "out does not match {rows} rows of {cols} columns"
    );
    let layout = Layout::new(rows, cols).ok_or(Bf16X3Error::Shape { rows, cols })?;
    let directory = directory(payload, rows, cols, layout)?;
    let escapes_end = payload.len() - TAIL_BYTES;
    require_zero(payload, escapes_end..payload.len())?;
    for row in 0..rows {
        let escapes = &payload[layout.escapes..][directory(row)..directory(row + 1)];
        let place = layout.dictionaries + row * DICTIONARY_BYTES;
        let stored = PackedRow {
            row,
            dictionary: payload[place..][..DICTIONARY_BYTES]
                .try_into()
                .expect("eight bytes"),
            start: layout.rows + row * layout.row_bytes,
            escapes,
        };
        stored.decode(payload, &mut out[2 * cols * row..][..2 * cols])?;
    }
    Ok(())
}

/// Checks the directory and the length; the result gives an entry.
fn directory(
    payload: &[u8],
    rows: usize,
    cols: usize,
    layout: Layout,
) -> Result<impl Fn(usize) -> usize, Bf16X3Error> {
    let wrong_length = |escape_bytes| Bf16X3Error::Length {
        rows,
        cols,
        escape_bytes,
        expected: layout.escapes.saturating_add(escape_bytes + TAIL_BYTES),
        found: payload.len(),
    };
    if payload.len() < layout.escapes + TAIL_BYTES {
        return Err(wrong_length(0));
    }
    let (entries, _) = payload[..layout.dictionaries].as_chunks::<4>();
    let entry = |index: usize| u32::from_le_bytes(entries[index]);
    if entry(0) != 0 {
        let (start, end) = (entry(0), entries.get(1).map_or(0, |_| entry(1)));
        return Err(Bf16X3Error::Directory { row: 0, start, end });
    }
    if let Some(row) = (0..rows).find(|&row| entry(row) > entry(row + 1)) {
        let (start, end) = (entry(row), entry(row + 1));
        return Err(Bf16X3Error::Directory { row, start, end });
    }
    let to_usize = |value: u32| usize::try_from(value).expect("a usize has 32 bits");
    let escape_bytes = to_usize(entry(rows));
    if payload.len() - layout.escapes - TAIL_BYTES != escape_bytes {
        return Err(wrong_length(escape_bytes));
    }
    Ok(move |index: usize| to_usize(u32::from_le_bytes(entries[index])))
}

/// What belongs to one row.
struct PackedRow<'p> {
    row: usize,
    dictionary: [u8; DICTIONARY_BYTES],
    /// Where its groups begin in the payload.
    start: usize,
    escapes: &'p [u8],
}

impl PackedRow<'_> {
    /// Entries in use: different exponents, of which repetitions of the first
    /// follow.
    fn used(&self) -> Result<usize, Bf16X3Error> {
        let [entries @ .., marker] = &self.dictionary;
        let again = entries[1..].iter().position(|&entry| entry == entries[0]);
        let used = again.map_or(ENTRIES, |place| place + 1);
        let (distinct, unused) = entries.split_at(used);
        let repeats = |index: usize| distinct[..index].contains(&distinct[index]);
        let fits = *marker == MARKER
            && !distinct.contains(&MARKER)
            && !(1..used).any(repeats)
            && unused.iter().all(|&entry| entry == entries[0])
            // Whoever has room in the dictionary has no escapes.
            && (used == ENTRIES || self.escapes.is_empty());
        if fits {
            Ok(used)
        } else {
            Err(self.wrong_dictionary())
        }
    }

    fn wrong_dictionary(&self) -> Bf16X3Error {
        let (row, found) = (self.row, self.dictionary);
        Bf16X3Error::Dictionary { row, found }
    }

    /// Whether the `used` entries are the most frequent exponents, in their
    /// order; `counts` of each were met.
    fn check_order(&self, counts: &[u32], used: usize) -> Result<(), Bf16X3Error> {
        let mut all = [0; 256];
        for &escape in self.escapes {
            all[usize::from(escape)] += 1;
        }
        let comes_before = |(count, exponent): (u32, u8), (other, than): (u32, u8)| {
            count > other || count == other && exponent < than
        };
        let entry = |index: usize| (counts[index], self.dictionary[index]);
        let last = entry(used - 1);
        let escapes = (0..=MARKER).filter(|&exponent| all[usize::from(exponent)] > 0);
        let fits = last.0 > 0
            && (1..used).all(|index| comes_before(entry(index - 1), entry(index)))
            && escapes
                .map(|exponent| (all[usize::from(exponent)], exponent))
                .all(|escape| comes_before(last, escape));
        if fits {
            Ok(())
        } else {
            Err(self.wrong_dictionary())
        }
    }

    fn decode(&self, payload: &[u8], out: &mut [u8]) -> Result<(), Bf16X3Error> {
        let row = self.row;
        let used = self.used()?;
        let (out, _) = out.as_chunks_mut::<2>();
        let mut counts = [0; DICTIONARY_BYTES];
        let mut at = self.start;
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            let eights = out.len().div_ceil(8);
            let low_at = at + 3 * eights;
            let codes = &payload[at..low_at];
            for (j, out) in out.iter_mut().enumerate() {
                let (code, col) = (code_at(codes, j), group * GROUP + j);
                let count = &mut counts[usize::from(code)];
                *count += 1;
                let exponent = if code == ESCAPE {
                    self.escaped(*count as usize - 1, col)?
                } else if usize::from(code) < used {
                    self.dictionary[usize::from(code)]
                } else {
                    return Err(Bf16X3Error::UnusedCode { row, col, code });
                };
                let word = u16::from_le_bytes([payload[low_at + j], exponent]);
                *out = word.rotate_right(1).to_le_bytes();
            }
            if (out.len()..8 * eights).any(|j| code_at(codes, j) != 0) {
                let (offset, found) = (low_at - 1, payload[low_at - 1]);
                return Err(Bf16X3Error::Padding { offset, found });
            }
            at = low_at + 8 * eights;
            require_zero(payload, low_at + out.len()..at)?;
        }
        let [coded @ .., escaped] = counts;
        let (expected, found) = (self.escapes.len(), escaped as usize);
        if found != expected {
            return Err(Bf16X3Error::EscapeCount {
                row,
                expected,
                found,
            });
        }
        if out.is_empty() {
            // Without columns there is nothing to be frequent.
            return Ok(());
        }
        self.check_order(&coded, used)
    }

    /// Escape `index`, of column `col`. Missing ones are told when all are
    /// counted.
    fn escaped(&self, index: usize, col: usize) -> Result<u8, Bf16X3Error> {
        match self.escapes.get(index) {
            // The marker is in it too.
            Some(&exponent) if self.dictionary.contains(&exponent) => {
                let row = self.row;
                Err(Bf16X3Error::Escaped { row, col, exponent })
            }
            Some(&exponent) => Ok(exponent),
            None => Ok(0),
        }
    }
}

/// Code `j` of a group.
fn code_at(codes: &[u8], j: usize) -> u8 {
    let (byte, bit) = (3 * j / 8, 3 * j % 8);
    let next = codes.get(byte + 1).copied().unwrap_or(0);
    let bits = u16::from_le_bytes([codes[byte], next]) >> bit;
    bits.to_le_bytes()[0] & 7
}

/// Refuses a byte of `range` that is not zero.
fn require_zero(payload: &[u8], range: std::ops::Range<usize>) -> Result<(), Bf16X3Error> {
    let mut bytes = range.clone().zip(&payload[range]);
    match bytes.find(|&(_, &byte)| byte != 0) {
        Some((offset, &found)) => Err(Bf16X3Error::Padding { offset, found }),
        None => Ok(()),
    }
}
