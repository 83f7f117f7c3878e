//! How often bytes occur, and the least bits that says.

/// How often each byte occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByteCounts(pub(super) [u64; 256]);

impl Default for ByteCounts {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl ByteCounts {
    /// Those of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut counts = Self::default();
        counts.add(bytes);
        counts
    }

    /// Counts `bytes` too.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0[usize::from(byte)] += 1;
        }
    }

    /// Distinct bytes that occur.
    pub(super) fn distinct(&self) -> usize {
        self.0.iter().filter(|&&count| count > 0).count()
    }

    /// Shannon's entropy in bits a byte; 0 when nothing was counted.
    pub(super) fn entropy_bits(&self) -> f64 {
        entropy_bits(&self.0)
    }

    /// Counts of the sixteen values of half bytes.
    pub(super) fn halves(&self) -> [u64; 16] {
        let mut halves = [0; 16];
        for (byte, count) in self.0.iter().enumerate() {
            halves[byte & 15] += count;
            halves[byte >> 4] += count;
        }
        halves
    }
}

/// Symbols under the conditions that they occur in.
#[derive(Debug, Clone)]
pub(super) struct Joint<const N: usize>(Vec<[u64; N]>);

impl<const N: usize> Default for Joint<N> {
    fn default() -> Self {
        Self(vec![[0; N]; 256])
    }
}

impl<const N: usize> Joint<N> {
    /// One more of `symbol` under `condition`.
    pub(super) fn add(&mut self, condition: u8, symbol: u8) {
        self.0[usize::from(condition)][usize::from(symbol)] += 1;
    }

    /// Bits a symbol for one who knows its condition.
    pub(super) fn conditional_bits(&self) -> f64 {
        let count = |row: &[u64; N]| row.iter().sum::<u64>() as f64;
        let total: f64 = self.0.iter().map(count).sum();
        if total == 0.0 {
            return 0.0;
        }
        let weighted = self.0.iter().map(|row| count(row) * entropy_bits(row));
        weighted.sum::<f64>() / total
    }
}

/// Shannon's entropy in bits a symbol; 0 when nothing was counted.
pub(super) fn entropy_bits(counts: &[u64]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    let occurring = counts.iter().filter(|&&count| count > 0);
    let bits = occurring.map(|&count| {
        let share = count as f64 / total;
        -share * share.log2()
    });
    bits.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_that_of_known_sources() {
        assert_eq!(entropy_bits(&[]), 0.0);
        assert_eq!(entropy_bits(&[0, 0]), 0.0);
        assert_eq!(entropy_bits(&[7]), 0.0);
        assert_eq!(entropy_bits(&[3; 16]), 4.0);
        // 1/2, 1/4, 1/8, 1/8.
        assert_eq!(entropy_bits(&[4, 2, 1, 1]), 1.75);
    }

    #[test]
    fn halves_count_both_of_a_byte() {
        let halves = ByteCounts::of(&[0x1f, 0xf1, 0x11]).halves();
        assert_eq!((halves[1], halves[15], halves[0]), (4, 2, 0));
    }

    #[test]
    fn a_condition_that_tells_everything_leaves_nothing() {
        let mut told = Joint::<16>::default();
        let mut untold = Joint::<16>::default();
        for symbol in 0..16_u8 {
            told.add(symbol + 100, symbol);
            untold.add(9, symbol);
        }
        assert_eq!(told.conditional_bits(), 0.0);
        assert_eq!(untold.conditional_bits(), 4.0);
    }
}
