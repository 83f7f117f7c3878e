//! Gated delta attention: a recurrent matrix per head.
//!
//! Heads are independent, so they are what is split over workers; the
//! positions of a sequence run in order within each head.

use crate::kimi_k3::held::LogRow;
use crate::kimi_k3::op::Buffer;
use crate::kimi_k3::run::{KimiK3Run, Span};
use crate::kimi_k3::state::{LayerState, StateShape};
use crate::kimi_k3::workspace::{KDA_SCRATCH, LayerVectors};
use crate::parallel::{Pieces, for_each_piece, partition, take_front, worth};

use k3_kernels::{KdaStep, KernelSet, math};

/// Read-only inputs of a layer's heads; all `[positions][channels]` but beta,
/// which is `[positions][heads]`.
struct Inputs<'a> {
    projections: [&'a [f32]; 3],
    decay: &'a [f32],
    beta: &'a [f32],
    gate: &'a [f32],
    vectors: &'a LayerVectors,
    kernels: &'a KernelSet,
    shape: StateShape,
    heads: usize,
    taps: usize,
    lower_bound: f32,
    eps: f32,
}

/// One worker's share of the heads.
struct Piece<'a> {
    first_head: usize,
    state: &'a mut [f32],
    out: &'a mut [f32],
    scratch: &'a mut [f32],
    /// The log of these heads and a head's state to step in, where the segment
    /// is held back.
    held: Option<[&'a mut [f32]; 2]>,
}

impl KimiK3Run<'_> {
    /// All KDA projections are known: runs the recurrence of every head.
    pub(crate) fn kda_attention(&mut self, layer: usize) {
        let config = self.model.config();
        let (heads, dim, positions) = (config.kda_heads, config.kda_head_dim, self.positions);
        let shape = StateShape::new(config);
        let workspace = &mut *self.workspace;
        let buffer = |buffer: Buffer| workspace.buffers[buffer as usize].as_slice();
        let inputs = Inputs {
            projections: [Buffer::Query, Buffer::Key, Buffer::Value].map(buffer),
            decay: buffer(Buffer::Decay),
            beta: buffer(Buffer::Beta),
            gate: buffer(Buffer::Gate),
            vectors: &workspace.vectors,
            kernels: self.model.kernels,
            shape,
            heads,
            taps: config.short_conv_kernel_size,
            lower_bound: config.gate_lower_bound,
            eps: config.rms_norm_eps,
        };
        let held = &mut workspace.held;
        for (segment, (state, span)) in self.states.iter_mut().zip(&self.spans).enumerate() {
            let LayerState::Kda(values) = &mut state.layers[layer] else {
                unreachable!("a KDA layer has a KDA state");
            };
            let mut state_rest = values.as_mut_slice();
            let mut out_rest = &mut workspace.head_out[..heads * positions * dim];
            let mut scratch_rest = workspace.head_scratch.as_mut_slice();
            let workers = worth(self.workers, 4 * heads * span.len * dim * dim);
            let (held_start, held_len) = (held.start_of(segment), held.total() * shape.log_row());
            let mut log = held_start.map(|_| held.layer(config, layer));
            let pieces: Pieces<_> = partition(heads, workers.count())
                .map(|range| Piece {
                    first_head: range.start,
                    state: take_front(&mut state_rest, range.len() * shape.kda_head()),
                    out: take_front(&mut out_rest, range.len() * positions * dim),
                    scratch: take_front(&mut scratch_rest, range.len() * KDA_SCRATCH * dim),
                    held: log.as_mut().map(|log| {
                        [
                            take_front(&mut log.values, range.len() * held_len),
                            take_front(&mut log.copies, shape.kda_head()),
                        ]
                    }),
                })
                .collect();
            for_each_piece(workers, pieces, |piece: Piece<'_>| {
                inputs.run(
                    piece,
                    span,
                    positions,
                    held_start.map(|start| (start, held_len)),
                );
            });
        }
        // Back to `[positions][heads][dim]`.
        let gathered = &mut workspace.buffers[Buffer::Heads as usize];
        for head in 0..heads {
            for position in 0..positions {
                let from = &workspace.head_out[(head * positions + position) * dim..][..dim];
                gathered[(position * heads + head) * dim..][..dim].copy_from_slice(from);
            }
        }
    }
}

impl Inputs<'_> {
    /// The heads of `piece`, over the positions of `span`. `held` tells where the
    /// log of the span begins, and the length of a head's log.
    fn run(
        &self,
        mut piece: Piece<'_>,
        span: &Span,
        positions: usize,
        held: Option<(usize, usize)>,
    ) {
        let (dim, shape) = (self.shape.dim, &self.shape);
        let states = piece.state.chunks_exact_mut(shape.kda_head());
        let outs = piece.out.chunks_exact_mut(positions * dim);
        let scratch = piece.scratch.chunks_exact_mut(KDA_SCRATCH * dim);
        for (offset, ((state, out), scratch)) in states.zip(outs).zip(scratch).enumerate() {
            let head = piece.first_head + offset;
            let outs = out[span.start * dim..].chunks_exact_mut(dim);
            let steps = (span.start..span.start + span.len).zip(outs);
            let (Some([log, copy]), Some((start, len))) = (&mut piece.held, held) else {
                for (position, out) in steps {
                    self.step(head, position, state, scratch, out);
                }
                continue;
            };
            copy.copy_from_slice(state);
            let log = &mut log[offset * len..(offset + 1) * len];
            let rows = log.chunks_exact_mut(shape.log_row()).skip(start);
            for ((position, out), row) in steps.zip(rows) {
                self.step(head, position, copy, scratch, out);
                self.log(head, position, scratch, LogRow::of(row, dim));
            }
        }
    }

    /// Keeps what the step that has just left `scratch` took.
    fn log(&self, head: usize, position: usize, scratch: &[f32], row: LogRow<'_>) {
        let dim = self.shape.dim;
        let at = (position * self.heads + head) * dim;
        // As `step` divides it: q, k, v, alpha.
        row.k.copy_from_slice(&scratch[dim..2 * dim]);
        row.v.copy_from_slice(&scratch[2 * dim..3 * dim]);
        row.alpha.copy_from_slice(&scratch[3 * dim..4 * dim]);
        for (kept, input) in row.inputs.chunks_exact_mut(dim).zip(self.projections) {
            kept.copy_from_slice(&input[at..at + dim]);
        }
        *row.beta = self.beta_of(head, position);
    }

    /// Strength of the update.
    fn beta_of(&self, head: usize, position: usize) -> f32 {
        math::sigmoid(self.beta[position * self.heads + head])
    }

    /// One position of one head.
    fn step(
        &self,
        head: usize,
        position: usize,
        state: &mut [f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (dim, kernels) = (self.shape.dim, self.kernels);
        let at = (position * self.heads + head) * dim;
        let (matrix, histories) = state.split_at_mut(dim * dim);
        let mut parts = scratch.chunks_exact_mut(dim);
        let mut part = || parts.next().expect("KDA_SCRATCH parts");
        let (q, k, v, alpha, delta, raw) = (part(), part(), part(), part(), part(), part());
        let history_len = self.shape.history * dim;
        let mut history_rest = histories;
        for (index, target) in [&mut *q, &mut *k, &mut *v].into_iter().enumerate() {
            let history = take_front(&mut history_rest, history_len);
            let taps = &self.vectors.taps[index][head * dim * self.taps..][..dim * self.taps];
            let current = &self.projections[index][at..at + dim];
            (kernels.shortconv)(taps, history, current, target);
        }
        (kernels.l2norm)(q);
        (kernels.l2norm)(k);
        // Head sizes are far below 2^24, so the conversion is exact.
        let scale = 1.0 / (f32::from(u16::try_from(dim).expect("head sizes are capped"))).sqrt();
        for value in q.iter_mut() {
            *value *= scale;
        }
        let decay = &self.decay[at..at + dim];
        let bias = &self.vectors.dt_bias[head * dim..(head + 1) * dim];
        let rate = self.vectors.decay_rate[head];
        (kernels.kda_decay)(decay, bias, rate, self.lower_bound, alpha);
        (kernels.kda_step)(KdaStep {
            state: matrix,
            alpha,
            q,
            k,
            v,
            beta: self.beta_of(head, position),
            delta,
            out: raw,
        });
        (kernels.rmsnorm)(raw, &self.vectors.o_norm, self.eps, out);
        (kernels.gate_sigmoid)(out, &self.gate[at..at + dim]);
    }
}
