//! A guess at the experts of the next layer, from what is known of it early.
//!
//! When a layer is complete, all that the next router's input still lacks is
//! the next layer's attention. What is there is mixed, normalised and scored
//! exactly as the next layer will: by its own mix, norm, router and bias.
//!
//! No memory is added. Between two layers the buffers of sublayers and the
//! widened vectors are free; whoever needs them next writes them first.

use k3_config::BlockKind;
use k3_kernels::router_select;

use crate::error::ModelError;
use crate::ids::{ExpertKey, LayerIndex};
use crate::kimi_k3::layout::Mlp;
use crate::kimi_k3::op::{Buffer, Op};
use crate::kimi_k3::run::KimiK3Run;
use crate::program::Block;

impl KimiK3Run<'_> {
    /// Scores the experts of one block of the next router.
    ///
    /// # Errors
    ///
    /// A packed block that is none.
    pub(super) fn score_ahead(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError> {
        assert_eq!(bytes.len() as u64, block.bytes, "a block arrives whole");
        assert_eq!(Op::from_code(block.op), Op::Router, "only routers guess");
        let BlockKind::Layer(layer) = block.kind else {
            panic!("a router belongs to a layer");
        };
        if block.is_first() {
            self.prepare_guess(layer as usize);
        }
        self.multiply(Op::Router, block, bytes)
    }

    /// Mixes and normalises what is there of the input of `layer`'s router.
    fn prepare_guess(&mut self, layer: usize) {
        let (model, tensors) = (self.model, self.layer_tensors(layer));
        let (kernels, stored) = (model.kernels, &model.vectors);
        let Mlp::Moe(moe) = &tensors.mlp else {
            panic!("a router belongs to a layer with experts");
        };
        let workspace = &mut *self.workspace;
        let (out, scratch) = (&mut workspace.vectors, &mut workspace.fold_scratch);
        stored.fold(kernels, tensors.mlp_mix, scratch, &mut out.mlp_fold);
        stored.widen(kernels, tensors.post_norm, &mut out.post_norm);
        stored.widen(kernels, moe.bias, &mut out.router_bias);
        self.with_vector(|w| &mut w.vectors.mlp_fold, Self::mix);
        self.with_vector(|w| &mut w.vectors.post_norm, Self::normalise);
    }

    /// Picks the best `count` experts of every position: first the best of
    /// each, then the second best.
    pub(super) fn guess_experts(&mut self, layer: LayerIndex, count: usize) {
        let config = self.model.config();
        let (experts, top_k) = (config.num_experts, config.num_experts_per_token);
        assert!(count <= top_k, "no position picks {count} experts");
        let workspace = &mut *self.workspace;
        let guesses = &mut workspace.guesses;
        guesses.clear();
        for position in 0..self.positions {
            let logits = &workspace.buffers[Buffer::Scores as usize][position * experts..];
            let picks = &mut workspace.picks[..count];
            let selected = router_select(
                &logits[..experts],
                &workspace.vectors.router_bias,
                count,
                false,
                1.0,
                &mut workspace.choice,
                picks,
            );
            // The layer's own router will say what is wrong, and where.
            if selected.is_err() {
                guesses.clear();
                return;
            }
            for (rank, pick) in picks.iter().enumerate() {
                let expert = u16::try_from(pick.expert).expect("expert counts are capped");
                let key = ExpertKey { layer, expert };
                // Behind the same rank of the positions before.
                guesses.insert(rank * (position + 1) + position, key);
            }
        }
        drop_repeated(guesses);
    }
}

/// Keeps the first of equal keys. There are few.
fn drop_repeated(keys: &mut Vec<ExpertKey>) {
    let mut kept = 0;
    for index in 0..keys.len() {
        let key = keys[index];
        if !keys[..kept].contains(&key) {
            keys[kept] = key;
            kept += 1;
        }
    }
    keys.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_guesses_stays() {
        let key = |expert| ExpertKey {
            layer: LayerIndex(3),
            expert,
        };
        let mut keys = [4, 2, 4, 9, 2, 4, 1].map(key).to_vec();
        drop_repeated(&mut keys);
        assert_eq!(keys, [4, 2, 9, 1].map(key));
    }
}
