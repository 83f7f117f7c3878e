//! What a packed trunk was asked to be, and the names of its files.

use std::fmt;
use std::str::FromStr;

use crate::identity::Identity;

/// Most files that a trunk is spread over.
pub const STRIPES_MAX: usize = 64;

/// First bytes of what is hashed, so that no other use of BLAKE3 can give the
/// same digest.
const DOMAIN: &[u8] = b"k3 packed trunk set 1\0";

/// Which codecs a packer may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CodecChoice {
    /// For each block the one that takes the least space.
    #[default]
    Auto,
    /// None: blocks as in the checkpoint.
    Raw,
}

impl CodecChoice {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Raw => "raw",
        }
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for CodecChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Auto, Self::Raw]
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| format!("`{text}` is neither `auto` nor `raw`"))
    }
}

/// Everything that, beside the weights, decides the bytes of a packed trunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetDescription {
    /// The checkpoint.
    pub identity: Identity,
    /// Largest block, in raw bytes.
    pub block_bytes: u64,
    /// How many parts of the blocks each stripe takes.
    pub weights: Vec<u32>,
    /// Codecs that may be used.
    pub codec: CodecChoice,
}

impl SetDescription {
    /// The name of a set of stripe files: BLAKE3 over all fields.
    pub fn id(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        hasher.update(self.identity.as_bytes());
        hasher.update(&self.block_bytes.to_le_bytes());
        hasher.update(&(self.weights.len() as u64).to_le_bytes());
        for weight in &self.weights {
            hasher.update(&weight.to_le_bytes());
        }
        hasher.update(&[self.codec as u8]);
        *hasher.finalize().as_bytes()
    }

    /// The stripe of each block, given their raw sizes in sweep order: always
    /// the one that is least full for its weight, the first of equals. Each
    /// stretch of a sweep is so spread over all stripes, which lie on disks of
    /// their own and are read at the same time.
    ///
    /// # Panics
    ///
    /// Without weights, or with a weight of zero.
    pub fn stripes(&self, raw_bytes: impl IntoIterator<Item = u64>) -> Vec<u16> {
        assert!(!self.weights.is_empty() && !self.weights.contains(&0));
        let mut filled = vec![0_u64; self.weights.len()];
        let choose = |bytes: u64| {
            // Fractions are compared by cross products: no rounding.
            let share = |stripe: usize| u128::from(filled[stripe] + bytes);
            let weight = |stripe: usize| u128::from(self.weights[stripe]);
            let mut best = 0;
            for stripe in 1..self.weights.len() {
                if share(stripe) * weight(best) < share(best) * weight(stripe) {
                    best = stripe;
                }
            }
            filled[best] += bytes;
            u16::try_from(best).expect("stripes are few")
        };
        raw_bytes.into_iter().map(choose).collect()
    }
}

/// Name of stripe `index` of `count`, in the directory of its own.
///
/// ```
/// let name = k3_formats::trunk::stripe_file_name(0, 2);
/// assert_eq!(name, "trunk-00-of-02.k3trunk");
/// assert_eq!(k3_formats::trunk::stripe_of_name(&name), Some((0, 2)));
/// ```
pub fn stripe_file_name(index: u16, count: u16) -> String {
    format!("trunk-{index:02}-of-{count:02}.k3trunk")
}

/// Index and count of the stripe with that file name; `None` for other names.
pub fn stripe_of_name(name: &str) -> Option<(u16, u16)> {
    let numbers = name.strip_prefix("trunk-")?.strip_suffix(".k3trunk")?;
    let (index, count) = numbers.split_once("-of-")?;
    let (index, count) = (index.parse().ok()?, count.parse().ok()?);
    (stripe_file_name(index, count) == name).then_some((index, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> SetDescription {
        SetDescription {
            identity: Identity::from_bytes([7; 32]),
            block_bytes: 4 << 20,
            weights: vec![2, 1],
            codec: CodecChoice::Auto,
        }
    }

    #[test]
    fn every_field_counts() {
        let base = description();
        let mut others = vec![base.clone(); 4];
        others[0].identity = Identity::from_bytes([8; 32]);
        others[1].block_bytes += 1;
        others[2].weights = vec![2, 1, 1];
        others[3].codec = CodecChoice::Raw;
        for other in others {
            assert_ne!(base.id(), other.id(), "{other:?}");
        }
    }

    #[test]
    fn stripes_fill_by_weight_all_along() {
        let mut set = description();
        set.weights = vec![3, 1, 2];
        let sizes: Vec<u64> = (0..600).map(|index| 1000 + index * 37 % 3000).collect();
        let stripes = set.stripes(sizes.iter().copied());
        for end in (60..=600).step_by(60) {
            let mut filled = [0.0; 3];
            for (stripe, bytes) in stripes[..end].iter().zip(&sizes) {
                filled[usize::from(*stripe)] += *bytes as f64;
            }
            let total: f64 = filled.iter().sum();
            for (found, weight) in filled.iter().zip(&set.weights) {
                let share = total * f64::from(*weight) / 6.0;
                assert!((found - share).abs() < 8000.0, "{end}: {filled:?}");
            }
        }
        set.weights = vec![1];
        assert_eq!(set.stripes([5, 6]), [0, 0]);
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(stripe_of_name("trunk-01-of-03.k3trunk"), Some((1, 3)));
        for name in [
            "trunk-1-of-3.k3trunk",
            "trunk-01-of-03.k3trunk.partial",
            "trunk-001-of-03.k3trunk",
            "trunk.bin",
        ] {
            assert_eq!(stripe_of_name(name), None, "{name}");
        }
    }

    #[test]
    fn choices_are_read_by_name() {
        assert_eq!("raw".parse(), Ok(CodecChoice::Raw));
        assert_eq!("auto".parse(), Ok(CodecChoice::Auto));
        assert!("x3".parse::<CodecChoice>().is_err());
    }
}
