//! Seeded values of several classes.

/// `SplitMix64`: small, seedable, the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let high = ((self.bits() >> 32) * u64::from(bound)) >> 32;
        u32::try_from(high).expect("below a u32")
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let bound = u32::try_from(choices.len()).expect("short");
        choices[self.below(bound) as usize]
    }
}

/// Epsilons of the norms: the released one, another, none, and one that outweighs values.
pub(crate) const EPSILONS: [f32; 4] = [1e-5, 1e-6, 0.0, 1.0];

/// A class of f32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Magnitudes from 2^-4 to 2^4, any mantissa.
    Ordinary,
    /// Magnitudes from 2^-40 to 2^40; dot products also make their terms cancel
    /// in pairs, so that sums keep what their order of additions left over.
    Wide,
    /// Any finite bit pattern, subnormals included.
    Finite,
    /// Zeros of both signs and subnormals among ordinary values.
    Small,
    /// Ordinary values with infinities and NaNs among them.
    Special,
    /// Any bit pattern.
    Any,
}

impl Class {
    pub(crate) const ALL: [Self; 6] = [
        Self::Ordinary,
        Self::Wide,
        Self::Finite,
        Self::Small,
        Self::Special,
        Self::Any,
    ];
}

/// Bit patterns worth meeting: zeros, the smallest and largest subnormals, the
/// smallest normal, one, the largest finite values.
const EDGES: [u32; 10] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x007F_FFFF,
    0x807F_FFFF,
    0x0080_0000,
    0x3F80_0000,
    0x7F7F_FFFF,
    0xFF7F_FFFF,
];

/// Infinities and NaNs, quiet and signalling, of both signs.
const SPECIALS: [u32; 6] = [
    0x7F80_0000,
    0xFF80_0000,
    0x7FC0_0000,
    0xFFC0_0001,
    0x7FA0_0000,
    0x7F81_0000,
];

fn with_exponent(random: &mut Random, exponent: u32) -> u32 {
    let bits = u32::try_from(random.bits() >> 32).expect("32 bits");
    bits & 0x807F_FFFF | exponent << 23
}

/// The bits of one f32 of `class`.
fn f32_bits(random: &mut Random, class: Class) -> u32 {
    let chance = random.below(16);
    match class {
        Class::Ordinary => {
            let exponent = 123 + random.below(9);
            with_exponent(random, exponent)
        }
        Class::Wide => {
            let exponent = 87 + random.below(81);
            with_exponent(random, exponent)
        }
        Class::Finite if chance < 2 => random.pick(&EDGES),
        Class::Finite => {
            let exponent = random.below(255);
            with_exponent(random, exponent)
        }
        Class::Small if chance < 5 => random.pick(&EDGES[..2]),
        Class::Small if chance < 9 => with_exponent(random, 0),
        Class::Special if chance < 1 => random.pick(&SPECIALS),
        Class::Special if chance < 2 => random.pick(&EDGES),
        Class::Small | Class::Special => f32_bits(random, Class::Ordinary),
        Class::Any => u32::try_from(random.bits() >> 32).expect("32 bits"),
    }
}

/// `len` values of `class`.
pub(crate) fn f32s(random: &mut Random, class: Class, len: usize) -> Vec<f32> {
    (0..len)
        .map(|_| f32::from_bits(f32_bits(random, class)))
        .collect()
}

/// `len` bf16 values of `class` as little-endian bytes.
pub(crate) fn bf16_bytes(random: &mut Random, class: Class, len: usize) -> Vec<u8> {
    (0..len)
        .flat_map(|_| {
            let [_, _, low, high] = f32_bits(random, class).to_le_bytes();
            [low, high]
        })
        .collect()
}

/// `len` f32 values of `class` as little-endian bytes.
pub(crate) fn f32_bytes(random: &mut Random, class: Class, len: usize) -> Vec<u8> {
    (0..len)
        .flat_map(|_| f32_bits(random, class).to_le_bytes())
        .collect()
}

/// `len` bytes, every nibble as likely as any other.
pub(crate) fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| u8::try_from(random.below(256)).expect("a byte"))
        .collect()
}

/// `len` E8M0 scales: near 1 in the ordinary class, else also the extremes and
/// NaN.
pub(crate) fn scales(random: &mut Random, class: Class, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| {
            let near_one = 120 + random.below(12);
            let extreme = random.pick(&[0, 1, 2, 126, 127, 253, 254, 255]);
            let edge = class != Class::Ordinary && random.below(4) == 0;
            u8::try_from(if edge { extreme } else { near_one }).expect("a byte")
        })
        .collect()
}

/// Makes element `i + 1` of every row of `cols` equal to element `i`, or its
/// negation, for every fourth `i`.
fn pair<T: Copy>(values: &mut [T], cols: usize, second: impl Fn(T) -> T) {
    for row in values.chunks_exact_mut(cols.max(1)) {
        for i in (0..cols.saturating_sub(1)).step_by(4) {
            row[i + 1] = second(row[i]);
        }
    }
}

/// One side of a cancelling dot product: pairs of opposite activations.
pub(crate) fn oppose(class: Class, x: &mut [f32], cols: usize) {
    if class == Class::Wide {
        pair(x, cols, |x| -x);
    }
}

/// The other side: pairs of equal weights of `N` bytes.
pub(crate) fn repeat<const N: usize>(class: Class, weights: &mut [u8], cols: usize) {
    if class == Class::Wide {
        pair(weights.as_chunks_mut::<N>().0, cols, |weight| weight);
    }
}

/// As [`repeat`] for f32 values.
pub(crate) fn repeat_f32(class: Class, values: &mut [f32], cols: usize) {
    if class == Class::Wide {
        pair(values, cols, |value| value);
    }
}

/// As [`repeat`] for packed nibbles: both nibbles of every other byte equal.
pub(crate) fn repeat_nibbles(class: Class, packed: &mut [u8]) {
    if class == Class::Wide {
        for byte in packed.iter_mut().step_by(2) {
            *byte = *byte & 15 | *byte << 4;
        }
    }
}
