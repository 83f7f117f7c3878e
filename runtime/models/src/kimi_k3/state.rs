//! What one conversation carries from sweep to sweep.

use k3_formats::KimiK3Config;

use crate::family::SequenceState;
use crate::kimi_k3::model::AttentionForm;

/// Sizes of one layer's state; all in f32 elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateShape {
    /// KDA head dimension.
    pub(crate) dim: usize,
    /// Conv history positions (kernel size - 1).
    pub(crate) history: usize,
    /// MLA: latent width.
    pub(crate) latent: usize,
    /// MLA: rope tail width.
    pub(crate) rope: usize,
    /// MLA expanded: key and value widths of a head.
    pub(crate) nope: usize,
    /// MLA expanded: value width of a head.
    pub(crate) value: usize,
}

impl StateShape {
    pub(crate) fn new(config: &KimiK3Config) -> Self {
        Self {
            dim: config.kda_head_dim,
            history: config.short_conv_kernel_size - 1,
            latent: config.kv_lora_rank,
            rope: config.qk_rope_head_dim,
            nope: config.qk_nope_head_dim,
            value: config.v_head_dim,
        }
    }

    /// One KDA head: the recurrent matrix `[key][value]`, then the histories
    /// of q, k and v, each `[history][dim]`, oldest first.
    pub(crate) fn kda_head(&self) -> usize {
        self.dim * self.dim + 3 * self.history * self.dim
    }

    /// One position of the latent cache: `[latent | rope]`.
    pub(crate) fn latent_row(&self) -> usize {
        self.latent + self.rope
    }
}

/// State of one layer.
#[derive(Debug)]
pub(crate) enum LayerState {
    /// `[heads][StateShape::kda_head]`.
    Kda(Vec<f32>),
    /// `[capacity][latent + rope]`.
    Latent(Vec<f32>),
    /// Keys and values per head, the shared rope tail beside them.
    Expanded {
        /// `[heads][capacity * nope | capacity * value]`.
        heads: Vec<f32>,
        /// `[capacity][rope]`.
        rope: Vec<f32>,
    },
}

/// State of one Kimi K3 sequence. All memory is reserved at creation.
#[derive(Debug)]
pub struct KimiK3State {
    pub(crate) layers: Vec<LayerState>,
    pub(crate) position: usize,
    pub(crate) poisoned: bool,
    capacity: usize,
}

impl KimiK3State {
    pub(crate) fn new(
        config: &KimiK3Config,
        form: AttentionForm,
        layer_count: usize,
        capacity: usize,
    ) -> Self {
        let shape = StateShape::new(config);
        let heads = config.mla_heads;
        let layers = (0..layer_count)
            .map(|layer| match (config.is_mla(layer), form) {
                (false, _) => LayerState::Kda(vec![0.0; config.kda_heads * shape.kda_head()]),
                (true, AttentionForm::Latent) => {
                    LayerState::Latent(vec![0.0; capacity * shape.latent_row()])
                }
                (true, AttentionForm::Expanded) => LayerState::Expanded {
                    heads: vec![0.0; heads * capacity * (shape.nope + shape.value)],
                    rope: vec![0.0; capacity * shape.rope],
                },
            })
            .collect();
        Self {
            layers,
            position: 0,
            poisoned: false,
            capacity,
        }
    }

    /// Bytes per sequence: the fixed part, and the part per position.
    pub(crate) fn bytes(
        config: &KimiK3Config,
        form: AttentionForm,
        layer_count: usize,
    ) -> (u64, u64) {
        let shape = StateShape::new(config);
        let (mut fixed, mut per_position) = (0, 0);
        for layer in 0..layer_count {
            match (config.is_mla(layer), form) {
                (false, _) => fixed += config.kda_heads * shape.kda_head(),
                (true, AttentionForm::Latent) => per_position += shape.latent_row(),
                (true, AttentionForm::Expanded) => {
                    per_position += config.mla_heads * (shape.nope + shape.value) + shape.rope;
                }
            }
        }
        (4 * fixed as u64, 4 * per_position as u64)
    }
}

impl SequenceState for KimiK3State {
    fn position(&self) -> usize {
        self.position
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    fn reset(&mut self) {
        for layer in &mut self.layers {
            // Only the recurrent part is read before it is written.
            if let LayerState::Kda(values) = layer {
                values.fill(0.0);
            }
        }
        self.position = 0;
        self.poisoned = false;
    }
}
