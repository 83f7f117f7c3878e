//! What one conversation carries from sweep to sweep.

use std::io;
use std::ops::Range;

use k3_formats::KimiK3Config;

use crate::family::SequenceState;
use crate::kimi_k3::model::AttentionForm;
use crate::pages::{PAGE_POSITIONS, PagePool, PageTable, PagesShort, StoreError, runs};

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
    /// MLA expanded: heads.
    pub(crate) heads: usize,
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
            heads: config.mla_heads,
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

    /// One head of a page in the expanded form: its keys, then its values.
    pub(crate) fn expanded_head(&self) -> usize {
        PAGE_POSITIONS * (self.nope + self.value)
    }

    /// One position of an MLA layer.
    fn position_len(&self, form: AttentionForm) -> usize {
        match form {
            AttentionForm::Latent => self.latent_row(),
            AttentionForm::Expanded => self.heads * (self.nope + self.value) + self.rope,
        }
    }
}

/// State of one layer.
#[derive(Debug)]
pub(crate) enum LayerState {
    /// `[heads][StateShape::kda_head]`.
    Kda(Vec<f32>),
    /// The layer's part of every page. Latent form: `[PAGE_POSITIONS][latent |
    /// rope]`. Expanded: keys and values per head, the shared rope tails behind
    /// them, `[heads][PAGE_POSITIONS * nope | PAGE_POSITIONS * value]`, then
    /// `[PAGE_POSITIONS][rope]`.
    Paged(Range<usize>),
}

impl LayerState {
    /// The part of an MLA layer.
    pub(crate) fn part(&self) -> Range<usize> {
        match self {
            Self::Paged(part) => part.clone(),
            Self::Kda(_) => unreachable!("an MLA layer has an MLA state"),
        }
    }
}

/// State of one Kimi K3 sequence. What does not grow with the sequence is
/// reserved at creation; positions lie in pages.
#[derive(Debug)]
pub struct KimiK3State {
    pub(crate) layers: Vec<LayerState>,
    pub(crate) pages: PageTable,
    pub(crate) position: usize,
    pub(crate) poisoned: bool,
    /// Positions of the last sweep that wait for a commit.
    pub(crate) held: usize,
    shape: StateShape,
    form: AttentionForm,
}

/// Bytes that are converted at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Writes `values` little-endian, with `bytes` to convert in.
fn write_values(values: &[f32], bytes: &mut Vec<u8>, out: &mut dyn io::Write) -> io::Result<()> {
    for part in values.chunks(CHUNK_BYTES / 4) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
        out.write_all(bytes)?;
    }
    Ok(())
}

/// Fills `values` from what [`write_values`] wrote, with `bytes` to convert in.
fn read_values(values: &mut [f32], bytes: &mut Vec<u8>, from: &mut dyn io::Read) -> io::Result<()> {
    for part in values.chunks_mut(CHUNK_BYTES / 4) {
        bytes.resize(4 * part.len(), 0);
        from.read_exact(bytes)?;
        for (value, bytes) in part.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }
    Ok(())
}

/// Where the first `position` positions of a layer lie, in the order they are
/// saved in: a page and a range of the layer's part of it. The bytes that come of
/// it know nothing of pages: whatever has one row for each position is saved
/// position after position.
fn saved_runs(
    shape: &StateShape,
    form: AttentionForm,
    position: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (nope, value) = (shape.nope, shape.value);
    let ropes = shape.heads * shape.expanded_head();
    let tables: Vec<(usize, usize)> = match form {
        AttentionForm::Latent => vec![(0, shape.latent_row())],
        AttentionForm::Expanded => {
            let starts = (0..shape.heads).map(|head| head * shape.expanded_head());
            starts
                .flat_map(|start| [(start, nope), (start + PAGE_POSITIONS * nope, value)])
                .chain([(ropes, shape.rope)])
                .collect()
        }
    };
    tables.into_iter().flat_map(move |(start, width)| {
        runs(0..position).map(move |(page, rows)| {
            let range = start + rows.start * width..start + rows.end * width;
            (page, range)
        })
    })
}

impl KimiK3State {
    pub(crate) fn new(config: &KimiK3Config, form: AttentionForm, layer_count: usize) -> Self {
        let shape = StateShape::new(config);
        let part_len = PAGE_POSITIONS * shape.position_len(form);
        let mut start = 0;
        let layers = (0..layer_count).map(|layer| {
            if !config.is_mla(layer) {
                return LayerState::Kda(vec![0.0; config.kda_heads * shape.kda_head()]);
            }
            let part = start..start + part_len;
            start = part.end;
            LayerState::Paged(part)
        });
        Self {
            layers: layers.collect(),
            pages: PageTable::default(),
            position: 0,
            poisoned: false,
            held: 0,
            shape,
            form,
        }
    }

    /// Elements of the part that one MLA layer has of a page.
    pub(crate) fn page_part_len(config: &KimiK3Config, form: AttentionForm) -> usize {
        PAGE_POSITIONS * StateShape::new(config).position_len(form)
    }

    /// Elements of one page: [`PAGE_POSITIONS`] positions of every MLA layer.
    pub(crate) fn page_len(
        config: &KimiK3Config,
        form: AttentionForm,
        layer_count: usize,
    ) -> usize {
        let layers = (0..layer_count).filter(|layer| config.is_mla(*layer));
        layers.count() * Self::page_part_len(config, form)
    }

    /// Bytes per sequence: the fixed part, and the part per position.
    pub(crate) fn bytes(
        config: &KimiK3Config,
        form: AttentionForm,
        layer_count: usize,
    ) -> (u64, u64) {
        let kda_layers = (0..layer_count).filter(|layer| !config.is_mla(*layer));
        let fixed = kda_layers.count() * config.kda_heads * StateShape::new(config).kda_head();
        let per_position = Self::page_len(config, form, layer_count) / PAGE_POSITIONS;
        (4 * fixed as u64, 4 * per_position as u64)
    }
}

impl SequenceState for KimiK3State {
    fn position(&self) -> usize {
        self.position
    }

    fn capacity(&self) -> usize {
        self.pages.capacity()
    }

    fn reserve(&mut self, positions: usize, pool: &mut PagePool) -> Result<(), PagesShort> {
        self.pages.reserve(positions, pool)
    }

    fn make_room(&mut self, positions: usize) -> Result<(), StoreError> {
        assert_eq!(
            self.held, 0,
            "positions that may be taken back stay in memory"
        );
        self.pages.make_room(self.position, positions)
    }

    fn outside(&self) -> &[u32] {
        self.pages.outside()
    }

    fn release(&mut self, pool: &mut PagePool) {
        self.reset();
        self.pages.release(pool);
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    fn reset(&mut self) {
        self.pages.clear();
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

    fn copy_from(&mut self, other: &Self) -> Result<(), StoreError> {
        assert!(!other.poisoned && other.held == 0, "a state that is whole");
        assert!(other.position <= self.capacity(), "room for every position");
        assert_eq!(self.layers.len(), other.layers.len(), "the same model");
        self.poisoned = true;
        for (to, from) in self.layers.iter_mut().zip(&other.layers) {
            if let (LayerState::Kda(to), LayerState::Kda(from)) = (to, from) {
                to.copy_from_slice(from);
            }
        }
        self.pages.copy_from(&other.pages, other.position)?;
        self.position = other.position;
        self.held = 0;
        self.poisoned = false;
        Ok(())
    }

    fn saved_bytes(&self, position: usize) -> u64 {
        let layers = self.layers.iter().map(|layer| match layer {
            LayerState::Kda(values) => values.len(),
            LayerState::Paged(_) => position * self.shape.position_len(self.form),
        });
        4 * layers.sum::<usize>() as u64
    }

    fn save(&self, out: &mut dyn io::Write) -> io::Result<()> {
        assert!(!self.poisoned && self.held == 0, "a state that is whole");
        let (mut bytes, mut room) = (Vec::with_capacity(CHUNK_BYTES), Vec::new());
        for layer in &self.layers {
            match layer {
                LayerState::Kda(values) => write_values(values, &mut bytes, out)?,
                LayerState::Paged(part) => {
                    for (page, range) in saved_runs(&self.shape, self.form, self.position) {
                        let values = self.pages.read_part(page, part.clone(), &mut room)?;
                        write_values(&values[range], &mut bytes, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn restore(&mut self, position: usize, from: &mut dyn io::Read) -> io::Result<()> {
        assert!(position <= self.capacity(), "room for every position");
        self.poisoned = true;
        self.pages.clear();
        self.pages.lay_out(position);
        let (mut bytes, mut room) = (Vec::with_capacity(CHUNK_BYTES), Vec::new());
        for layer in &mut self.layers {
            match layer {
                LayerState::Kda(values) => read_values(values, &mut bytes, from)?,
                LayerState::Paged(part) => {
                    for (page, range) in saved_runs(&self.shape, self.form, position) {
                        if page >= self.pages.outside().len() {
                            let values = &mut self.pages.part_mut(page, part.clone())[range];
                            read_values(values, &mut bytes, from)?;
                            continue;
                        }
                        room.resize(range.len(), 0.0);
                        read_values(&mut room, &mut bytes, from)?;
                        self.pages.write_part(page, part.clone(), &room)?;
                    }
                }
            }
        }
        self.position = position;
        self.held = 0;
        self.poisoned = false;
        Ok(())
    }
}
