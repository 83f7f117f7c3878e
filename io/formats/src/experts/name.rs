//! The names of expert tensors.

use std::fmt;

/// Tensors of one expert.
pub const EXPERT_PARTS: usize = 6;

/// One of an expert's six tensors, in the order in which released shards store
/// them and [`ExpertRef::segments`](super::ExpertRef::segments) concatenates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ExpertPart {
    /// Gate projection, two E2M1 values a byte.
    W1Packed,
    /// Scales of the gate projection, E8M0.
    W1Scale,
    /// Down projection, two E2M1 values a byte.
    W2Packed,
    /// Scales of the down projection, E8M0.
    W2Scale,
    /// Up projection, two E2M1 values a byte.
    W3Packed,
    /// Scales of the up projection, E8M0.
    W3Scale,
}

impl ExpertPart {
    /// Every part, in order.
    pub const ALL: [Self; EXPERT_PARTS] = [
        Self::W1Packed,
        Self::W1Scale,
        Self::W2Packed,
        Self::W2Scale,
        Self::W3Packed,
        Self::W3Scale,
    ];

    /// The end of the tensor's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::W1Packed => "w1.weight_packed",
            Self::W1Scale => "w1.weight_scale",
            Self::W2Packed => "w2.weight_packed",
            Self::W2Scale => "w2.weight_scale",
            Self::W3Packed => "w3.weight_packed",
            Self::W3Scale => "w3.weight_scale",
        }
    }

    /// Whether this is a scale tensor.
    pub const fn is_scale(self) -> bool {
        matches!(self, Self::W1Scale | Self::W2Scale | Self::W3Scale)
    }

    fn from_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.suffix() == suffix)
    }
}

/// An expert tensor's name taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertName<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) layer: u16,
    pub(crate) expert: u16,
    pub(crate) part: ExpertPart,
}

/// The prefixes models are stored under.
const PREFIXES: [&str; 2] = ["language_model.model.", "model."];

impl<'a> ExpertName<'a> {
    /// `None` for every name that is not spelled exactly as an expert's.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (prefix, rest) = PREFIXES.iter().find_map(|prefix| {
            let rest = name.strip_prefix(prefix)?;
            Some((&name[..prefix.len()], rest))
        })?;
        let (layer, rest) = number(rest.strip_prefix("layers.")?)?;
        let (expert, rest) = number(rest.strip_prefix(".block_sparse_moe.experts.")?)?;
        Some(Self {
            prefix,
            layer,
            expert,
            part: ExpertPart::from_suffix(rest.strip_prefix('.')?)?,
        })
    }
}

impl fmt::Display for ExpertName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            prefix,
            layer,
            expert,
            part,
        } = self;
        let suffix = part.suffix();
        write!(
            formatter,
            "{prefix}layers.{layer}.block_sparse_moe.experts.{expert}.{suffix}"
        )
    }
}

/// The layer a tensor belongs to, for messages.
pub(crate) fn layer_of(name: &str) -> Option<u16> {
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    let (layer, rest) = number(rest.strip_prefix("layers.")?)?;
    rest.starts_with('.').then_some(layer)
}

/// A canonical decimal (no leading zero) at the start of `text` and the rest.
fn number(text: &str) -> Option<(u16, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if digits > 1 && number.starts_with('0') {
        return None;
    }
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_names_round_trip() {
        for prefix in PREFIXES {
            for part in ExpertPart::ALL {
                let name = format!(
                    "{prefix}layers.92.block_sparse_moe.experts.895.{}",
                    part.suffix()
                );
                let parsed = ExpertName::parse(&name).unwrap();
                assert_eq!((parsed.layer, parsed.expert), (92, 895));
                assert_eq!((parsed.prefix, parsed.part), (prefix, part));
                assert_eq!(parsed.to_string(), name);
                assert_eq!(layer_of(&name), Some(92));
            }
        }
    }

    #[test]
    fn other_spellings_are_ordinary_names() {
        for name in [
            "",
            "language_model.layers.1.block_sparse_moe.experts.0.w1.weight_packed",
            "model.layers.01.block_sparse_moe.experts.0.w1.weight_packed",
            "model.layers.1.block_sparse_moe.experts.00.w1.weight_packed",
            "model.layers.1.block_sparse_moe.experts.65536.w1.weight_packed",
            "model.layers.-1.block_sparse_moe.experts.0.w1.weight_packed",
            "model.layers.1.block_sparse_moe.experts.0.w4.weight_packed",
            "model.layers.1.block_sparse_moe.experts.0.w1.weight_packed.x",
            "model.layers.1.block_sparse_moe.experts..w1.weight_packed",
            "model.layers.1.mlp.experts.0.w1.weight_packed",
            "x.model.layers.1.block_sparse_moe.experts.0.w1.weight_packed",
        ] {
            assert_eq!(ExpertName::parse(name), None, "{name}");
        }
        assert_eq!(layer_of("model.layers.7.input_layernorm.weight"), Some(7));
        assert_eq!(layer_of("model.layers.7"), None);
        assert_eq!(layer_of("model.norm.weight"), None);
    }
}
