//! Pools of values from which rows are drawn, and the numbers that pick from
//! them.
//!
//! A pool holds a distribution exactly: each value as often as it is likely,
//! in a fixed order without pattern. A *window* is [`WINDOW`] values from any
//! place of a pool with signs of its own; it costs one hash instead of one per
//! value. Two windows may overlap, but their signs are independent, so no two
//! values of a tensor are correlated.
//!
//! Only basic f64 and f32 operations are used: the tables are the same on
//! every machine.

use super::statistics::{SCALE_COUNT, SCALE_STATISTICS};

/// Values drawn with one hash.
pub(super) const WINDOW: usize = 8;

/// Bell-shaped magnitudes in the pool.
const BELL_POOL: usize = 1 << 15;
/// Bytes of two E2M1 magnitudes in each pool.
const NIBBLE_POOL: usize = 1 << 16;
/// Scale bytes in the pool: a multiple of the sample's groups, so that the
/// frequencies are the sample's exactly.
const SCALE_POOL: usize = 8 * 7168;

/// The sign bits of eight packed bytes.
const NIBBLE_SIGNS: u64 = 0x8888_8888_8888_8888;

/// The pools; about half a megabyte.
#[derive(Debug)]
pub(super) struct Tables {
    /// Standard normal magnitudes.
    bell: Vec<f32>,
    /// Sign bits of a window of f32, by a byte.
    signs: Vec<[u32; WINDOW]>,
    /// Indices into [`SCALE_STATISTICS`].
    scales: Vec<u8>,
    /// Two magnitudes a byte, by scale.
    nibbles: [Vec<u8>; SCALE_COUNT],
}

impl Tables {
    pub(super) fn new() -> Self {
        let scales = apportioned(SCALE_STATISTICS.map(|entry| entry.group_count), SCALE_POOL);
        let nibbles = SCALE_STATISTICS.map(|entry| {
            let magnitudes = apportioned(entry.magnitude_counts, 2 * NIBBLE_POOL);
            let pairs = magnitudes.chunks_exact(2);
            wrapped(pairs.map(|pair| pair[0] | pair[1] << 4).collect())
        });
        Self {
            bell: bell_pool(),
            signs: (0..256_u32).map(sign_bits).collect(),
            scales: wrapped(scales),
            nibbles,
        }
    }

    /// Standard normal values.
    #[inline]
    pub(super) fn bell(&self, hash: u64) -> [f32; WINDOW] {
        let magnitudes = window(&self.bell, hash);
        let signs = &self.signs[(hash & 0xff) as usize];
        std::array::from_fn(|lane| f32::from_bits(magnitudes[lane].to_bits() ^ signs[lane]))
    }

    /// Scales of eight groups, as indices into [`SCALE_STATISTICS`].
    #[inline]
    pub(super) fn scales(&self, hash: u64) -> &[u8; WINDOW] {
        window(&self.scales, hash)
    }

    /// Sixteen E2M1 values of a group with this scale, packed.
    #[inline]
    pub(super) fn nibbles(&self, scale: u8, hash: u64) -> [u8; WINDOW] {
        // The place must not depend on the sign bits alone: the product's upper
        // half depends on every bit of the hash.
        let place = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let magnitudes = window(&self.nibbles[usize::from(scale)], place);
        let signs = hash & NIBBLE_SIGNS;
        (u64::from_le_bytes(*magnitudes) ^ signs).to_le_bytes()
    }
}

/// The window that the upper half of a hash names.
#[inline]
fn window<T>(pool: &[T], hash: u64) -> &[T; WINDOW] {
    let places = (pool.len() - (WINDOW - 1)) as u64;
    let place = ((hash >> 32) * places) >> 32;
    let place = usize::try_from(place).expect("below the pool's length");
    pool[place..]
        .first_chunk()
        .expect("pools are as much longer than their places")
}

/// Repeats the beginning at the end, so that every value is in equally many
/// windows.
fn wrapped<T: Copy>(mut pool: Vec<T>) -> Vec<T> {
    pool.extend_from_within(..WINDOW - 1);
    pool
}

fn sign_bits(byte: u32) -> [u32; WINDOW] {
    let mut lane = 0;
    [(); WINDOW].map(|()| {
        let sign = (byte >> lane & 1) << 31;
        lane += 1;
        sign
    })
}

/// `len` indices, each as often as its count says, in a fixed order.
fn apportioned<const N: usize>(counts: [u32; N], len: usize) -> Vec<u8> {
    let total: u64 = counts.iter().copied().map(u64::from).sum();
    let mut pool = Vec::with_capacity(len);
    let mut sum = 0;
    for (index, count) in (0_u8..).zip(counts) {
        sum += u64::from(count);
        // The end of this index's share, rounded to nearest.
        let end = (sum * len as u64 * 2 + total) / (2 * total);
        pool.resize(usize::try_from(end).expect("at most `len`"), index);
    }
    shuffle(&mut pool);
    pool
}

/// Magnitudes at the middle of equally likely intervals of the half-normal
/// distribution, in a fixed order.
fn bell_pool() -> Vec<f32> {
    const STEPS_PER_UNIT: u32 = 4096;
    const LIMIT: u32 = 6;
    let density = |step: f64| {
        let x = step / f64::from(STEPS_PER_UNIT);
        exp(-0.5 * x * x)
    };
    // Simpson's rule; the sum runs to the square root of pi / 2.
    let total = (std::f64::consts::PI / 2.0).sqrt();
    let mut pool = Vec::with_capacity(BELL_POOL);
    let mut area = 0.0;
    for step in 0..LIMIT * STEPS_PER_UNIT {
        let begin = f64::from(step);
        let values = [density(begin), density(begin + 0.5), density(begin + 1.0)];
        let strip = (values[0] + 4.0 * values[1] + values[2]) / 6.0 / f64::from(STEPS_PER_UNIT);
        while pool.len() < BELL_POOL {
            let wanted = (pool.len() as f64 + 0.5) / BELL_POOL as f64 * total;
            if wanted >= area + strip {
                break;
            }
            let x = (begin + (wanted - area) / strip) / f64::from(STEPS_PER_UNIT);
            pool.push(narrow(x));
        }
        area += strip;
    }
    assert_eq!(pool.len(), BELL_POOL, "six deviations hold every interval");
    shuffle(&mut pool);
    wrapped(pool)
}

fn shuffle<T>(pool: &mut [T]) {
    for last in (1..pool.len()).rev() {
        let hash = counter_hash(pool.len() as u64, last as u64);
        let other = (u128::from(hash) * (last as u128 + 1)) >> 64;
        pool.swap(last, usize::try_from(other).expect("at most `last`"));
    }
}

/// A well-mixed number of a stream (`key`) and a place in it: splitmix64.
#[inline]
pub(super) fn counter_hash(key: u64, counter: u64) -> u64 {
    let z = key.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// e^x to about 13 digits for |x| up to 64, of basic operations.
pub(super) fn exp(x: f64) -> f64 {
    const SQUARINGS: u32 = 10;
    let y = x / f64::from(1_u32 << SQUARINGS);
    let series = (1..=9)
        .rev()
        .fold(1.0, |sum, n| 1.0 + y / f64::from(n) * sum);
    (0..SQUARINGS).fold(series, |power, _| power * power)
}

/// To the nearest f32.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the callers' values lie within f32's range; rounding is wanted"
)]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_good_to_twelve_digits() {
        // e, its square root, and the smallest value asked for.
        for (x, want) in [
            (0.0, 1.0),
            (1.0, std::f64::consts::E),
            (-18.0, 1.522_997_974_471_263e-8),
            (0.5, 1.648_721_270_700_128_2),
        ] {
            assert!((exp(x) / want - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn the_bell_has_its_moments_and_tails() {
        let pool = &bell_pool()[..BELL_POOL];
        let mean = |power: i32| {
            let sum: f64 = pool.iter().map(|&x| f64::from(x).powi(power)).sum();
            sum / BELL_POOL as f64
        };
        // E|x| = sqrt(2 / pi), E x^2 = 1, E x^4 = 3.
        assert!((mean(1) - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-4);
        assert!((mean(2) - 1.0).abs() < 1e-3, "{}", mean(2));
        assert!((mean(4) - 3.0).abs() < 2e-2, "{}", mean(4));
        let beyond = |limit: f32| pool.iter().filter(|&&x| x > limit).count();
        // Two-sided tails: 31.73 %, 4.55 %, 0.27 %.
        for (limit, want) in [(1.0, 0.317_31), (2.0, 0.045_50), (3.0, 0.002_700)] {
            let share = beyond(limit) as f64 / BELL_POOL as f64;
            assert!((share - want).abs() < 1e-4, "{limit}: {share}");
        }
    }

    #[test]
    fn neighbours_in_a_pool_are_not_alike() {
        let pool = bell_pool();
        let centred = |x: f32| f64::from(x) - 0.797_884_56;
        for distance in 1..WINDOW {
            let pairs = pool.iter().zip(&pool[distance..]);
            let sum: f64 = pairs.map(|(&a, &b)| centred(a) * centred(b)).sum();
            // The variance of |x| is 0.3634; five standard errors.
            let bound = 5.0 * 0.3634 / (BELL_POOL as f64).sqrt();
            assert!((sum / BELL_POOL as f64).abs() < bound, "{distance}");
        }
    }

    #[test]
    fn shares_are_rounded_to_the_nearest() {
        let pool = apportioned([1, 0, 2], 10);
        let count = |index| pool.iter().filter(|&&found| found == index).count();
        assert_eq!([count(0), count(1), count(2)], [3, 0, 7]);
        assert!(!pool.is_sorted(), "{pool:?}");
    }
}
