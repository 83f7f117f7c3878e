//! The deepest layers only.

use std::ops::Range;

use k3_models::{ExpertKey, LayerIndex};

use super::{EvictionPolicy, Lru, PolicyOutcome};
use crate::experts::shape::CacheShape;

/// A least-recently-used set for each of the deepest layers, none for the rest.
///
/// As many layers as can have `top_k` slots each. A layer competes with itself
/// alone, so the walk through the others cannot flush it: hits grow with the
/// first slots already. Deep layers repeat their picks more than shallow ones.
#[derive(Debug, Clone)]
pub struct DeepLayers {
    /// Cached layers, ascending.
    layers: Vec<LayerIndex>,
    /// Their sets.
    sets: Vec<Lru>,
    /// A set without slots: the other layers' experts pass through, each once.
    passage: Lru,
}

impl DeepLayers {
    /// An empty cache.
    #[must_use]
    pub fn new(shape: &CacheShape) -> Self {
        let capacities = capacities(shape);
        let skipped = shape.moe_layers.len() - capacities.len();
        Self {
            layers: shape.moe_layers[skipped..].to_vec(),
            sets: capacities.into_iter().map(Lru::new).collect(),
            passage: Lru::new(0),
        }
    }

    /// The cached layers, ascending, with the slots of each.
    pub fn capacities(&self) -> impl Iterator<Item = (LayerIndex, usize)> {
        let sets = self.sets.iter().map(EvictionPolicy::capacity);
        self.layers.iter().copied().zip(sets)
    }

    fn set(&self, layer: LayerIndex) -> Option<&Lru> {
        let index = self.layers.binary_search(&layer).ok()?;
        Some(&self.sets[index])
    }

    fn set_mut(&mut self, layer: LayerIndex) -> &mut Lru {
        match self.layers.binary_search(&layer) {
            Ok(index) => &mut self.sets[index],
            Err(_) => &mut self.passage,
        }
    }
}

/// Slots of each cached layer, the deepest last; what is left over after equal
/// shares goes to the deepest, one each.
fn capacities(shape: &CacheShape) -> Vec<usize> {
    let slots = shape.cache_slot_count().min(shape.expert_count());
    if slots == 0 {
        return Vec::new();
    }
    // Fewer slots than one layer's picks still help the deepest layer, and no
    // layer can use more slots than it has experts.
    let layers = (slots / shape.top_k)
        .max(slots.div_ceil(shape.experts_per_layer))
        .min(shape.moe_layers.len());
    assert!(layers > 0);
    let (share, left) = (slots / layers, slots % layers);
    let larger: Range<usize> = layers - left..layers;
    let capacities: Vec<usize> = (0..layers)
        .map(|layer| share + usize::from(larger.contains(&layer)))
        .collect();
    assert_eq!(capacities.iter().sum::<usize>(), slots);
    assert!(capacities[layers - 1] <= shape.experts_per_layer);
    capacities
}

impl EvictionPolicy for DeepLayers {
    fn capacity(&self) -> usize {
        self.sets.iter().map(EvictionPolicy::capacity).sum()
    }

    fn len(&self) -> usize {
        self.sets.iter().map(EvictionPolicy::len).sum()
    }

    fn contains(&self, key: ExpertKey) -> bool {
        self.set(key.layer).is_some_and(|set| set.contains(key))
    }

    fn demand(&mut self, picks: &[ExpertKey], outcome: &mut PolicyOutcome) {
        outcome.clear();
        let Some(layer) = picks.first().map(|key| key.layer) else {
            return;
        };
        assert!(picks.iter().all(|key| key.layer == layer));
        self.set_mut(layer).demand(picks, outcome);
    }

    fn forget(&mut self, key: ExpertKey) {
        self.set_mut(key.layer).forget(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(slots: usize, layers: u16, experts: usize, top_k: usize) -> CacheShape {
        CacheShape {
            slot_count: slots + 1,
            transit_count: 1,
            top_k,
            moe_layers: (1..=layers).map(LayerIndex).collect(),
            experts_per_layer: experts,
            expert_bytes: 1,
            lookahead_count_max: 0,
        }
    }

    #[test]
    fn shares_are_equal_and_the_rest_goes_deep() {
        for (slots, layers, experts, top_k, want) in [
            (0, 4, 8, 3, vec![]),
            (2, 4, 8, 3, vec![2]),
            (3, 4, 8, 3, vec![3]),
            (8, 4, 8, 3, vec![4, 4]),
            (11, 4, 8, 3, vec![3, 4, 4]),
            (30, 4, 8, 3, vec![7, 7, 8, 8]),
            (32, 4, 8, 3, vec![8; 4]),
            (99, 4, 8, 3, vec![8; 4]),
            // Twice the picks less one do not fit a layer of that many experts.
            (5, 4, 3, 3, vec![2, 3]),
        ] {
            let policy = DeepLayers::new(&shape(slots, layers, experts, top_k));
            let got: Vec<usize> = policy.capacities().map(|(_, slots)| slots).collect();
            assert_eq!(got, want, "{slots} slots");
            let deepest = policy.capacities().last().map(|(layer, _)| layer);
            assert_eq!(deepest, (slots > 0).then_some(LayerIndex(layers)));
        }
    }

    #[test]
    fn other_layers_pass_through_and_flush_nothing() {
        let mut policy = DeepLayers::new(&shape(2, 3, 8, 2));
        let mut outcome = PolicyOutcome::default();
        let keys = |layer, experts: &[u16]| -> Vec<ExpertKey> {
            let key = |&expert| ExpertKey {
                layer: LayerIndex(layer),
                expert,
            };
            experts.iter().map(key).collect()
        };
        policy.demand(&keys(3, &[4, 5]), &mut outcome);
        assert_eq!(outcome.admitted.len(), 2);
        policy.demand(&keys(2, &[6, 1, 6]), &mut outcome);
        assert_eq!(outcome.bypassed.len(), 2);
        assert!(policy.contains(keys(3, &[4])[0]));
        policy.demand(&keys(3, &[5, 6]), &mut outcome);
        assert_eq!(outcome.evicted, keys(3, &[4]));
    }
}
