//! Scales by a palette: two bits each, and those that are not in it apart.
//!
//! Four scales a byte, the first lowest. 0, 1 and 2 name an entry of the
//! palette; 3 is any other byte, which lies among the escapes in order.

use super::entropy::ByteCounts;

/// Entries of the palette.
const ENTRIES: usize = 3;
/// The code of a scale that is not among them.
const ESCAPE: u8 = 3;

/// The bytes that have a code of their own.
#[derive(Debug)]
pub(super) struct Palette {
    entries: [u8; ENTRIES],
    /// Four scales for each byte of codes; 0 for an escape.
    table: Vec<[u8; 4]>,
}

/// Scales in two bits each.
#[derive(Debug)]
pub(super) struct Coded {
    codes: Vec<u8>,
    /// Scales that are not in the palette, with their places.
    escapes: Vec<(u32, u8)>,
    length: usize,
}

impl Coded {
    /// Bytes that would be stored: an escape takes one, its place is in its code.
    pub(super) fn stored_bytes(&self) -> usize {
        self.codes.len() + self.escapes.len()
    }
}

impl Palette {
    /// The most frequent bytes.
    pub(super) fn new(counts: &ByteCounts) -> Self {
        let mut order: Vec<u8> = (0..=255).collect();
        order.sort_by_key(|&byte| (std::cmp::Reverse(counts.0[usize::from(byte)]), byte));
        let entries = [order[0], order[1], order[2]];
        let scale = |code: usize| entries.get(code).copied().unwrap_or(0);
        let table = (0..256)
            .map(|codes: usize| [0, 2, 4, 6].map(|shift| scale(codes >> shift & 3)))
            .collect();
        Self { entries, table }
    }

    /// Codes `scales`.
    ///
    /// # Panics
    ///
    /// With 2^32 scales or more.
    pub(super) fn encode(&self, scales: &[u8]) -> Coded {
        let mut codes = vec![0; scales.len().div_ceil(4)];
        let mut escapes = Vec::new();
        for (index, &scale) in scales.iter().enumerate() {
            let code = (0..ESCAPE).find(|&code| self.entries[usize::from(code)] == scale);
            let code = code.unwrap_or_else(|| {
                let place = u32::try_from(index).expect("scales of one expert");
                escapes.push((place, scale));
                ESCAPE
            });
            codes[index / 4] |= code << (2 * (index % 4));
        }
        Coded {
            codes,
            escapes,
            length: scales.len(),
        }
    }

    /// The scales that were coded, into `out`.
    ///
    /// # Panics
    ///
    /// When `out` has another length.
    pub(super) fn decode(&self, coded: &Coded, out: &mut [u8]) {
        assert_eq!(out.len(), coded.length);
        let table: &[[u8; 4]; 256] = self.table.as_slice().try_into().expect("its size");
        for (four, &codes) in out.chunks_mut(4).zip(&coded.codes) {
            let scales = &table[usize::from(codes)];
            four.copy_from_slice(&scales[..four.len()]);
        }
        for &(index, scale) in &coded.escapes {
            out[index as usize] = scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_with_few_and_with_many_escapes() {
        let all: Vec<u8> = (0..=255).chain(0..=255).collect();
        let mut few = vec![121; 1001];
        few[7] = 0;
        few[999] = 255;
        few[1000] = 120;
        for scales in [&all[..], &few, &[5], &[]] {
            let palette = Palette::new(&ByteCounts::of(scales));
            let coded = palette.encode(scales);
            let mut found = vec![0xa5; scales.len()];
            palette.decode(&coded, &mut found);
            assert_eq!(found, scales);
        }
    }

    #[test]
    fn three_values_take_a_quarter_and_each_further_one_a_byte() {
        let mut scales = [119, 120, 121, 121].repeat(250);
        let stored = |scales: &[u8]| {
            let palette = Palette::new(&ByteCounts::of(scales));
            palette.encode(scales).stored_bytes()
        };
        assert_eq!(stored(&scales), 250);
        scales[13] = 4;
        assert_eq!(stored(&scales), 251);
    }
}
