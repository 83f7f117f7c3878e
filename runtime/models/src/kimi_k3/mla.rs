//! Latent attention without rotation, in both forms.
//!
//! The blocks of kv_b are cut at whole heads. When the rows of a head pass,
//! everything else attention needs is known (queries, and the latents of all
//! past and new positions), so the whole head is computed then and the tensor
//! passes once, although it takes part in two products.

use std::ops::Range;

use k3_kernels::KernelSet;

use crate::kimi_k3::model::AttentionForm;
use crate::kimi_k3::op::Buffer;
use crate::kimi_k3::run::{KimiK3Run, Span, scatter};
use crate::kimi_k3::state::StateShape;
use crate::pages::{PAGE_POSITIONS, PageTable, PastPart, pages_for, runs};
use crate::parallel::{Pieces, for_each_piece, partition, take_front, worth};
use crate::program::Block;

/// What every head of a block reads.
struct Inputs<'a> {
    /// `[positions][heads][nope | rope]`.
    query: &'a [f32],
    /// New latents and rope tails of the sweep: `[positions][latent | rope]`.
    latents: &'a [f32],
    /// The block: `[heads in block][nope | v][latent]`, bf16.
    weights: &'a [u8],
    kernels: &'a KernelSet,
    shape: StateShape,
    heads: usize,
    positions: usize,
    first_head: usize,
    scale: f32,
}

/// One worker's share of a block's heads.
struct Piece<'a> {
    /// First head, counted within the block.
    offset: usize,
    /// `[heads][v][positions]`.
    out: &'a mut [f32],
    /// Expanded form: keys and values of these heads, page after page.
    caches: Vec<&'a mut [f32]>,
    scratch: Scratch<'a>,
}

/// A worker's buffers.
struct Scratch<'a> {
    scores: &'a mut [f32],
    absorbed: &'a mut [f32],
    value: &'a mut [f32],
    /// Latent form: `[positions][latent]`. Expanded: `[nope | v][positions]`.
    per_position: &'a mut [f32],
    sums: &'a mut [f64],
}

impl<'a> Scratch<'a> {
    /// The next worker's share.
    fn take(
        values: &mut &'a mut [f32],
        sums: &mut &'a mut [f64],
        shape: &StateShape,
        [context, positions]: [usize; 2],
    ) -> Self {
        let per_position = shape.latent.max(shape.nope + shape.value);
        Self {
            scores: take_front(values, context),
            absorbed: take_front(values, shape.latent),
            value: take_front(values, shape.value),
            per_position: take_front(values, positions * per_position),
            sums: take_front(sums, shape.latent),
        }
    }
}

/// The past of a layer, as the heads of a block see it: an entry for each page.
struct Caches<'a> {
    /// Expanded form: keys and values of these heads.
    own: Vec<&'a mut [f32]>,
    /// Latent form: latents and rope tails. Expanded form: rope tails.
    shared: Vec<&'a [f32]>,
}

impl<'a> Caches<'a> {
    /// What the first `seen` positions take in `part` of `pages`, the first of
    /// which are `past`.
    fn of(
        (past, pages): (&'a [PastPart], &'a mut PageTable),
        part: Range<usize>,
        seen: usize,
        heads: Range<usize>,
        (shape, form): (&StateShape, AttentionForm),
    ) -> Self {
        let count = pages_for(seen);
        assert_eq!(past.len(), pages.outside().len(), "every page is at hand");
        if form == AttentionForm::Latent {
            let past = past.iter().map(|part| &***part);
            return Self {
                own: Vec::new(),
                shared: past.chain(pages.parts(part)).take(count).collect(),
            };
        }
        assert!(past.is_empty(), "keys and values of heads stay in memory");
        let len = shape.expanded_head();
        let parts = pages.parts_mut(part).take(count).map(|part| {
            let (caches, ropes) = part.split_at_mut(shape.heads * len);
            (&mut caches[heads.start * len..heads.end * len], &*ropes)
        });
        let (own, shared) = parts.unzip();
        Self { own, shared }
    }
}

impl KimiK3Run<'_> {
    /// Normalises the low-rank queries.
    pub(crate) fn mla_query_norm(&mut self) {
        let (rank, eps) = (
            self.model.config().q_lora_rank,
            self.model.config().rms_norm_eps,
        );
        let used = self.positions * rank;
        let workspace = &mut *self.workspace;
        let [low, raw] = workspace
            .buffers
            .get_disjoint_mut([Buffer::LowQuery as usize, Buffer::Narrow as usize])
            .expect("two buffers");
        let rows = raw[..used]
            .chunks_exact(rank)
            .zip(low[..used].chunks_exact_mut(rank));
        for (raw, out) in rows {
            (self.model.kernels.rmsnorm)(raw, &workspace.vectors.q_a_norm, eps, out);
        }
    }

    /// Normalises the new latents in place (via the mix buffer) and appends
    /// them, with their raw rope tails, to the states.
    pub(crate) fn mla_append_latents(&mut self, layer: usize) {
        let eps = self.model.config().rms_norm_eps;
        let shape = StateShape::new(self.model.config());
        let (latent, row) = (shape.latent, shape.latent_row());
        let workspace = &mut *self.workspace;
        let narrow = &mut workspace.buffers[Buffer::Narrow as usize][..self.positions * row];
        // `worker_scratch` is idle between blocks and holds a latent row.
        let scratch = &mut workspace.worker_scratch[..latent];
        for values in narrow.chunks_exact_mut(row) {
            let values = &mut values[..latent];
            (self.model.kernels.rmsnorm)(values, &workspace.vectors.kv_a_norm, eps, scratch);
            values.copy_from_slice(scratch);
        }
        for (state, span) in self.states.iter_mut().zip(&self.spans) {
            let new = &narrow[span.start * row..(span.start + span.len) * row];
            let part = state.layers[layer].part();
            let mut new = new.chunks_exact(row);
            for (page, rows) in runs(span.origin..span.origin + span.len) {
                let page = state.pages.part_mut(page, part.clone());
                // Of the expanded form only the rope tails are known yet.
                let (skipped, table) = match self.model.form {
                    AttentionForm::Latent => (0, page),
                    AttentionForm::Expanded => {
                        (latent, &mut page[shape.heads * shape.expanded_head()..])
                    }
                };
                let width = row - skipped;
                let targets = &mut table[rows.start * width..rows.end * width];
                for (target, new) in targets.chunks_exact_mut(width).zip(&mut new) {
                    target.copy_from_slice(&new[skipped..]);
                }
            }
        }
    }

    /// Attention of the heads whose kv_b rows are in `bytes`.
    pub(crate) fn mla_attention(&mut self, layer: usize, block: &Block, bytes: &[u8]) {
        let config = self.model.config();
        let shape = StateShape::new(config);
        let per_head = shape.nope + shape.value;
        let block_heads = block.row_count as usize / per_head;
        let first_head = block.row_start as usize / per_head;
        let positions = self.positions;
        let (context, form) = (self.workspace.size.context_positions, self.model.form);
        let workspace = &mut *self.workspace;
        let width = u16::try_from(shape.nope + shape.rope).expect("head sizes are capped");
        let inputs = Inputs {
            query: &workspace.buffers[Buffer::Query as usize],
            latents: &workspace.buffers[Buffer::Narrow as usize],
            weights: bytes,
            kernels: self.model.kernels,
            shape,
            heads: config.mla_heads,
            positions,
            first_head,
            scale: 1.0 / f32::from(width).sqrt(),
        };
        let segments = self.states.iter_mut().zip(&self.spans).enumerate();
        for (segment, (state, span)) in segments {
            let seen = span.origin + span.len;
            let Some(past) = self.past.of(segment) else {
                // Lost, and the others do not notice.
                let rows = workspace.wide.chunks_exact_mut(positions);
                for row in rows.take(block_heads * shape.value) {
                    row[span.start..span.start + span.len].fill(0.0);
                }
                continue;
            };
            let Caches { mut own, shared } = Caches::of(
                (past, &mut state.pages),
                state.layers[layer].part(),
                seen,
                first_head..first_head + block_heads,
                (&shape, form),
            );
            let mut out_rest = &mut workspace.wide[..block_heads * shape.value * positions];
            let mut scratch_rest = workspace.worker_scratch.as_mut_slice();
            let mut sums_rest = workspace.worker_sums.as_mut_slice();
            let per_position = (2 * seen + per_head) * shape.latent_row();
            let workers = worth(self.workers, block_heads * span.len * per_position);
            let pieces: Pieces<_> = partition(block_heads, workers.count())
                .map(|range| Piece {
                    offset: range.start,
                    out: take_front(&mut out_rest, range.len() * shape.value * positions),
                    caches: own
                        .iter_mut()
                        .map(|page| take_front(page, range.len() * shape.expanded_head()))
                        .collect(),
                    scratch: Scratch::take(
                        &mut scratch_rest,
                        &mut sums_rest,
                        &shape,
                        [context, positions],
                    ),
                })
                .collect();
            for_each_piece(workers, pieces, |piece: Piece<'_>| {
                inputs.run(piece, form, span, &shared);
            });
        }
        let target_row = config.mla_heads * shape.value;
        let rows = block_heads * shape.value;
        let target = &mut workspace.buffers[Buffer::Heads as usize];
        let target = &mut target[first_head * shape.value..];
        scatter(&workspace.wide, rows, positions, target, target_row);
    }

    /// Multiplies the heads by their output gate, where the model has one.
    pub(crate) fn mla_gate(&mut self) {
        let config = self.model.config();
        if !config.mla_use_output_gate {
            return;
        }
        let used = self.positions * config.mla_heads * config.v_head_dim;
        let [heads, gate] = self
            .workspace
            .buffers
            .get_disjoint_mut([Buffer::Heads as usize, Buffer::Gate as usize])
            .expect("two buffers");
        (self.model.kernels.gate_sigmoid)(&mut heads[..used], &gate[..used]);
    }
}

impl Inputs<'_> {
    /// All heads of a piece.
    fn run(&self, mut piece: Piece<'_>, form: AttentionForm, span: &Span, shared: &[&[f32]]) {
        for (index, out) in piece
            .out
            .chunks_exact_mut(self.shape.value * self.positions)
            .enumerate()
        {
            let head = piece.offset + index;
            if form == AttentionForm::Latent {
                self.latent_head(head, span, shared, &mut piece.scratch, out);
                continue;
            }
            let len = self.shape.expanded_head();
            let pages = piece.caches.iter_mut();
            let mut caches: Vec<_> = pages
                .map(|page| {
                    page[index * len..][..len].split_at_mut(PAGE_POSITIONS * self.shape.nope)
                })
                .collect();
            self.expanded_head(head, span, &mut caches, shared, &mut piece.scratch, out);
        }
    }

    /// The query of `head` (counted within the block) at sweep `position`.
    fn query_of(&self, head: usize, position: usize) -> (&[f32], &[f32]) {
        let width = self.shape.nope + self.shape.rope;
        let at = (position * self.heads + self.first_head + head) * width;
        self.query[at..at + width].split_at(self.shape.nope)
    }

    /// The key rows and the value rows of `head`.
    fn weights_of(&self, head: usize) -> (&[u8], &[u8]) {
        let row_bytes = 2 * self.shape.latent;
        let per_head = (self.shape.nope + self.shape.value) * row_bytes;
        let rows = &self.weights[head * per_head..(head + 1) * per_head];
        rows.split_at(self.shape.nope * row_bytes)
    }

    /// One head against the pages of the latent cache: `out`, `[v][positions]`.
    fn latent_head(
        &self,
        head: usize,
        span: &Span,
        pages: &[&[f32]],
        scratch: &mut Scratch<'_>,
        out: &mut [f32],
    ) {
        let (shape, kernels) = (&self.shape, self.kernels);
        let (key_rows, value_rows) = self.weights_of(head);
        let row = shape.latent_row();
        for index in 0..span.len {
            let (nope, rope) = self.query_of(head, span.start + index);
            let seen = span.origin + index + 1;
            let scores = &mut scratch.scores[..seen];
            (kernels.columns_bf16)(key_rows, nope, scratch.absorbed);
            for (scores, page) in scores.chunks_mut(PAGE_POSITIONS).zip(pages) {
                let past = &page[..scores.len() * row];
                (kernels.mla_scores_latent)(scratch.absorbed, rope, past, self.scale, scores);
            }
            (kernels.softmax)(scores);
            let mixed = &mut scratch.per_position[index * shape.latent..][..shape.latent];
            scratch.sums.fill(0.0);
            for (weights, page) in scores.chunks(PAGE_POSITIONS).zip(pages) {
                let past = &page[..weights.len() * row];
                (kernels.mla_mix_latent)(weights, past, row, scratch.sums, mixed);
            }
        }
        let mixed = &scratch.per_position[..span.len * shape.latent];
        if span.len == self.positions {
            (kernels.matmul_bf16)(value_rows, mixed, span.len, out);
            return;
        }
        // Several sequences share the sweep: each writes its own columns.
        for (index, latent) in mixed.chunks_exact(shape.latent).enumerate() {
            (kernels.matmul_bf16)(value_rows, latent, 1, scratch.value);
            for (channel, value) in scratch.value.iter().enumerate() {
                out[channel * self.positions + span.start + index] = *value;
            }
        }
    }

    /// One head against stored keys and values, page after page: `out`,
    /// `[v][positions]`.
    fn expanded_head(
        &self,
        head: usize,
        span: &Span,
        pages: &mut [(&mut [f32], &mut [f32])],
        ropes: &[&[f32]],
        scratch: &mut Scratch<'_>,
        out: &mut [f32],
    ) {
        let (shape, kernels) = (&self.shape, self.kernels);
        let per_head = shape.nope + shape.value;
        let row_bytes = 2 * shape.latent;
        let rows = &self.weights[head * per_head * row_bytes..][..per_head * row_bytes];
        let kv = &mut scratch.per_position[..per_head];
        for index in 0..span.len {
            let at = (span.start + index) * shape.latent_row();
            (kernels.matmul_bf16)(rows, &self.latents[at..at + shape.latent], 1, kv);
            let position = span.origin + index;
            let (key, value) = kv.split_at(shape.nope);
            let (keys, values) = &mut pages[position / PAGE_POSITIONS];
            let at = position % PAGE_POSITIONS;
            keys[at * shape.nope..][..shape.nope].copy_from_slice(key);
            values[at * shape.value..][..shape.value].copy_from_slice(value);
        }
        for index in 0..span.len {
            let (nope, rope) = self.query_of(head, span.start + index);
            let seen = span.origin + index + 1;
            let scores = &mut scratch.scores[..seen];
            let past = pages.iter().zip(ropes);
            for (scores, ((keys, _), ropes)) in scores.chunks_mut(PAGE_POSITIONS).zip(past) {
                let keys = &keys[..scores.len() * shape.nope];
                let ropes = &ropes[..scores.len() * shape.rope];
                (kernels.mla_scores_expanded)(nope, rope, keys, ropes, self.scale, scores);
            }
            (kernels.softmax)(scores);
            scratch.value.fill(0.0);
            for (weights, (_, values)) in scores.chunks(PAGE_POSITIONS).zip(&*pages) {
                let values = &values[..weights.len() * shape.value];
                (kernels.mla_mix_expanded)(weights, values, scratch.value);
            }
            for (channel, value) in scratch.value.iter().enumerate() {
                out[channel * self.positions + span.start + index] = *value;
            }
        }
    }
}
