//! The generator of every random number here: splitmix64, seeded by a name.
//!
//! A tensor's values depend on the seed and on the tensor's own name alone, so
//! checkpoints that differ only in layout (shards, order, prefix) hold the same
//! numbers and must give the same logits.

/// A splitmix64 stream.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A stream that depends on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream that depends on `seed` and `name` (FNV-1a of the name's bytes).
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut rng = Self::new(seed);
        rng.state = rng.next_u64() ^ hash;
        rng
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.next_u64().to_le_bytes()[7]
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "below(0) has no value to return");
        let bound = bound as u64;
        // The bias of the remainder is below 2^-32 for the bounds in use.
        usize::try_from(self.next_u64() % bound).expect("below a usize")
    }

    /// A number in `low..high`, of 53 random bits.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        low + unit * (high - low)
    }

    /// A bell-shaped number of mean 0 and variance 1, bounded by ±3.5: four
    /// uniform ones summed, so that no logarithm is needed.
    pub fn bell(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.between(-1.0, 1.0)).sum();
        sum * 0.75_f64.sqrt()
    }

    /// A random order of `0..count`.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test sequence of splitmix64 for seed 1234567.
    #[test]
    fn gives_the_published_sequence() {
        let mut rng = Rng::new(1_234_567);
        let got: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn bell_has_unit_variance_and_no_offset() {
        let mut rng = Rng::named(1, "bell");
        let draws: Vec<f64> = (0..20_000).map(|_| rng.bell()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn order_is_a_permutation_and_names_separate_streams() {
        let mut order = Rng::named(1, "a").order(97);
        assert_ne!(order, Rng::named(1, "b").order(97));
        order.sort_unstable();
        assert_eq!(order, (0..97).collect::<Vec<_>>());
    }
}
