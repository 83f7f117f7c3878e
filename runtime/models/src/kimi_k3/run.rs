//! One sweep: dispatch of blocks, wiring of a layer.

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use k3_config::BlockKind;
use k3_kernels::{MAX_SOURCES, argmax};

use crate::error::ModelError;
use crate::family::{ExpertDemand, Finished, ModelFamily as _, SequenceState, SweepRun};
use crate::ids::{ExpertKey, LayerIndex};
use crate::kimi_k3::faults::Faults;
use crate::kimi_k3::layout::{Attention, LayerTensors, Mlp, VectorId};
use crate::kimi_k3::model::KimiK3;
use crate::kimi_k3::op::{Buffer, Op};
use crate::kimi_k3::past::Past;
use crate::kimi_k3::phases;
use crate::kimi_k3::product::Product;
use crate::kimi_k3::state::KimiK3State;
use crate::kimi_k3::workspace::KimiK3Workspace;
use crate::pages::{PastPart, StoreError};
use crate::parallel::{Workers, split_units, worth};
use crate::program::Block;
use crate::sweep::{Advance, Sweep};

/// The positions of one segment within the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// First position, counted in the sweep.
    pub(crate) start: usize,
    /// Positions.
    pub(crate) len: usize,
    /// Position in the sequence where the segment starts.
    pub(crate) origin: usize,
}

/// A Kimi K3 sweep in progress.
pub struct KimiK3Run<'a> {
    pub(crate) model: &'a KimiK3,
    pub(crate) sweep: &'a Sweep,
    pub(crate) states: Vec<&'a mut KimiK3State>,
    pub(crate) workspace: &'a mut KimiK3Workspace,
    pub(crate) workers: &'a dyn Workers,
    pub(crate) spans: Vec<Span>,
    /// Positions in the sweep.
    pub(crate) positions: usize,
    /// Snapshots taken so far.
    snapshot_count: usize,
    pub(crate) nan_scale_groups: AtomicU64,
    pub(crate) faults: Faults,
    pub(crate) past: Past,
}

impl<'a> KimiK3Run<'a> {
    pub(crate) fn begin(
        model: &'a KimiK3,
        sweep: &'a Sweep,
        mut states: Vec<&'a mut KimiK3State>,
        workspace: &'a mut KimiK3Workspace,
        workers: &'a dyn Workers,
    ) -> Result<Self, ModelError> {
        assert_eq!(
            states.len(),
            sweep.segments().len(),
            "one state per segment"
        );
        let spans = check_sweep(model, sweep, &states, workspace)?;
        for state in &mut states {
            state.poisoned = true;
        }
        workspace.demand.layer = None;
        workspace.held.begin(sweep);
        Ok(Self {
            model,
            sweep,
            states,
            workspace,
            workers,
            spans,
            positions: sweep.position_count(),
            snapshot_count: 0,
            nan_scale_groups: AtomicU64::new(0),
            faults: Faults::none(sweep),
            past: Past::none(sweep),
        })
    }

    pub(crate) fn layer_tensors(&self, layer: usize) -> &'a LayerTensors {
        &self.model.layout.layers[layer]
    }

    /// Sequence position of sweep position `index`.
    pub(crate) fn absolute_position(&self, index: usize) -> usize {
        let (_, span) = self.segment_of(index);
        span.origin + index - span.start
    }

    /// The segment of sweep position `index`, and its span.
    pub(crate) fn segment_of(&self, index: usize) -> (usize, Span) {
        let mut spans = self.spans.iter().copied().enumerate();
        spans
            .find(|(_, span)| (span.start..span.start + span.len).contains(&index))
            .expect("spans cover the sweep")
    }

    /// Mixes snapshots and prefix into `mixed`, or copies the prefix while
    /// there are no snapshots.
    pub(super) fn mix(&mut self, fold: &[f32]) {
        let hidden = self.model.config().hidden_size;
        let used = self.positions * hidden;
        let workspace = &mut *self.workspace;
        if self.snapshot_count == 0 {
            workspace.mixed[..used].copy_from_slice(&workspace.prefix[..used]);
            return;
        }
        let eps = self.model.config().rms_norm_eps;
        let (snapshots, prefix) = (&workspace.snapshots, &workspace.prefix);
        let snapshot_stride = used;
        let (count, kernels) = (self.snapshot_count, self.model.kernels);
        split_units(
            worth(self.workers, 3 * used * (count + 1)),
            &mut workspace.mixed[..used],
            hidden,
            |first, piece| {
                for (offset, out) in piece.chunks_exact_mut(hidden).enumerate() {
                    let at = (first + offset) * hidden;
                    let mut sources: ArrayVec<&[f32], MAX_SOURCES> = (0..count)
                        .map(|snapshot| &snapshots[snapshot * snapshot_stride + at..][..hidden])
                        .collect();
                    sources.push(&prefix[at..at + hidden]);
                    (kernels.attn_res)(&sources, fold, eps, out);
                }
            },
        );
    }

    /// Normalises `mixed` into the sublayer's input.
    pub(super) fn normalise(&mut self, weight: &[f32]) {
        let hidden = self.model.config().hidden_size;
        let eps = self.model.config().rms_norm_eps;
        let used = self.positions * hidden;
        let workspace = &mut *self.workspace;
        let (mixed, kernels) = (&workspace.mixed, self.model.kernels);
        let input = &mut workspace.buffers[Buffer::Input as usize][..used];
        let workers = worth(self.workers, 2 * used);
        split_units(workers, input, hidden, |first, piece| {
            for (offset, out) in piece.chunks_exact_mut(hidden).enumerate() {
                let at = (first + offset) * hidden;
                (kernels.rmsnorm)(&mixed[at..at + hidden], weight, eps, out);
            }
        });
    }

    /// Runs `body` with the layer's vector buffers taken out of the
    /// workspace, so that both can be borrowed.
    pub(super) fn with_vector(
        &mut self,
        field: fn(&mut KimiK3Workspace) -> &mut Vec<f32>,
        body: impl FnOnce(&mut Self, &[f32]),
    ) {
        let taken = std::mem::take(field(self.workspace));
        body(self, &taken);
        *field(self.workspace) = taken;
    }

    fn begin_attention(&mut self, layer: usize) {
        self.workers.phase(phases::VECTORS, 0);
        self.widen_layer(layer);
        self.workers.phase(phases::MIX, 0);
        self.with_vector(|w| &mut w.vectors.attention_fold, Self::mix);
        let config = self.model.config();
        if layer.is_multiple_of(config.attn_res_block_size) {
            let used = self.positions * config.hidden_size;
            let start = self.snapshot_count * used;
            let workspace = &mut *self.workspace;
            workspace.snapshots[start..start + used].copy_from_slice(&workspace.prefix[..used]);
            self.snapshot_count += 1;
        }
        self.workers.phase(phases::NORM, 0);
        self.with_vector(|w| &mut w.vectors.input_norm, Self::normalise);
    }

    /// Adds the attention's output to the prefix, or starts a new one, and
    /// prepares the MLP's input.
    fn end_attention(&mut self, layer: usize) {
        self.workers.phase(phases::ADD, 0);
        let config = self.model.config();
        let used = self.positions * config.hidden_size;
        let workspace = &mut *self.workspace;
        let output = &workspace.buffers[Buffer::Sublayer as usize][..used];
        let prefix = &mut workspace.prefix[..used];
        if layer.is_multiple_of(config.attn_res_block_size) {
            prefix.copy_from_slice(output);
        } else {
            (self.model.kernels.add)(prefix, output);
        }
        self.workers.phase(phases::MIX, 0);
        self.with_vector(|w| &mut w.vectors.mlp_fold, Self::mix);
        self.workers.phase(phases::NORM, 0);
        self.with_vector(|w| &mut w.vectors.post_norm, Self::normalise);
    }

    /// Widens the vectors of `layer` into the workspace.
    fn widen_layer(&mut self, layer: usize) {
        let (model, tensors) = (self.model, self.layer_tensors(layer));
        let (kernels, stored) = (model.kernels, &model.vectors);
        let workspace = &mut *self.workspace;
        let (out, scratch) = (&mut workspace.vectors, &mut workspace.fold_scratch);
        stored.widen(kernels, tensors.input_norm, &mut out.input_norm);
        stored.widen(kernels, tensors.post_norm, &mut out.post_norm);
        stored.fold(
            kernels,
            tensors.attention_mix,
            scratch,
            &mut out.attention_fold,
        );
        stored.fold(kernels, tensors.mlp_mix, scratch, &mut out.mlp_fold);
        match &tensors.attention {
            Attention::Kda(kda) => {
                for (taps, id) in out.taps.iter_mut().zip(kda.conv) {
                    stored.widen(kernels, id, taps);
                }
                stored.widen(kernels, kda.a_log, &mut out.decay_rate);
                (kernels.exp)(&mut out.decay_rate);
                stored.widen(kernels, kda.dt_bias, &mut out.dt_bias);
                stored.widen(kernels, kda.o_norm, &mut out.o_norm);
            }
            Attention::Mla(mla) => {
                stored.widen(kernels, mla.q_a_norm, &mut out.q_a_norm);
                stored.widen(kernels, mla.kv_a_norm, &mut out.kv_a_norm);
            }
        }
        if let Mlp::Moe(moe) = &tensors.mlp {
            stored.widen(kernels, moe.bias, &mut out.router_bias);
            if let Some(norm) = moe.expert_norm {
                stored.widen(kernels, norm, &mut out.expert_norm);
            }
        }
    }

    /// The final mix and norm, for the positions that want logits.
    fn begin_head(&mut self) {
        self.workers.phase(phases::HEAD_MIX, 0);
        let (model, hidden) = (self.model, self.model.config().hidden_size);
        let mut fold = std::mem::take(&mut self.workspace.vectors.attention_fold);
        let scratch = &mut self.workspace.fold_scratch;
        model
            .vectors
            .fold(model.kernels, model.layout.output_mix, scratch, &mut fold);
        self.mix(&fold);
        self.workspace.vectors.attention_fold = fold;
        // Keep only the wanted rows, moved to the front; rows move down.
        for (row, position) in self.sweep.logit_positions().enumerate() {
            let from = position * hidden;
            self.workspace
                .mixed
                .copy_within(from..from + hidden, row * hidden);
        }
        self.widen_final_norm(model.layout.norm);
        self.with_vector(|w| &mut w.vectors.input_norm, Self::normalise);
    }

    fn widen_final_norm(&mut self, id: VectorId) {
        let out = &mut self.workspace.vectors.input_norm;
        self.model.vectors.widen(self.model.kernels, id, out);
    }

    /// Multiplies a block of rows for all positions (or logit rows) and lays
    /// the result out by position.
    ///
    /// # Errors
    ///
    /// A packed block that is none.
    pub(super) fn multiply(
        &mut self,
        op: Op,
        block: &Block,
        bytes: &[u8],
    ) -> Result<(), ModelError> {
        let (source, target) = op.wiring();
        let rows = block.row_count as usize;
        let (row_start, row_total) = (block.row_start as usize, block.row_total as usize);
        let positions = if op == Op::Head {
            self.sweep.logit_row_count()
        } else {
            self.positions
        };
        let workspace = &mut *self.workspace;
        let input = &workspace.buffers[source as usize][..positions * block.cols as usize];
        let model = self.model;
        let product = Product::new(model.kernels, op, model.program(), block, bytes)?;
        let wide = &mut workspace.wide[..rows * positions];
        let workers = worth(self.workers, wide.len() * block.cols as usize);
        split_units(workers, wide, positions, |first, piece| {
            let count = piece.len() / positions;
            product.rows(first..first + count, input, positions, piece);
        });
        self.workers.phase(phases::SCATTER, 0);
        let output = &mut workspace.buffers[target as usize][..positions * row_total];
        scatter(
            &workspace.wide,
            rows,
            positions,
            &mut output[row_start..],
            row_total,
        );
        Ok(())
    }

    /// What follows when the last rows of `op` are known.
    fn after(&mut self, op: Op, layer: usize) {
        match op {
            Op::KdaG => {
                self.workers.phase(phases::RECURRENCE, 0);
                self.kda_attention(layer);
            }
            Op::MlaQA => {
                self.workers.phase(phases::LATENTS, 0);
                self.mla_query_norm();
            }
            Op::MlaKvA => {
                self.workers.phase(phases::LATENTS, 0);
                self.mla_append_latents(layer);
            }
            Op::MlaKvB => {
                self.past.give_back();
                self.workers.phase(phases::MLA_GATE, 0);
                self.mla_gate();
            }
            Op::AttentionOut => self.end_attention(layer),
            Op::DenseUp | Op::SharedUp => {
                self.workers.phase(phases::activation(op), 0);
                self.activate(op);
            }
            _ => {}
        }
    }
}

impl<'a> SweepRun<'a> for KimiK3Run<'a> {
    fn embed(&mut self, index: usize, row: &[u8]) {
        self.workers.phase(phases::EMBED, row.len());
        let hidden = self.model.config().hidden_size;
        let out = &mut self.workspace.prefix[index * hidden..(index + 1) * hidden];
        (self.model.kernels.widen_bf16)(row, out);
    }

    fn past(
        &mut self,
        _layer: LayerIndex,
        parts: Vec<Result<PastPart, StoreError>>,
    ) -> Result<(), ModelError> {
        self.take_past(parts)
    }

    fn block(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError> {
        assert_eq!(bytes.len() as u64, block.bytes, "a block arrives whole");
        let op = Op::from_code(block.op);
        let layer = match block.kind {
            BlockKind::Layer(layer) => layer as usize,
            BlockKind::Head => self.model.layout.layer_count(),
        };
        if block.is_first() {
            match op {
                Op::KdaQ | Op::MlaQA => self.begin_attention(layer),
                Op::Head => self.begin_head(),
                _ => {}
            }
        }
        let attention = self.model.layout.layers.get(layer);
        let attention = attention.map(|tensors| &tensors.attention);
        let phase = phases::of_op(op, attention);
        self.workers.phase(phase, bytes.len());
        if op == Op::MlaKvB {
            self.mla_attention(layer, block, bytes);
        } else {
            self.multiply(op, block, bytes)?;
        }
        if block.is_last() {
            self.after(op, layer);
        }
        Ok(())
    }

    fn route(&mut self, layer: LayerIndex) -> Result<&ExpertDemand, ModelError> {
        self.workers.phase(phases::CHOOSE, 0);
        self.choose_experts(layer)?;
        Ok(&self.workspace.demand)
    }

    fn impose(&mut self, picks: &[u16]) -> &ExpertDemand {
        self.workspace.demand.replace_picks(picks);
        &self.workspace.demand
    }

    fn expert(&mut self, key: ExpertKey, bytes: &[u8]) {
        self.run_expert(key, bytes);
    }

    fn finish_moe(&mut self, layer: LayerIndex) {
        self.workers.phase(phases::MIXTURE, 0);
        self.sum_experts(layer);
    }

    fn end_layer(&mut self, layer: LayerIndex) -> Result<(), ModelError> {
        self.workers.phase(phases::ADD, 0);
        let hidden = self.model.config().hidden_size;
        let used = self.positions * hidden;
        let is_moe = matches!(self.layer_tensors(layer.index()).mlp, Mlp::Moe(_));
        let workspace = &mut *self.workspace;
        let [sublayer, shared] = [Buffer::Sublayer, Buffer::Shared].map(|buffer| buffer as usize);
        if is_moe {
            // The routed and the shared part are summed, rounded once, and
            // only then reach the prefix.
            let (left, right) = workspace.buffers.split_at_mut(shared);
            (self.model.kernels.add)(&mut left[sublayer][..used], &right[0][..used]);
        }
        let output = &workspace.buffers[sublayer][..used];
        (self.model.kernels.add)(&mut workspace.prefix[..used], output);
        let mut broken = Vec::new();
        let prefix = &mut workspace.prefix[..used];
        for (index, row) in prefix.chunks_exact_mut(hidden).enumerate() {
            if let Some(channel) = row.iter().position(|value| !value.is_finite()) {
                broken.push((index, channel));
                // Nothing of this position is used from here on.
                row.fill(0.0);
            }
        }
        for (index, channel) in broken {
            let error = ModelError::NonFinite {
                what: format!("hidden value (channel {channel})"),
                layer,
                position: self.absolute_position(index),
            };
            self.blame(index, error);
        }
        self.check_faults()
    }

    fn look_ahead(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError> {
        self.score_ahead(block, bytes)
    }

    fn guess(&mut self, layer: LayerIndex, count: usize) -> &[ExpertKey] {
        self.guess_experts(layer, count);
        &self.workspace.guesses
    }

    fn nan_scale_groups(&self) -> u64 {
        self.nan_scale_groups.load(Ordering::Relaxed)
    }

    fn finish(mut self) -> Result<Finished<'a>, ModelError> {
        let vocab = self.model.config().vocab_size;
        let rows = self.sweep.logit_row_count();
        let logits = &self.workspace.buffers[Buffer::Logits as usize][..rows * vocab];
        let pairs = logits.chunks_exact(vocab).zip(self.sweep.logit_positions());
        let broken: Vec<(usize, usize)> = pairs
            .filter(|(row, _)| argmax(row).is_none())
            .map(|(row, index)| {
                let id = row.iter().position(|value| !value.is_finite());
                (index, id.unwrap_or(0))
            })
            .collect();
        for (index, id) in broken {
            let position = self.absolute_position(index);
            self.blame(index, ModelError::NonFiniteLogit { position, id });
        }
        self.check_faults()?;
        let Self {
            states,
            spans,
            workspace,
            sweep,
            faults,
            ..
        } = self;
        let segments = states.into_iter().zip(spans).zip(sweep.segments());
        for (index, ((state, span), segment)) in segments.enumerate() {
            if faults.is_lost(index, segment.advance) {
                continue;
            }
            match segment.advance {
                Advance::All => state.position += span.len,
                Advance::Held => state.held = span.len,
            }
            state.poisoned = false;
        }
        Ok(Finished {
            logits: &workspace.buffers[Buffer::Logits as usize][..rows * vocab],
            faults: faults.into_list(),
        })
    }
}

/// Writes `wide`, `[rows][positions]`, into columns of `out`, whose rows are
/// `stride` apart: `out[position * stride + row]`.
pub(crate) fn scatter(wide: &[f32], rows: usize, positions: usize, out: &mut [f32], stride: usize) {
    if positions == 1 {
        out[..rows].copy_from_slice(&wide[..rows]);
        return;
    }
    for position in 0..positions {
        let target = &mut out[position * stride..][..rows];
        for (row, value) in target.iter_mut().enumerate() {
            *value = wide[row * positions + position];
        }
    }
}

/// Refuses what cannot be carried out, before anything is touched.
fn check_sweep(
    model: &KimiK3,
    sweep: &Sweep,
    states: &[&mut KimiK3State],
    workspace: &KimiK3Workspace,
) -> Result<Vec<Span>, ModelError> {
    let vocab_size = model.config().vocab_size;
    let mut spans = Vec::with_capacity(states.len());
    let mut start = 0;
    for (sequence, (segment, state)) in sweep.segments().iter().zip(states).enumerate() {
        if state.poisoned {
            return Err(ModelError::Poisoned { sequence });
        }
        if state.is_held() {
            return Err(ModelError::Held { sequence });
        }
        let (origin, len) = (state.position, segment.tokens.len());
        if origin + len > state.capacity() {
            return Err(ModelError::ContextFull {
                needed: origin + len,
                capacity: state.capacity(),
            });
        }
        if let Some(offset) = segment
            .tokens
            .iter()
            .position(|id| *id as usize >= vocab_size)
        {
            return Err(ModelError::TokenOutOfRange {
                id: segment.tokens[offset],
                position: origin + offset,
                vocab_size,
            });
        }
        spans.push(Span { start, len, origin });
        start += len;
    }
    let size = &workspace.size;
    let longest = spans
        .iter()
        .map(|span| span.origin + span.len)
        .max()
        .unwrap_or(0);
    let checks = [
        ("positions", start, size.positions),
        (
            "held positions",
            sweep.held_position_count(),
            size.held_positions,
        ),
        ("logit rows", sweep.logit_row_count(), size.logit_rows),
        ("context positions", longest, size.context_positions),
    ];
    for (what, needed, capacity) in checks {
        if needed > capacity {
            return Err(ModelError::WorkspaceTooSmall {
                what,
                needed,
                capacity,
            });
        }
    }
    Ok(spans)
}
