//! What a plan lets expect of the disk.

use serde::Serialize;

use crate::footprint::{BlockKind, ModelFootprint};

use super::lines::saturating_bytes;
use super::pins::PinMap;

/// Payload bytes read from the second sweep on: the first also fills the
/// pinned blocks. Alignment adds to them on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// Trunk bytes of a sweep with logits: the blocks that are not pinned.
    pub trunk_bytes_per_sweep: u64,
    /// The part of it that a sweep without logits leaves out.
    pub head_bytes_per_sweep: u64,
    /// Expert bytes of one position if no expert is in memory when asked for.
    /// With a cache slot for every expert, 0: each is read once, ever.
    pub expert_bytes_per_token: u64,
    /// One row of the embedding table.
    pub embedding_row_bytes: u64,
    /// Experts of a layer; 0 for a model without experts.
    pub experts_per_layer: u32,
    /// Experts that a position picks in a layer.
    pub experts_per_token: u32,
    /// Sequences that share each sweep.
    pub sequences: u64,
    /// Bytes of pages that do not stay in memory, once the sequences are as long as
    /// they may be: 0 if all stay.
    pub past_bytes_per_sweep: u64,
}

impl Prediction {
    pub(super) fn new(
        footprint: &ModelFootprint,
        pinned: &PinMap,
        all_cached: bool,
        sequences: u64,
    ) -> Self {
        assert_eq!(footprint.blocks.len(), pinned.block_count());
        let blocks = footprint.blocks.iter().enumerate();
        let streamed = || {
            blocks
                .clone()
                .filter(|(index, _)| !pinned.is_pinned(*index))
        };
        let head = streamed().filter(|(_, block)| block.kind == BlockKind::Head);
        let prediction = Self {
            trunk_bytes_per_sweep: streamed().map(|(_, block)| block.bytes).sum(),
            head_bytes_per_sweep: head.map(|(_, block)| block.bytes).sum(),
            expert_bytes_per_token: if all_cached {
                0
            } else {
                expert_bytes(footprint)
            },
            embedding_row_bytes: footprint.embedding_row_bytes,
            experts_per_layer: footprint.experts_per_layer,
            experts_per_token: footprint.experts_per_token,
            sequences,
            past_bytes_per_sweep: 0,
        };
        assert!(prediction.head_bytes_per_sweep <= prediction.trunk_bytes_per_sweep);
        prediction
    }

    /// Bytes of one generated token when `hit_share` of the experts asked for are
    /// in memory: 0 is the worst case. Every sequence has a token in each sweep,
    /// and all of them share what the sweep reads.
    ///
    /// # Panics
    ///
    /// If `hit_share` is not within 0 and 1.
    #[must_use]
    pub fn bytes_per_token(&self, hit_share: f64) -> f64 {
        assert!(
            (0.0..=1.0).contains(&hit_share),
            "a share of hits, not {hit_share}"
        );
        let asked_for = self.expert_bytes_per_token as f64 * self.union_per_token();
        let experts = asked_for * (1.0 - hit_share);
        let kept = self.trunk_bytes_per_sweep as f64 + self.past_bytes_per_sweep as f64;
        let sweep = kept + experts;
        assert!(experts >= 0.0 && sweep >= 0.0);
        sweep / self.sequences as f64 + self.embedding_row_bytes as f64
    }

    /// Different experts that a sweep asks for, to those of one token: with E
    /// experts in a layer, of which each token picks k for itself, a layer is asked
    /// for E (1 - (1 - k/E)^sequences).
    fn union_per_token(&self) -> f64 {
        if self.sequences == 1 || self.experts_per_token == 0 {
            return 1.0;
        }
        let experts = f64::from(self.experts_per_layer);
        let picks = f64::from(self.experts_per_token).min(experts);
        let tokens = i32::try_from(self.sequences).unwrap_or(i32::MAX);
        experts * (1.0 - (1.0 - picks / experts).powi(tokens)) / picks
    }

    /// Seconds the disk needs for one generated token, at
    /// `disk_bytes_per_second`: no run is faster while it reads that much.
    ///
    /// # Panics
    ///
    /// If the rate is not positive or `hit_share` not within 0 and 1.
    #[must_use]
    pub fn floor_seconds_per_token(&self, disk_bytes_per_second: f64, hit_share: f64) -> f64 {
        assert!(disk_bytes_per_second > 0.0, "a disk delivers something");
        let seconds = self.bytes_per_token(hit_share) / disk_bytes_per_second;
        assert!(seconds >= 0.0);
        seconds
    }
}

/// Bytes of one position's experts, without leaving 64 bits.
fn expert_bytes(footprint: &ModelFootprint) -> u64 {
    let picks = u64::from(footprint.moe_layer_count) * u64::from(footprint.experts_per_token);
    let bytes = u128::from(picks) * u128::from(footprint.expert_bytes);
    assert!(footprint.experts_per_token > 0 || bytes == 0);
    saturating_bytes(bytes).0
}

/// A plan's prediction for one disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskForecast {
    /// What the disk delivers, in bytes per second.
    pub disk_bytes_per_second: f64,
    /// Share of a token's experts assumed to be found in memory: 0 is the worst
    /// case, whatever the cache holds; 1 when every expert has a slot.
    pub hit_share: f64,
    /// Tokens that share each sweep.
    pub sequences: u64,
    /// Bytes of one generated token.
    pub bytes_per_token: f64,
    /// Seconds the disk needs for them.
    pub floor_seconds_per_token: f64,
}

impl DiskForecast {
    /// What `prediction` means on a disk at worst: no expert is found in memory,
    /// unless all of them have a slot.
    ///
    /// # Panics
    ///
    /// If the rate is not positive.
    #[must_use]
    pub fn worst(prediction: &Prediction, disk_bytes_per_second: f64) -> Self {
        let all_cached = prediction.expert_bytes_per_token == 0;
        let hit_share = if all_cached { 1.0 } else { 0.0 };
        Self::new(prediction, disk_bytes_per_second, hit_share)
    }

    /// What `prediction` means on a disk; panics as
    /// [`Prediction::floor_seconds_per_token`] does.
    #[must_use]
    pub fn new(prediction: &Prediction, disk_bytes_per_second: f64, hit_share: f64) -> Self {
        Self {
            disk_bytes_per_second,
            hit_share,
            sequences: prediction.sequences,
            bytes_per_token: prediction.bytes_per_token(hit_share),
            floor_seconds_per_token: prediction
                .floor_seconds_per_token(disk_bytes_per_second, hit_share),
        }
    }
}
