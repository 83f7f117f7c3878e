//! Names of the steps of a Kimi K3 sweep.

use crate::kimi_k3::layout::{Attention, KimiK3Layout, LayerTensors, Mlp};
use crate::kimi_k3::op::Op;
use crate::phase::Phase;

/// What every layer has.
const LAYER: &str = "layer";
/// A layer's linear attention.
const KDA: &str = "kda";
/// A layer's latent attention.
const MLA: &str = "mla";
/// The MLP of a layer without experts.
const DENSE: &str = "dense";
/// The latent mixture of experts.
const MOE: &str = "moe";
/// What follows the last layer.
const HEAD: &str = "head";

const fn phase(part: &'static str, name: &'static str) -> Phase {
    Phase { part, name }
}

pub(crate) const EMBED: Phase = phase(HEAD, "embedding");
pub(crate) const VECTORS: Phase = phase(LAYER, "widen vectors");
pub(crate) const MIX: Phase = phase(LAYER, "attention residuals");
pub(crate) const NORM: Phase = phase(LAYER, "norms");
pub(crate) const ADD: Phase = phase(LAYER, "residual sums");
pub(crate) const SCATTER: Phase = phase(LAYER, "lay out products");
pub(crate) const RECURRENCE: Phase = phase(KDA, "recurrence");
pub(crate) const LATENTS: Phase = phase(MLA, "latent norms");
pub(crate) const MLA_GATE: Phase = phase(MLA, "gate");
pub(crate) const ROUTER: Phase = phase(MOE, "router");
pub(crate) const CHOOSE: Phase = phase(MOE, "choose experts");
pub(crate) const GATHER: Phase = phase(MOE, "gather and file");
pub(crate) const EXPERT_UP: Phase = phase(MOE, "experts w1, w3");
pub(crate) const EXPERT_ACTIVATION: Phase = phase(MOE, "experts activation");
pub(crate) const EXPERT_DOWN: Phase = phase(MOE, "experts w2");
pub(crate) const MIXTURE: Phase = phase(MOE, "weighted sum");
pub(crate) const HEAD_MIX: Phase = phase(HEAD, "final mix and norm");

/// The matrix product of `op` in a layer with `attention`; the head has none.
pub(crate) fn of_op(op: Op, attention: Option<&Attention>) -> Phase {
    match op {
        Op::AttentionOut => match attention {
            Some(Attention::Mla(_)) => phase(MLA, "output"),
            _ => phase(KDA, "output"),
        },
        Op::KdaQ => phase(KDA, "q projection"),
        Op::KdaK => phase(KDA, "k projection"),
        Op::KdaV => phase(KDA, "v projection"),
        Op::KdaFA => phase(KDA, "decay down"),
        Op::KdaFB => phase(KDA, "decay up"),
        Op::KdaB => phase(KDA, "beta projection"),
        Op::KdaG => phase(KDA, "gate projection"),
        Op::MlaQA => phase(MLA, "q down"),
        Op::MlaQB => phase(MLA, "q up"),
        Op::MlaKvA => phase(MLA, "kv down"),
        Op::MlaG => phase(MLA, "gate projection"),
        Op::MlaKvB => phase(MLA, "attention"),
        Op::DenseGate => phase(DENSE, "gate"),
        Op::DenseUp => phase(DENSE, "up"),
        Op::DenseDown => phase(DENSE, "down"),
        Op::Router => ROUTER,
        Op::LatentDown => phase(MOE, "latent down"),
        Op::SharedGate => phase(MOE, "shared gate"),
        Op::SharedUp => phase(MOE, "shared up"),
        Op::SharedDown => phase(MOE, "shared down"),
        Op::LatentUp => phase(MOE, "latent up"),
        Op::Head => phase(HEAD, "lm_head"),
    }
}

/// The activation after `op`.
pub(crate) fn activation(op: Op) -> Phase {
    if op == Op::DenseUp {
        phase(DENSE, "activation")
    } else {
        phase(MOE, "shared activation")
    }
}

impl KimiK3Layout {
    /// How much of `phase` a sweep of one position has, in a unit of its own: in
    /// models of the same widths, whatever their numbers of layers and experts, the
    /// time of a phase is proportional to it.
    #[must_use]
    pub fn amount_of(&self, phase: Phase) -> u64 {
        let layers = self.layers.iter();
        let count = match phase.part {
            LAYER => layers.count(),
            KDA => layers.filter(|layer| is_kda(layer)).count(),
            MLA => layers.filter(|layer| !is_kda(layer)).count(),
            DENSE => layers.filter(|layer| !is_moe(layer)).count(),
            MOE => layers.filter(|layer| is_moe(layer)).count(),
            _ => 1,
        };
        let block = self.config().attn_res_block_size;
        let amount = match phase {
            MIX => sources_mixed(self.layers.len(), block),
            HEAD_MIX => self.layers.len().div_ceil(block) + 1,
            CHOOSE | ROUTER => count * self.config().num_experts,
            _ => count,
        };
        amount as u64
    }
}

impl KimiK3Layout {
    /// Parts of this model that `other` has none of.
    #[must_use]
    pub fn parts_beyond(&self, other: &Self) -> Vec<&'static str> {
        let mut parts = vec![KDA, MLA, DENSE, MOE];
        parts.retain(|&part| {
            let any = phase(part, "any step");
            self.amount_of(any) > 0 && other.amount_of(any) == 0
        });
        parts
    }
}

fn is_kda(layer: &LayerTensors) -> bool {
    matches!(layer.attention, Attention::Kda(_))
}

fn is_moe(layer: &LayerTensors) -> bool {
    matches!(layer.mlp, Mlp::Moe(_))
}

/// Vectors that the mixes of all layers go over: the snapshots so far and the
/// prefix, before the attention (where there are snapshots) and before the MLP.
fn sources_mixed(layers: usize, block: usize) -> usize {
    let before_attention = (1..layers).map(|layer| layer.div_ceil(block) + 1);
    let before_mlp = (0..layers).map(|layer| layer / block + 2);
    before_attention.chain(before_mlp).sum()
}

#[cfg(test)]
mod tests {
    use k3_formats::synth::released_config;

    use super::*;

    #[test]
    fn the_released_model_has_its_layers() {
        let layout = KimiK3Layout::planned(&released_config());
        for (part, count) in [
            (LAYER, 93),
            (KDA, 69),
            (MLA, 24),
            (DENSE, 1),
            (MOE, 92),
            (HEAD, 1),
        ] {
            assert_eq!(layout.amount_of(phase(part, "something")), count, "{part}");
        }
        assert_eq!(layout.amount_of(ROUTER), 92 * 896);
        // Eight blocks of twelve layers, the last of nine.
        assert_eq!(layout.amount_of(HEAD_MIX), 9);
    }

    #[test]
    fn a_mix_counts_the_snapshots_and_the_prefix() {
        // Blocks of two: before the attention of layers 1, 2, 3 there are 1, 1
        // and 2 snapshots, before the MLPs 1, 1, 2 and 2.
        assert_eq!(sources_mixed(4, 2), (2 + 2 + 3) + (2 + 2 + 3 + 3));
    }

    #[test]
    fn the_router_has_one_name() {
        assert_eq!(of_op(Op::Router, None), ROUTER);
    }
}
