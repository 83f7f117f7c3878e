//! The released model's sizes, from its configuration alone.

use k3_config::{BlockKind, ModelFootprint};
use k3_formats::replica::released_config;
use k3_models::kimi_k3::{AttentionForm, PlannedModel};

const BLOCK_BYTES: u64 = 4 << 20;

fn planned_footprint(form: AttentionForm, block_bytes: u64) -> ModelFootprint {
    PlannedModel::new(&released_config(), form, block_bytes).footprint()
}

#[test]
fn the_released_model_costs_what_is_published() {
    let footprint = planned_footprint(AttentionForm::Latent, BLOCK_BYTES);
    assert_eq!(footprint.expert_bytes, 17_547_264);
    assert_eq!(footprint.expert_bytes_per_token(), 25_829_572_608);
    assert_eq!(
        (footprint.moe_layer_count, footprint.experts_per_layer),
        (92, 896)
    );
    // 69 layers of 96 matrices of 128 x 128 in f32, and three histories of
    // three positions; 576 values of 24 layers per position.
    let (matrices, histories) = (69 * 96 * 128 * 128 * 4, 69 * 3 * 12_288 * 3 * 4);
    assert_eq!(footprint.state_bytes_fixed, matrices + histories);
    assert_eq!(footprint.state_bytes_per_position, 24 * 576 * 4);
    assert_eq!(footprint.embedding_row_bytes, 2 * 7168);
    assert_eq!(footprint.head_bytes(), 163_840 * 7168 * 2);
    // 108.81 GB of layers besides the 2.35 GB head.
    let layers = footprint.trunk_bytes() - footprint.head_bytes();
    assert!(
        (108_700_000_000..108_900_000_000).contains(&(layers + footprint.vector_bytes)),
        "{layers}"
    );
    assert!(
        (50_000_000..56_000_000).contains(&footprint.vector_bytes),
        "{}",
        footprint.vector_bytes
    );
    let activation = footprint.activation_bytes_per_position;
    assert!(activation < 2_500_000, "{activation}");
}

#[test]
fn blocks_are_bounded_and_the_head_is_last() {
    for block_bytes in [1, 1 << 20, BLOCK_BYTES] {
        let footprint = planned_footprint(AttentionForm::Latent, block_bytes);
        // A head of kv_b is the largest unit that cannot be cut; the longest
        // row, the dense layer's down projection, is shorter.
        let least = 2 * 256 * 512;
        let longest = footprint
            .blocks
            .iter()
            .map(|block| block.bytes)
            .max()
            .unwrap();
        assert!(longest <= block_bytes.max(least), "{longest}");
        let first_head = footprint
            .blocks
            .iter()
            .position(|block| block.kind == BlockKind::Head);
        let tail = &footprint.blocks[first_head.unwrap()..];
        assert!(tail.iter().all(|block| block.kind == BlockKind::Head));
    }
    let blocks = planned_footprint(AttentionForm::Latent, BLOCK_BYTES).blocks;
    assert!((26_000..29_000).contains(&blocks.len()), "{}", blocks.len());
}

#[test]
fn the_expanded_form_costs_what_is_published_per_position() {
    let footprint = planned_footprint(AttentionForm::Expanded, BLOCK_BYTES);
    assert_eq!(footprint.state_bytes_per_position, 24 * (96 * 256 + 64) * 4);
}
