//! What one conversation carries from sweep to sweep.

use std::io;
use std::ops::Range;

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

    /// What a KDA step took, for one head: k, v, alpha, the inputs of the three
    /// convolutions and beta.
    pub(crate) fn log_row(&self) -> usize {
        6 * self.dim + 1
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
    /// Positions of the last sweep that wait for a commit.
    pub(crate) held: usize,
    shape: StateShape,
    capacity: usize,
}

/// Bytes that are converted at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Writes `values` little-endian.
fn write_values(values: &[f32], out: &mut dyn io::Write) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK_BYTES.min(4 * values.len()));
    for part in values.chunks(CHUNK_BYTES / 4) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Fills `values` from what [`write_values`] wrote.
fn read_values(values: &mut [f32], from: &mut dyn io::Read) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES.min(4 * values.len())];
    for part in values.chunks_mut(CHUNK_BYTES / 4) {
        let bytes = &mut bytes[..4 * part.len()];
        from.read_exact(bytes)?;
        for (value, bytes) in part.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }
    Ok(())
}

impl LayerState {
    /// The parts that hold something once `position` positions have passed, in
    /// the order they are saved in, as ranges of what [`LayerState::values`]
    /// names.
    fn used(
        &self,
        shape: &StateShape,
        [position, capacity]: [usize; 2],
    ) -> Vec<(usize, Range<usize>)> {
        match self {
            Self::Kda(values) => vec![(0, 0..values.len())],
            Self::Latent(_) => vec![(0, 0..position * shape.latent_row())],
            Self::Expanded { heads, .. } => {
                let head_len = capacity * (shape.nope + shape.value);
                let mut parts = Vec::new();
                for start in (0..heads.len()).step_by(head_len) {
                    let values = start + capacity * shape.nope;
                    parts.push((0, start..start + position * shape.nope));
                    parts.push((0, values..values + position * shape.value));
                }
                parts.push((1, 0..position * shape.rope));
                parts
            }
        }
    }

    fn values(&self, index: usize) -> &[f32] {
        match (self, index) {
            (Self::Expanded { rope, .. }, 1) => rope,
            (Self::Kda(values) | Self::Latent(values), _)
            | (Self::Expanded { heads: values, .. }, _) => values,
        }
    }

    fn values_mut(&mut self, index: usize) -> &mut [f32] {
        match (self, index) {
            (Self::Expanded { rope, .. }, 1) => rope,
            (Self::Kda(values) | Self::Latent(values), _)
            | (Self::Expanded { heads: values, .. }, _) => values,
        }
    }
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
            held: 0,
            shape,
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
        self.held = 0;
        self.poisoned = false;
    }

    fn is_held(&self) -> bool {
        self.held > 0
    }

    fn copy_from(&mut self, other: &Self) {
        assert!(!other.poisoned && other.held == 0, "a state that is whole");
        assert!(other.position <= self.capacity, "room for every position");
        assert_eq!(self.layers.len(), other.layers.len(), "the same model");
        for (to, from) in self.layers.iter_mut().zip(&other.layers) {
            let target = to.used(&self.shape, [other.position, self.capacity]);
            let source = from.used(&self.shape, [other.position, other.capacity]);
            for ((index, target), (_, source)) in target.into_iter().zip(source) {
                to.values_mut(index)[target].copy_from_slice(&from.values(index)[source]);
            }
        }
        self.position = other.position;
        self.held = 0;
        self.poisoned = false;
    }

    fn saved_bytes(&self, position: usize) -> u64 {
        let parts = self.layers.iter();
        let parts = parts.flat_map(|layer| layer.used(&self.shape, [position, self.capacity]));
        4 * parts.map(|(_, range)| range.len() as u64).sum::<u64>()
    }

    fn save(&self, out: &mut dyn io::Write) -> io::Result<()> {
        assert!(!self.poisoned && self.held == 0, "a state that is whole");
        for layer in &self.layers {
            for (index, range) in layer.used(&self.shape, [self.position, self.capacity]) {
                write_values(&layer.values(index)[range], out)?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, position: usize, from: &mut dyn io::Read) -> io::Result<()> {
        assert!(position <= self.capacity, "room for every position");
        self.poisoned = true;
        for layer in &mut self.layers {
            for (index, range) in layer.used(&self.shape, [position, self.capacity]) {
                read_values(&mut layer.values_mut(index)[range], from)?;
            }
        }
        self.position = position;
        self.held = 0;
        self.poisoned = false;
        Ok(())
    }
}
