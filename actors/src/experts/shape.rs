//! The sizes an expert cache is built from.

use k3_models::{ExpertKey, LayerIndex};

/// Sizes of an expert cache and of the model it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheShape {
    /// Slots in all.
    pub slot_count: usize,
    /// Slots the policy may not fill, for experts that only pass through. Zero
    /// only where every expert has a slot of its own.
    pub transit_count: usize,
    /// Picks per position.
    pub top_k: usize,
    /// Layers that have routed experts, ascending.
    pub moe_layers: Vec<LayerIndex>,
    /// Experts in each of them.
    pub experts_per_layer: usize,
    /// Stored size of one expert.
    pub expert_bytes: u64,
    /// Most slots that lookahead may hold at a time, those it fills in vain among
    /// them; zero turns it off.
    pub lookahead_count_max: usize,
}

impl CacheShape {
    /// Slots the policy may fill.
    #[must_use]
    pub fn cache_slot_count(&self) -> usize {
        self.slot_count - self.transit_count
    }

    /// Experts of the model.
    #[must_use]
    pub fn expert_count(&self) -> usize {
        self.moe_layers.len() * self.experts_per_layer
    }

    /// Row of `layer` among the layers with experts.
    ///
    /// # Panics
    ///
    /// When the layer has no experts.
    #[must_use]
    pub fn row(&self, layer: LayerIndex) -> usize {
        self.moe_layers
            .binary_search(&layer)
            .unwrap_or_else(|_| panic!("layer {layer} has no experts"))
    }

    /// Index of `key` in a dense `[layer][expert]` table.
    ///
    /// # Panics
    ///
    /// When there is no such expert.
    #[must_use]
    pub fn index(&self, key: ExpertKey) -> usize {
        let expert = usize::from(key.expert);
        assert!(expert < self.experts_per_layer, "there is no {key}");
        self.row(key.layer) * self.experts_per_layer + expert
    }

    /// Checks what the rest relies on.
    ///
    /// # Panics
    ///
    /// When a size is zero, the layers do not ascend, or an expert that the
    /// policy does not keep would find no slot to pass through.
    pub(super) fn assert_sound(&self) {
        assert!(self.top_k > 0 && self.experts_per_layer >= self.top_k);
        assert!(!self.moe_layers.is_empty());
        assert!(self.moe_layers.is_sorted_by(|a, b| a < b));
        assert!(
            self.transit_count <= self.slot_count,
            "{} transit slots among {}",
            self.transit_count,
            self.slot_count
        );
        assert!(
            self.transit_count > 0 || self.slot_count >= self.expert_count(),
            "{} slots for {} experts need a transit slot",
            self.slot_count,
            self.expert_count()
        );
    }
}
