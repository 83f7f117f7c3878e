//! A Huffman code over bytes: two E2M1 values a symbol.
//!
//! Canonical, no code longer than [`LENGTH_MAX`] bits, four streams that are
//! decoded side by side: what general compressors do where nothing but how
//! frequent each byte is helps. A stream is bits from the lowest of its first
//! byte up; each code lies with its first bit lowest.

use super::entropy::ByteCounts;

/// Bits of the longest code: a table of 4,096 entries, which stays in L1.
const LENGTH_MAX: u32 = 12;
/// Streams of a coded block.
const STREAMS: usize = 4;
/// Symbols between two refills: as many as 56 bits hold for certain.
const SYMBOLS_A_REFILL: usize = 56 / LENGTH_MAX as usize;
/// Zero bytes after a stream, so that a refill may read a whole word.
const PADDING_BYTES: usize = 8;

/// A code for every byte that occurs.
#[derive(Debug)]
pub(super) struct Code {
    /// Bits of each byte's code; 0 for one that does not occur.
    lengths: [u8; 256],
    /// Each byte's code, first bit lowest.
    codes: [u16; 256],
    /// By the next [`LENGTH_MAX`] bits: the byte, and its length above it.
    table: Vec<u16>,
}

/// Bytes as four streams.
#[derive(Debug)]
pub(super) struct Coded {
    streams: [Vec<u8>; STREAMS],
    /// Bytes that were coded.
    length: usize,
}

impl Coded {
    /// Bytes that would be stored; the code itself is shared by many blocks.
    pub(super) fn stored_bytes(&self) -> usize {
        let streams = self.streams.iter();
        streams.map(|stream| stream.len() - PADDING_BYTES).sum()
    }
}

impl Code {
    /// The code that is shortest for bytes that occur as often as `counts` say,
    /// among those that keep the limit by flattening the rarest.
    ///
    /// # Panics
    ///
    /// When nothing occurs.
    pub(super) fn new(counts: &ByteCounts) -> Self {
        let mut counts = counts.0;
        let lengths = loop {
            let lengths = huffman_lengths(&counts);
            if lengths.iter().all(|&bits| u32::from(bits) <= LENGTH_MAX) {
                break lengths;
            }
            for count in counts.iter_mut().filter(|count| **count > 0) {
                *count = (*count).div_ceil(2);
            }
        };
        Self::of_lengths(lengths)
    }

    fn of_lengths(lengths: [u8; 256]) -> Self {
        let mut order: Vec<u8> = (0..=255)
            .filter(|&byte| lengths[usize::from(byte)] > 0)
            .collect();
        order.sort_by_key(|&byte| (lengths[usize::from(byte)], byte));
        let mut codes = [0; 256];
        let mut table = vec![0; 1 << LENGTH_MAX];
        let (mut next, mut last) = (0_u16, 0);
        for byte in order {
            let bits = u32::from(lengths[usize::from(byte)]);
            next <<= bits - last;
            last = bits;
            let code = next.reverse_bits() >> (16 - bits);
            next += 1;
            codes[usize::from(byte)] = code;
            for index in (usize::from(code)..1 << LENGTH_MAX).step_by(1 << bits) {
                table[index] = u16::from(byte) | (lengths[usize::from(byte)] as u16) << 8;
            }
        }
        Self {
            lengths,
            codes,
            table,
        }
    }

    /// Codes `bytes`, each fourth of them as a stream of its own.
    ///
    /// # Panics
    ///
    /// When a byte has no code.
    pub(super) fn encode(&self, bytes: &[u8]) -> Coded {
        let quarter = bytes.len().div_ceil(STREAMS);
        let mut parts = bytes.chunks(quarter.max(1));
        let streams = std::array::from_fn(|_| self.stream(parts.next().unwrap_or_default()));
        Coded {
            streams,
            length: bytes.len(),
        }
    }

    fn stream(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        let (mut bits, mut count) = (0_u64, 0);
        for &byte in bytes {
            let length = self.lengths[usize::from(byte)];
            assert!(length > 0, "byte {byte} has no code");
            bits |= u64::from(self.codes[usize::from(byte)]) << count;
            count += u32::from(length);
            while count >= 8 {
                stream.push((bits & 0xff) as u8);
                bits >>= 8;
                count -= 8;
            }
        }
        if count > 0 {
            stream.push((bits & 0xff) as u8);
        }
        stream.extend([0; PADDING_BYTES]);
        stream
    }

    /// The bytes that were coded, into `out`.
    ///
    /// # Panics
    ///
    /// When `out` has another length.
    pub(super) fn decode(&self, coded: &Coded, out: &mut [u8]) {
        assert_eq!(out.len(), coded.length);
        let table: &[u16; 1 << LENGTH_MAX] = self.table.as_slice().try_into().expect("its size");
        let quarter = out.len().div_ceil(STREAMS).max(1);
        let mut parts = out.chunks_mut(quarter);
        let parts: [&mut [u8]; STREAMS] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let mut readers = [0, 1, 2, 3].map(|index| Reader::new(&coded.streams[index]));
        // Side by side as far as the shortest goes: no step waits for another.
        let together = parts.iter().map(|part| part.len()).min().unwrap_or(0);
        let steps = together / SYMBOLS_A_REFILL;
        let [p0, p1, p2, p3] = parts;
        let [r0, r1, r2, r3] = &mut readers;
        let chunks = p0[..steps * SYMBOLS_A_REFILL]
            .as_chunks_mut::<SYMBOLS_A_REFILL>()
            .0
            .iter_mut()
            .zip(p1.as_chunks_mut::<SYMBOLS_A_REFILL>().0)
            .zip(p2.as_chunks_mut::<SYMBOLS_A_REFILL>().0)
            .zip(p3.as_chunks_mut::<SYMBOLS_A_REFILL>().0);
        for (((c0, c1), c2), c3) in chunks {
            for reader in [&mut *r0, &mut *r1, &mut *r2, &mut *r3] {
                reader.refill();
            }
            for index in 0..SYMBOLS_A_REFILL {
                c0[index] = r0.next(table);
                c1[index] = r1.next(table);
                c2[index] = r2.next(table);
                c3[index] = r3.next(table);
            }
        }
        for (part, reader) in [p0, p1, p2, p3].into_iter().zip(&mut readers) {
            let from = (steps * SYMBOLS_A_REFILL).min(part.len());
            for byte in &mut part[from..] {
                reader.refill();
                *byte = reader.next(table);
            }
        }
    }
}

/// Where a stream is read.
struct Reader<'s> {
    stream: &'s [u8],
    /// Bits before this are used.
    position: usize,
    bits: u64,
}

impl<'s> Reader<'s> {
    fn new(stream: &'s [u8]) -> Self {
        Self {
            stream,
            position: 0,
            bits: 0,
        }
    }

    /// At least 56 bits, zeros after the end.
    #[inline(always)]
    fn refill(&mut self) {
        let byte = self.position / 8;
        let word = self.stream.get(byte..byte + 8);
        let word = word.map_or(0, |word| {
            u64::from_le_bytes(word.try_into().expect("8 bytes"))
        });
        self.bits = word >> (self.position % 8);
    }

    #[inline(always)]
    fn next(&mut self, table: &[u16; 1 << LENGTH_MAX]) -> u8 {
        let entry = table[(self.bits & ((1 << LENGTH_MAX) - 1)) as usize];
        let length = entry >> 8;
        self.bits >>= length;
        self.position += usize::from(length);
        (entry & 0xff) as u8
    }
}

/// The lengths of Huffman's code. One symbol alone gets one bit.
fn huffman_lengths(counts: &[u64; 256]) -> [u8; 256] {
    /// A subtree: how often, and the bytes in it.
    type Tree = (u64, Vec<u8>);
    let mut lengths = [0; 256];
    let mut trees: Vec<Tree> = (0..=255)
        .filter(|&byte| counts[usize::from(byte)] > 0)
        .map(|byte| (counts[usize::from(byte)], vec![byte]))
        .collect();
    assert!(!trees.is_empty(), "nothing occurs");
    if let [(_, only)] = trees.as_slice() {
        lengths[usize::from(only[0])] = 1;
        return lengths;
    }
    while trees.len() > 1 {
        trees.sort_by_key(|(count, bytes)| (std::cmp::Reverse(*count), bytes[0]));
        let (count, mut bytes) = trees.pop().expect("two");
        let (other_count, other_bytes) = trees.pop().expect("two");
        bytes.extend(other_bytes);
        for &byte in &bytes {
            lengths[usize::from(byte)] += 1;
        }
        trees.push((count + other_count, bytes));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Random;

    /// Bytes around zero, those below it as two's complement.
    fn normal_bytes(len: usize, deviation: f32) -> Vec<u8> {
        let values = Random::new(7).normal(len);
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        let byte = |value: &f32| ((value * deviation) as i8).cast_unsigned();
        values.iter().map(byte).collect()
    }

    fn round_trip(bytes: &[u8]) -> usize {
        let code = Code::new(&ByteCounts::of(bytes));
        let coded = code.encode(bytes);
        let mut found = vec![0xa5; bytes.len()];
        code.decode(&coded, &mut found);
        assert_eq!(found, bytes);
        coded.stored_bytes()
    }

    #[test]
    fn whatever_is_coded_comes_back_at_every_length() {
        let bytes = normal_bytes(5000, 20.0);
        for length in (1..70).chain([4095, 4096, 4097, 5000]) {
            round_trip(&bytes[..length]);
        }
        round_trip(&[9; 1000]);
        round_trip(&(0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn counts_that_want_longer_codes_keep_the_limit() {
        // Powers of two: the rarest of 20 symbols would take 19 bits.
        let mut bytes = Vec::new();
        for symbol in 0..20_u8 {
            bytes.extend(std::iter::repeat_n(symbol, 1 << symbol));
        }
        let code = Code::new(&ByteCounts::of(&bytes));
        let longest = code.lengths.iter().max().unwrap();
        assert!(u32::from(*longest) <= LENGTH_MAX, "{longest}");
        round_trip(&bytes);
    }

    #[test]
    fn the_size_is_within_a_tenth_of_a_bit_of_the_entropy_where_bytes_are_many() {
        let bytes = normal_bytes(1 << 16, 30.0);
        let entropy = ByteCounts::of(&bytes).entropy_bits();
        let stored = round_trip(&bytes) as f64 * 8.0 / bytes.len() as f64;
        assert!(
            (entropy..entropy + 0.1).contains(&stored),
            "{stored} {entropy}"
        );
    }
}
