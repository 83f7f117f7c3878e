//! Which ranges to look at.

use std::str::FromStr;

use crate::basis::{Basis, Source};
use crate::error::IntegrityError;

/// Which ranges to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// All of them.
    All,
    /// Some of them, drawn from a seed.
    Sample {
        /// How much.
        amount: SampleAmount,
        /// What the draw follows from.
        seed: u64,
    },
    /// Those of one layer.
    Layer(u16),
}

/// How much to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleAmount {
    /// At least this share of all bytes, from 0 to 1.
    Share(f64),
    /// So many ranges.
    Count(u64),
}

impl FromStr for SampleAmount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a share, as in 5%, or a number of ranges, as in 200".to_owned();
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
            let fits = percent > 0.0 && percent <= 100.0;
            return if fits {
                Ok(Self::Share(percent / 100.0))
            } else {
                Err(wrong())
            };
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(wrong()),
            Ok(count) => Ok(Self::Count(count)),
        }
    }
}

impl Selection {
    /// Numbers of the ranges, ascending.
    ///
    /// # Errors
    ///
    /// A layer that is not there, or where no layers are known.
    pub(super) fn of(self, basis: &Basis) -> Result<Vec<usize>, IntegrityError> {
        let all = 0..basis.ranges.len();
        match self {
            Self::All => Ok(all.collect()),
            Self::Sample { amount, seed } => Ok(sample(basis, amount, seed)),
            Self::Layer(layer) => {
                if matches!(basis.source, Source::Record { .. }) {
                    return Err(IntegrityError::LayersUnknown);
                }
                let chosen: Vec<usize> = all
                    .filter(|&range| basis.ranges[range].content.layer() == Some(layer))
                    .collect();
                if chosen.is_empty() {
                    let count = basis.layer_count();
                    return Err(IntegrityError::NoSuchLayer { layer, count });
                }
                Ok(chosen)
            }
        }
    }
}

fn sample(basis: &Basis, amount: SampleAmount, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..basis.ranges.len()).collect();
    let total_bytes = basis.total_bytes();
    let mut random = SplitMix(seed);
    let (mut taken, mut bytes) = (0, 0_u64);
    while taken < order.len() {
        let is_enough = match amount {
            SampleAmount::Count(count) => taken as u64 >= count,
            #[allow(clippy::cast_precision_loss, reason = "a share of what is there")]
            SampleAmount::Share(share) => bytes as f64 >= share * total_bytes as f64,
        };
        if is_enough {
            break;
        }
        let left = (order.len() - taken) as u64;
        let pick = taken + usize::try_from(random.next() % left).expect("an index");
        order.swap(taken, pick);
        bytes += basis.ranges[order[taken]].bytes;
        taken += 1;
    }
    order.truncate(taken);
    order.sort_unstable();
    order
}

/// A small generator (Steele, Lea and Flood, 2014): the draw is the same on
/// every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shares_or_counts() {
        assert_eq!("5%".parse(), Ok(SampleAmount::Share(0.05)));
        assert_eq!("0.5 %".parse(), Ok(SampleAmount::Share(0.005)));
        assert_eq!("200".parse(), Ok(SampleAmount::Count(200)));
        for wrong in ["", "0", "0%", "101%", "-1", "x%", "nan%", "1.5"] {
            wrong.parse::<SampleAmount>().unwrap_err();
        }
    }
}
