//! The payload of a `bf16-x3` block: every pattern of sixteen bits, every shape.

use k3_formats::trunk::bf16_x3::{TAIL_BYTES, decode, encode, encode_any_size, payload_bytes_max};

/// `SplitMix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() >> 32).expect("32 bits") % bound
    }

    fn word(&mut self) -> u16 {
        u16::try_from(self.bits() >> 48).expect("16 bits")
    }

    /// A weight whose exponents are spread as trained ones are.
    fn likely(&mut self) -> u16 {
        let exponent = 120 - u16::try_from(self.bits().trailing_zeros().min(40)).expect("small");
        self.word() & 0x807F | exponent << 7
    }

    fn finite(&mut self) -> u16 {
        loop {
            let word = self.word();
            if word & 0x7F80 != 0x7F80 {
                return word;
            }
        }
    }
}

pub(crate) fn bytes(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Encodes, decodes and compares; returns the payload.
#[track_caller]
fn round_trip(words: &[u16], rows: usize, cols: usize) -> Vec<u8> {
    let raw = bytes(words);
    let mut payload = vec![1, 2, 3];
    assert!(encode_any_size(&raw, rows, cols, &mut payload));
    assert!(payload.len() <= payload_bytes_max(rows, cols).unwrap());
    let mut found = vec![0x55; raw.len()];
    decode(&payload, rows, cols, &mut found).unwrap();
    assert!(found == raw, "{rows} x {cols}");
    payload
}

/// Bytes without escapes.
fn fixed_bytes(rows: usize, cols: usize) -> usize {
    4 * (rows + 1) + 8 * rows + 11 * cols.div_ceil(8) * rows + TAIL_BYTES
}

fn finite_words() -> Vec<u16> {
    (0..=u16::MAX)
        .filter(|word| word & 0x7F80 != 0x7F80)
        .collect()
}

#[test]
fn every_finite_pattern_survives_in_every_arrangement() {
    let ascending = finite_words();
    assert_eq!(ascending.len(), 65_280);
    let mut shuffled = ascending.clone();
    let mut random = Random(1);
    for last in (1..shuffled.len()).rev() {
        shuffled.swap(last, random.below(last + 1));
    }
    for words in [ascending, shuffled] {
        // 65,280 = 256 x 255.
        for cols in [1, 2, 8, 60, 64, 85, 255, 256, 510, 65_280] {
            round_trip(&words, words.len() / cols, cols);
        }
    }
}

#[test]
fn every_infinity_and_nan_is_refused_wherever_it_stands() {
    let mut payload = Vec::new();
    for word in (0..=u16::MAX).filter(|word| word & 0x7F80 == 0x7F80) {
        let mut words = vec![0x3F80; 3 * 70];
        words[usize::from(word) % 210] = word;
        let codable = encode_any_size(&bytes(&words), 3, 70, &mut payload);
        assert!(!codable && payload.is_empty(), "{word:#06x}");
    }
}

#[test]
fn every_width_survives_with_every_kind_of_values() {
    type Values = fn(&mut Random) -> u16;
    let kinds: [(&str, Values); 6] = [
        ("likely", Random::likely),
        ("any finite", Random::finite),
        ("constant", |_| 0xBF81),
        ("zeros of both signs", |random| random.word() & 0x8000),
        ("subnormal", |random| random.word() & 0x807F),
        ("two exponents", |random| {
            random.word() & 0x807F | 0x3F00 | (random.word() & 1) << 7
        }),
    ];
    for (name, value) in kinds {
        for cols in (1..=130).chain([511, 512, 513]) {
            for rows in [1, 2, 5] {
                let mut random = Random(cols as u64);
                let words: Vec<u16> = (0..rows * cols)
                    .map(|_| match value(&mut random) {
                        word if word & 0x7F80 == 0x7F80 => word & 0x3FFF,
                        word => word,
                    })
                    .collect();
                let payload = round_trip(&words, rows, cols);
                let few = !matches!(name, "likely" | "any finite");
                assert!(!few || payload.len() == fixed_bytes(rows, cols), "{name}");
            }
        }
    }
}

/// Seven exponents cannot be escapes; all others of the row are.
#[test]
fn rows_of_nearly_nothing_but_escapes_survive() {
    let cols = 254;
    let exponents: Vec<u16> = (0..254).map(|exponent| exponent << 7 | 0x8001).collect();
    let words: Vec<u16> = (0..9).flat_map(|_| exponents.iter().copied()).collect();
    let payload = round_trip(&words, 9, cols);
    assert_eq!(payload.len(), fixed_bytes(9, cols) + 9 * (254 - 7));
    // Larger than raw: a trunk keeps the block as it is.
    let mut out = Vec::new();
    assert!(!encode(&bytes(&words), 9, cols, &mut out) && out.is_empty());
}

#[test]
fn many_rows_survive() {
    let mut random = Random(3);
    let words: Vec<u16> = (0..3000 * 33).map(|_| random.likely()).collect();
    round_trip(&words, 3000, 33);
}

#[test]
fn nothing_has_no_payload() {
    let mut out = vec![1];
    for (rows, cols) in [(0, 0), (0, 5), (5, 0)] {
        assert!(!encode_any_size(&[], rows, cols, &mut out));
        assert!(out.is_empty());
    }
}

/// Fails another order of the areas, of bits in codes, of mantissa and sign, of
/// the dictionary, and another width of the last group.
#[test]
fn the_bytes_are_those_of_the_description() {
    // Row 0: exponent 127 six times, 126 and 128 twice, eight others once.
    let mut words = vec![0x3F80_u16, 0x3F81, 0xBF80, 0x3FFF, 0x3F80, 0x3F80];
    words.extend([0x4000, 0x3F00, 0xC07F, 0x3F01]);
    words.extend((1..=8_u16).map(|exponent| exponent << 7));
    assert_eq!(words.len(), 18);
    // Row 1: one exponent, 2.
    words.extend([0x0100; 18]);
    let payload = round_trip(&words, 2, 18);
    let mut expected = Vec::new();
    for start in [0_u32, 4, 4] {
        expected.extend(start.to_le_bytes());
    }
    expected.extend([127, 126, 128, 1, 2, 3, 4, 255]);
    expected.extend([2, 2, 2, 2, 2, 2, 2, 255]);
    // 24 codes of three bits: 0 x 6, 2, 1, 2, 1, 3, 4, 5, 6, 7 x 4, 0 x 6.
    let codes = [0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 3, 4, 5, 6, 7, 7, 7, 7];
    let mut bits = 0_u128;
    for (j, code) in codes.into_iter().enumerate() {
        bits |= code << (3 * j);
    }
    expected.extend(&bits.to_le_bytes()[..9]);
    expected.extend([0, 2, 1, 0xFE, 0, 0, 0, 0, 0xFF, 2]);
    expected.extend([0; 8 + 6]);
    expected.extend([0; 9 + 24]);
    expected.extend([5, 6, 7, 8]);
    expected.extend([0; 64]);
    assert_eq!(payload, expected);
}

/// The example of `docs/formats/trunk.md`.
#[test]
fn the_documented_example_holds() {
    let payload = round_trip(&[0x3F80, 0xBFC0, 0x0000], 1, 3);
    let mut expected = vec![0; 8];
    expected.extend([0x7F, 0, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF]);
    expected.extend([0x40, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0]);
    expected.extend([0; 64]);
    assert_eq!(payload, expected);
}

#[test]
fn a_trunk_stores_what_takes_fewer_pages() {
    let mut random = Random(5);
    let words: Vec<u16> = (0..64 * 1024).map(|_| random.likely()).collect();
    let raw = bytes(&words);
    let mut out = Vec::new();
    assert!(encode(&raw, 64, 1024, &mut out));
    let ratio = out.len() as f64 / raw.len() as f64;
    assert!((0.69..0.71).contains(&ratio), "{ratio}");
    // 4096 bytes are one page either way.
    assert!(!encode(&raw[..4096], 2, 1024, &mut out) && out.is_empty());
    assert!(encode_any_size(&raw[..4096], 2, 1024, &mut out) && out.len() < 4096);
}

#[test]
fn shapes_beyond_all_memory_are_told() {
    assert_eq!(payload_bytes_max(usize::MAX, 1), None);
    assert_eq!(payload_bytes_max(1, usize::MAX), None);
    assert_eq!(payload_bytes_max(usize::MAX / 8, 2), None);
    let error = decode(&[], 0, usize::MAX, &mut []);
    assert!(error.is_err());
}
