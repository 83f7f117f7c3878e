//! Seeded activations.

/// `SplitMix64`: small, seedable, the same everywhere.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), in steps of 2^-24.
    fn unit(&mut self) -> f32 {
        let high = u32::try_from(self.bits() >> 40).expect("24 bits");
        #[allow(clippy::cast_precision_loss, reason = "24 bits are exact")]
        let value = high as f32;
        value / 16_777_216.0
    }

    /// Uniform between two bounds.
    pub(crate) fn between(&mut self, low: f32, high: f32, len: usize) -> Vec<f32> {
        (0..len).map(|_| low + (high - low) * self.unit()).collect()
    }

    /// Nearly normal, mean 0, deviation 1: the sum of twelve uniform values.
    pub(crate) fn normal(&mut self, len: usize) -> Vec<f32> {
        let one = |_| (0..12).map(|_| self.unit()).sum::<f32>() - 6.0;
        (0..len).map(one).collect()
    }

    /// As [`Random::normal`], scaled to length 1.
    pub(crate) fn direction(&mut self, len: usize) -> Vec<f32> {
        let mut values = self.normal(len);
        let length = values.iter().map(|v| v * v).sum::<f32>().sqrt();
        values.iter_mut().for_each(|v| *v /= length);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_have_mean_0_and_deviation_1() {
        let values = Random::new(1).normal(10_000);
        let mean = values.iter().sum::<f32>() / 1e4;
        let square = values.iter().map(|v| v * v).sum::<f32>() / 1e4;
        assert!(
            mean.abs() < 0.05 && (square - 1.0).abs() < 0.05,
            "{mean} {square}"
        );
        assert_eq!(values, Random::new(1).normal(10_000));
        assert_ne!(values, Random::new(2).normal(10_000));
    }
}
