//! Products of MXFP4 weights with prepared activations: the same bits as
//! without, whatever the activations, the scales and the rows.

use crate::buffers::{Bytes, Floats};
use crate::compare::{against_scalar, assert_same, unwritten};
use crate::values::{self, Class, Random};
use crate::{scalar, slow};
use k3_kernels::{Isa, KernelSet, Mxfp4Group};

/// What the activations look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sums of uniform values: nearly every group qualifies for integers.
    Gaussian,
    /// The cube of such a sum, as products of activations are: few do.
    Cubed,
    /// Exponents up to exactly the largest span that qualifies, and one beyond,
    /// with all bits of the significands in use.
    Span,
    /// Subnormals alone.
    Subnormal,
    /// Zeros of both signs, whole groups of them, and a few values.
    Sparse,
    /// A class of the other products.
    Class(Class),
}

const KINDS: [Kind; 11] = [
    Kind::Gaussian,
    Kind::Cubed,
    Kind::Span,
    Kind::Subnormal,
    Kind::Sparse,
    Kind::Class(Class::Ordinary),
    Kind::Class(Class::Wide),
    Kind::Class(Class::Finite),
    Kind::Class(Class::Small),
    Kind::Class(Class::Special),
    Kind::Class(Class::Any),
];

fn gaussian(random: &mut Random) -> f32 {
    let sum: u32 = (0..6).map(|_| random.below(1 << 20)).sum();
    let unit = 1.0 / f64::from(1_u32 << 20);
    let value = f64::from(sum) * unit - 3.0;
    // Through f32 bits that are not round numbers.
    f32::from_bits(value_bits(value * 1.000_061))
}

/// The bits of the f32 nearest to `value`.
fn value_bits(value: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "a test value, rounded")]
    let rounded = value as f32;
    rounded.to_bits()
}

fn activations(random: &mut Random, kind: Kind, len: usize) -> Vec<f32> {
    let largest_field = 16 + random.below(200);
    let span = 14 + random.below(2);
    let zero_groups = random.bits();
    let mut one = |i: usize| match kind {
        Kind::Gaussian => gaussian(random),
        Kind::Cubed => gaussian(random).powi(3),
        Kind::Span => {
            let below = match random.below(8) {
                0 => 0,
                1 => span,
                _ => random.below(span),
            };
            let significand = random.pick(&[0x7F_FFFF, 0x7F_7F7F, 0x00_8080, 0x2A_5A5A, 0]);
            let sign = random.below(2) << 31;
            f32::from_bits(sign | (largest_field - below) << 23 | significand)
        }
        Kind::Subnormal => f32::from_bits(random.below(2) << 31 | random.below(1 << 23)),
        Kind::Sparse => {
            let zero = zero_groups >> (i / 32 % 64) & 1 == 0 || random.below(4) > 0;
            let value = gaussian(random);
            if zero { 0.0 * value } else { value }
        }
        Kind::Class(_) => 0.0,
    };
    let mut values: Vec<f32> = (0..len).map(&mut one).collect();
    if let Kind::Class(class) = kind {
        values = values::f32s(random, class, len);
    }
    values
}

/// Scale bytes near one, or all of them alike.
fn scales(random: &mut Random, len: usize) -> Vec<u8> {
    const EXTREMES: [u8; 6] = [0, 1, 253, 254, 255, 127];
    let choice = random.below(10);
    let near = |random: &mut Random| u8::try_from(110 + random.below(30)).expect("a byte");
    (0..len)
        .map(|_| match choice {
            0..4 => near(random),
            4 => EXTREMES[random.below(6) as usize],
            _ if random.below(4) == 0 => EXTREMES[random.below(6) as usize],
            _ => near(random),
        })
        .collect()
}

/// Positions of `x` in any order, with repetitions.
fn choose(random: &mut Random, positions: usize, count: usize) -> Vec<usize> {
    let bound = u32::try_from(positions).expect("few");
    (0..count).map(|_| random.below(bound) as usize).collect()
}

fn check(rows: usize, cols: usize, count: usize, kind: Kind, seed: u64) {
    let random = &mut Random::new(seed << 40 | (rows * 65_536 + cols * 64 + count) as u64);
    let what = format!("{rows} x {cols}, {count} positions, {kind:?}, seed {seed}");
    let odd = random.below(32) as usize * 2 + 1;
    let positions = count + 2;
    let packed = Bytes::new(&values::bytes(random, rows * cols / 2), odd);
    let scales = Bytes::new(&scales(random, rows * cols / 32), odd + 2);
    let x = activations(random, kind, positions * cols);
    let x = Floats::new(&x, odd);
    let chosen = choose(random, positions, count);
    let nan_scales = scales.get().iter().filter(|&&scale| scale == 255).count() as u64;
    let prepare = |set: &KernelSet| {
        let mut prepared = vec![Mxfp4Group::default(); positions * cols / 32];
        (set.mxfp4_prepare)(x.get(), &mut prepared);
        prepared
    };
    let out = against_scalar(&what, &unwritten(rows * count), odd, |set, out| {
        let skipped = (set.matmul_mxfp4_prepared)(
            packed.get(),
            scales.get(),
            x.get(),
            &prepare(set),
            &chosen,
            out,
        );
        assert_eq!(skipped, nan_scales, "{what}, {}: skipped groups", set.isa);
    });
    let gathered: Vec<f32> = chosen
        .iter()
        .flat_map(|&position| &x.get()[position * cols..][..cols])
        .copied()
        .collect();
    let mut plain = unwritten(rows * count);
    (scalar().matmul_mxfp4)(packed.get(), scales.get(), &gathered, count, &mut plain);
    assert_same(&plain, &out, &format!("{what}, not prepared"));
}

#[test]
fn prepared_products_equal_the_definition() {
    let seeds = if slow() { 40 } else { 4 };
    for seed in 0..seeds {
        for kind in KINDS {
            for (rows, cols, count) in [
                (1, 32, 1),
                (15, 64, 3),
                (16, 96, 1),
                (17, 128, 2),
                (31, 32, 9),
                (33, 224, 8),
                (48, 2080, 1),
                (5, 2144, 10),
            ] {
                check(rows, cols, count, kind, seed);
            }
        }
    }
}

#[test]
fn every_row_count_equals_the_definition() {
    for rows in 1..=50 {
        for kind in KINDS {
            check(rows, 64, 1 + rows % 5, kind, 1);
        }
    }
}

/// Every nibble at every place, with activations of every magnitude a group may
/// have beside them.
#[test]
fn every_nibble_at_every_place_is_exact() {
    let x: Vec<f32> = (0..32_u8)
        .map(|i| 1.000_000_1 * f32::from(i + 1) * 2.0_f32.powi(i32::from(i % 10)))
        .collect();
    let mut prepared = [Mxfp4Group::default()];
    (scalar().mxfp4_prepare)(&x, &mut prepared);
    for place in 0..32 {
        for nibble in 0..16_u8 {
            let mut packed = vec![0_u8; 16];
            packed[place / 2] = nibble << (4 * (place % 2));
            let what = format!("nibble {nibble} at {place}");
            let out = against_scalar(&what, &unwritten(1), 0, |set, out| {
                (set.matmul_mxfp4_prepared)(&packed, &[127], &x, &prepared, &[0], out);
            });
            let value = k3_kernels::e2m1_value(nibble) * f64::from(x[place]);
            assert_eq!(
                f64::from(out[0]),
                f64::from(f32::from_bits(value_bits(value)))
            );
        }
    }
}

/// A set must not depend on which set prepared, or on what was there before.
#[test]
fn preparation_is_the_same_in_every_set() {
    for kind in KINDS {
        let x = activations(&mut Random::new(9), kind, 320);
        let mut expected = [Mxfp4Group::default(); 10];
        (scalar().mxfp4_prepare)(&x, &mut expected);
        for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
            let mut found = [Mxfp4Group::default(); 10];
            (set.mxfp4_prepare)(&x, &mut found);
            assert_eq!(found, expected, "{}, {kind:?}", set.isa);
        }
    }
}
