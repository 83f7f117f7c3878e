//! Packed bf16 rows: the products and the decoder of every set against the
//! products over the same weights as they are.

use std::ops::Range;

use crate::buffers::{Bytes, Floats};
use crate::compare::{assert_same, unwritten};
use crate::guard::Guarded;
use crate::values::{self, Class, Random};
use crate::{scalar, slow};
use k3_kernels::{Bf16X3, Isa, KernelSet};

/// What the weights of a block are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A few exponents, the frequent ones in the dictionary.
    Likely,
    /// Every exponent but that of infinities.
    Finite,
    /// Zeros of both signs and subnormals.
    Subnormal,
    /// No exponent is in the dictionary.
    EscapesOnly,
    /// All exponents are in the dictionary.
    NoEscapes,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Likely,
        Self::Finite,
        Self::Subnormal,
        Self::EscapesOnly,
        Self::NoEscapes,
    ];

    fn exponent(self, random: &mut Random) -> u32 {
        match self {
            Self::Likely => 121 - random.bits().trailing_zeros().min(20) / 2 - random.below(3),
            Self::Finite | Self::EscapesOnly => random.below(255),
            Self::Subnormal => 0,
            Self::NoEscapes => 118 + random.below(7),
        }
    }

    fn weight(self, random: &mut Random) -> u16 {
        let word = self.exponent(random) << 7 | random.below(128) | random.below(2) << 15;
        u16::try_from(word).expect("16 bits")
    }
}

/// A packed block, built as the format's description says, one bit after the
/// other.
fn pack(words: &[u16], rows: usize, cols: usize, kind: Kind) -> Vec<u8> {
    let exponent = |word: u16| (word >> 7).to_le_bytes()[0];
    let mut directory = vec![0_u32];
    let (mut dictionaries, mut groups, mut escapes) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        let row = &words[row * cols..][..cols];
        let dictionary = dictionary(row.iter().map(|&word| exponent(word)), kind);
        dictionaries.extend(dictionary);
        for group in row.chunks(64) {
            let places = group.len().next_multiple_of(8);
            let mut codes = vec![0_u8; 3 * places / 8];
            let mut low = vec![0; places];
            for (j, &word) in group.iter().enumerate() {
                let known = dictionary[..7].iter().position(|&e| e == exponent(word));
                let code = known.unwrap_or(7);
                for bit in (0..3).filter(|bit| code >> bit & 1 == 1) {
                    codes[(3 * j + bit) / 8] |= 1 << ((3 * j + bit) % 8);
                }
                if code == 7 {
                    escapes.push(exponent(word));
                }
                low[j] = word.to_le_bytes()[0] << 1 | (word >> 15).to_le_bytes()[0];
            }
            groups.extend(codes);
            groups.extend(low);
        }
        directory.push(u32::try_from(escapes.len()).expect("few"));
    }
    let mut payload: Vec<u8> = directory.iter().flat_map(|e| e.to_le_bytes()).collect();
    payload.extend(dictionaries);
    payload.extend(groups);
    payload.extend(escapes);
    payload.extend([0; 64]);
    payload
}

/// The first seven different exponents of a row, or ones that it has not.
fn dictionary(exponents: impl Iterator<Item = u8>, kind: Kind) -> [u8; 8] {
    let mut known = Vec::new();
    for exponent in exponents.filter(|_| kind != Kind::EscapesOnly) {
        if known.len() < 7 && !known.contains(&exponent) {
            known.push(exponent);
        }
    }
    // 254 may be a weight's: then it is found here, which is right as well.
    let first = known.first().copied().unwrap_or(254);
    known.resize(7, first);
    known.push(0xFF);
    known.try_into().expect("eight")
}

/// One case: shape and kinds decide everything, the seed included.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: usize,
    cols: usize,
    positions: usize,
    kind: Kind,
    class: Class,
}

/// Weights both ways.
struct Block {
    raw: Vec<u8>,
    payload: Vec<u8>,
}

impl Block {
    fn new(random: &mut Random, case: Case) -> Self {
        let Case {
            rows, cols, kind, ..
        } = case;
        let mut words: Vec<u16> = (0..rows * cols).map(|_| kind.weight(random)).collect();
        if case.class == Class::Wide {
            // Sums keep what their order of additions left over.
            for pair in words.chunks_exact_mut(4) {
                pair[1] = pair[0];
            }
        }
        Self {
            raw: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            payload: pack(&words, rows, cols, kind),
        }
    }
}

type Packed = fn(Bf16X3<'_>, Range<usize>, &[f32], usize, &mut [f32]);
type Plain = fn(&[u8], &[f32], usize, &mut [f32]);

/// A packed product and the one it must equal.
struct Kernel {
    name: &'static str,
    packed: fn(&KernelSet) -> Packed,
    plain: fn(&KernelSet) -> Plain,
}

const KERNELS: [Kernel; 2] = [
    Kernel {
        name: "matmul_bf16_x3",
        packed: |set| set.matmul_bf16_x3,
        plain: |set| set.matmul_bf16,
    },
    Kernel {
        name: "router_bf16_x3",
        packed: |set| set.router_bf16_x3,
        plain: |set| set.router_bf16,
    },
];

fn all_sets() -> impl Iterator<Item = &'static KernelSet> {
    Isa::ALL.into_iter().filter_map(KernelSet::for_isa)
}

fn check(case: Case) {
    let Case {
        rows,
        cols,
        positions,
        class,
        ..
    } = case;
    let random = &mut Random::new((cols * 1000 + rows * 20 + positions) as u64);
    let block = Block::new(random, case);
    let odd = random.below(32) as usize * 2 + 1;
    let payload = Bytes::new(&block.payload, odd);
    let weights = Bf16X3::new(payload.get(), rows, cols).expect("a sound payload");
    let mut x = values::f32s(random, class, positions * cols);
    values::oppose(class, &mut x, cols);
    let x = Floats::new(&x, odd);
    let first = random.below(u32::try_from(rows).expect("few")) as usize;
    let last = first + random.below(u32::try_from(rows - first + 1).expect("few")) as usize;
    for kernel in &KERNELS {
        let mut expected = unwritten(rows * positions);
        (kernel.plain)(scalar())(&block.raw, x.get(), positions, &mut expected);
        for set in all_sets() {
            for range in [0..rows, first..last] {
                let what = format!("{} {case:?} rows {range:?} {}", kernel.name, set.isa);
                let mut found = Floats::new(&unwritten(range.len() * positions), odd + 3);
                let of_range = &expected[range.start * positions..range.end * positions];
                (kernel.packed)(set)(weights, range, x.get(), positions, found.get_mut());
                found.check_surroundings(&what);
                assert_same(of_range, found.get(), &what);
            }
        }
    }
    for set in all_sets() {
        for range in [0..rows, first..last] {
            let what = format!("decode_bf16_x3 {case:?} rows {range:?} {}", set.isa);
            let bytes = range.start * cols * 2..range.end * cols * 2;
            let mut found = vec![0xA5; 64 + bytes.len() + 192];
            (set.decode_bf16_x3)(weights, range, &mut found[64..][..bytes.len()]);
            assert!(
                found[64..][..bytes.len()] == block.raw[bytes.clone()],
                "{what}"
            );
            let around = found[..64].iter().chain(&found[64 + bytes.len()..]);
            assert!(around.copied().all(|byte| byte == 0xA5), "{what}: around");
        }
    }
}

fn check_all(widths: impl IntoIterator<Item = usize>, rows: &[usize], positions: &[usize]) {
    let mut turn = 0;
    for cols in widths {
        for &rows in rows {
            for &positions in positions {
                for kind in Kind::ALL {
                    turn += 1;
                    let classes = Class::ALL.into_iter().enumerate();
                    for (_, class) in classes.filter(|(i, _)| slow() || (i + turn) % 6 == 0) {
                        check(Case {
                            rows,
                            cols,
                            positions,
                            kind,
                            class,
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn packed_products_equal_the_definition() {
    let widths = (1..=70).chain([95, 96, 97, 127, 128, 129, 191, 192, 193]);
    check_all(widths, &[1, 2, 3, 7, 8, 9, 17], &[1, 2, 3, 5, 8]);
}

#[test]
fn packed_products_of_every_batch_equal_the_definition() {
    let positions: Vec<usize> = (1..=9).chain([15, 16, 17]).collect();
    check_all([75, 333], &[1, 5, 23, 24, 25, 65], &positions);
}

#[test]
fn packed_products_of_long_rows_equal_the_definition() {
    let widths = [
        255, 256, 257, 319, 320, 511, 513, 640, 641, 1025, 2047, 2048, 2049, 2113, 3111,
    ];
    check_all(widths, &[1, 4, 9], &[1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn blocks_without_rows_or_columns_are_nothing() {
    for set in all_sets() {
        let payload = vec![0; 4 + 64];
        let weights = Bf16X3::new(&payload, 0, 5).expect("no rows");
        (set.matmul_bf16_x3)(weights, 0..0, &[1.0; 5], 1, &mut []);
        (set.router_bf16_x3)(weights, 0..0, &[1.0; 5], 1, &mut []);
        (set.decode_bf16_x3)(weights, 0..0, &mut []);
        let payload = vec![0; 4 * 3 + 8 * 2 + 64];
        let weights = Bf16X3::new(&payload, 2, 0).expect("no columns");
        let mut out = [1.0; 2];
        (set.matmul_bf16_x3)(weights, 0..2, &[], 1, &mut out);
        assert_eq!(out, [0.0; 2]);
        out = [1.0; 2];
        (set.router_bf16_x3)(weights, 0..2, &[], 1, &mut out);
        assert_eq!(out, [0.0; 2]);
        (set.decode_bf16_x3)(weights, 0..2, &mut []);
    }
}

/// A payload of noise whose lengths are sound, at the very end of what may be
/// read: no kernel reads a byte beyond it or before it, however many escapes the
/// codes ask for.
#[test]
fn noise_is_read_within_its_bounds() {
    let cases = if slow() { 5000 } else { 400 };
    for seed in 0..cases {
        let random = &mut Random::new(seed);
        let rows = 1 + random.below(12) as usize;
        let limit = random.pick(&[7, 70, 300, 700]);
        let cols = 1 + random.below(limit) as usize;
        let limit = random.pick(&[1, 3, 100]);
        let mut starts: Vec<u32> = (0..rows).map(|_| random.below(limit)).collect();
        starts.sort_unstable();
        starts.insert(0, 0);
        let escapes = *starts.last().expect("one a row") as usize;
        let mut payload: Vec<u8> = starts.iter().flat_map(|s| s.to_le_bytes()).collect();
        let fixed = rows * (8 + 11 * cols.div_ceil(8));
        payload.extend(values::bytes(random, fixed + escapes + 64));
        if random.below(2) == 0 {
            // Escapes, all of them.
            let groups = 4 * (rows + 1) + 8 * rows;
            payload[groups..groups + rows * 11 * cols.div_ceil(8)].fill(0xFF);
            for row in 0..rows {
                payload[4 * (rows + 1) + 8 * row + 7] = 0xFF;
            }
        }
        let guarded = Guarded::new(&payload);
        let weights = Bf16X3::new(guarded.get(), rows, cols).expect("sound lengths");
        let positions = 1 + random.below(9) as usize;
        let x = vec![1.0; positions * cols];
        for set in all_sets() {
            let what = format!("noise {seed} {}", set.isa);
            for kernel in &KERNELS {
                let mut out = Floats::new(&unwritten(rows * positions), 1);
                (kernel.packed)(set)(weights, 0..rows, &x, positions, out.get_mut());
                out.check_surroundings(&what);
            }
            let bytes = 2 * rows * cols;
            let mut out = vec![0xA5; bytes + 192];
            (set.decode_bf16_x3)(weights, 0..rows, &mut out[..bytes]);
            assert!(out[bytes..].iter().all(|&byte| byte == 0xA5), "{what}");
        }
    }
}
