//! Identifiers that must not be mixed up.

use std::fmt;

/// Zero-based index of a decoder layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerIndex(pub u16);

impl LayerIndex {
    /// The index as a `usize`, for slices.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Layer number `index`.
    ///
    /// # Panics
    ///
    /// If `index` exceeds 65,535; configurations are capped far below.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u16::try_from(index).expect("layer counts are capped by the config reader"))
    }
}

impl fmt::Display for LayerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One routed expert of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpertKey {
    /// The layer.
    pub layer: LayerIndex,
    /// The expert's index within the layer.
    pub expert: u16,
}

impl fmt::Display for ExpertKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expert {} of layer {}", self.expert, self.layer)
    }
}
