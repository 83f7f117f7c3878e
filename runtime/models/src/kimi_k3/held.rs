//! Positions that count only once they are committed.
//!
//! A recurrent state cannot be cut back. A segment that is held back therefore
//! leaves the recurrent matrices alone: they are stepped in a copy, head by
//! head, and what each step took is kept in a log. A commit repeats the steps
//! of the accepted positions from the log, with the kernel and in the order of
//! the sweep, so the state gets the bits of a sweep over those positions.
//! Latents lie behind the sequence's position until it moves past them.

use k3_formats::KimiK3Config;
use k3_kernels::{KdaStep, KernelSet};

use crate::kimi_k3::model::KimiK3;
use crate::kimi_k3::state::{KimiK3State, LayerState, StateShape};
use crate::kimi_k3::workspace::KDA_SCRATCH;
use crate::parallel::{Pieces, Workers, for_each_piece, partition, take_front, worth};
use crate::sweep::{Advance, Sweep};

/// What KDA steps took, for the held positions of a sweep.
#[derive(Debug)]
pub(crate) struct HeldLog {
    /// `[KDA layers][heads][held positions][StateShape::log_row]`.
    values: Vec<f32>,
    /// A head's state to step in: `[workers][StateShape::kda_head]`.
    copies: Vec<f32>,
    /// First held position and count of each segment of the last sweep; `None`
    /// for segments that are not held back.
    spans: Vec<Option<(usize, usize)>>,
    /// Held positions of the last sweep.
    total: usize,
}

/// The log of one layer, and room to step heads in.
pub(crate) struct LayerLog<'a> {
    /// `[heads][held positions][StateShape::log_row]`.
    pub(crate) values: &'a mut [f32],
    /// `[workers][StateShape::kda_head]`.
    pub(crate) copies: &'a mut [f32],
}

/// Elements of the log and of the copies, for `held_positions`.
pub(crate) fn lengths(
    config: &KimiK3Config,
    layer_count: usize,
    held_positions: usize,
    workers: usize,
) -> [usize; 2] {
    if held_positions == 0 {
        return [0, 0];
    }
    let shape = StateShape::new(config);
    let layers = kda_ordinal(config, layer_count);
    let log = layers * config.kda_heads * held_positions * shape.log_row();
    [log, workers * shape.kda_head()]
}

/// KDA layers before `layer`.
fn kda_ordinal(config: &KimiK3Config, layer: usize) -> usize {
    (0..layer).filter(|layer| !config.is_mla(*layer)).count()
}

impl HeldLog {
    pub(crate) fn new([values, copies]: [usize; 2]) -> Self {
        Self {
            values: vec![0.0; values],
            copies: vec![0.0; copies],
            spans: Vec::new(),
            total: 0,
        }
    }

    /// Makes room for the held positions of `sweep`.
    pub(crate) fn begin(&mut self, sweep: &Sweep) {
        self.spans.clear();
        self.total = 0;
        for segment in sweep.segments() {
            let span = (segment.advance == Advance::Held).then(|| {
                let start = self.total;
                self.total += segment.tokens.len();
                (start, segment.tokens.len())
            });
            self.spans.push(span);
        }
    }

    /// Held positions of the sweep.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// First held position of `segment`, if it is held back.
    pub(crate) fn start_of(&self, segment: usize) -> Option<usize> {
        self.spans[segment].map(|(start, _)| start)
    }

    /// The log of `layer`, which is a KDA layer.
    pub(crate) fn layer(&mut self, config: &KimiK3Config, layer: usize) -> LayerLog<'_> {
        let shape = StateShape::new(config);
        let len = config.kda_heads * self.total * shape.log_row();
        let start = kda_ordinal(config, layer) * len;
        LayerLog {
            values: &mut self.values[start..start + len],
            copies: &mut self.copies,
        }
    }
}

/// One position of one head in the log.
pub(crate) struct LogRow<'a> {
    /// Normalised key, `[dim]`.
    pub(crate) k: &'a mut [f32],
    /// Value, `[dim]`.
    pub(crate) v: &'a mut [f32],
    /// Decay, `[dim]`.
    pub(crate) alpha: &'a mut [f32],
    /// Inputs of the three convolutions, q, k and v: `[3][dim]`.
    pub(crate) inputs: &'a mut [f32],
    /// Strength of the update.
    pub(crate) beta: &'a mut f32,
}

impl<'a> LogRow<'a> {
    /// The parts of `row`: `[StateShape::log_row]`.
    pub(crate) fn of(row: &'a mut [f32], dim: usize) -> Self {
        let mut rest = row;
        Self {
            k: take_front(&mut rest, dim),
            v: take_front(&mut rest, dim),
            alpha: take_front(&mut rest, dim),
            inputs: take_front(&mut rest, 3 * dim),
            beta: &mut rest[0],
        }
    }
}

/// One worker's share of the heads of a layer.
struct Piece<'a> {
    state: &'a mut [f32],
    log: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl KimiK3 {
    /// Repeats the first `accepted` steps that segment `segment` held back.
    pub(crate) fn commit_held(
        &self,
        workspace: &mut crate::kimi_k3::KimiK3Workspace,
        segment: usize,
        state: &mut KimiK3State,
        accepted: usize,
        workers: &dyn Workers,
    ) {
        let config = self.config();
        let shape = StateShape::new(config);
        let span = workspace.held.spans.get(segment).copied().flatten();
        let (start, len) = span.expect("a segment of the workspace's last sweep, held back");
        assert_eq!(state.held, len, "the state that the segment held back");
        assert!(accepted <= len, "no more positions than the segment has");
        let total = workspace.held.total;
        for layer in 0..state.layers.len() {
            let LayerState::Kda(values) = &mut state.layers[layer] else {
                continue;
            };
            let mut log_rest = workspace.held.layer(config, layer).values;
            let mut state_rest = values.as_mut_slice();
            let mut scratch_rest = workspace.head_scratch.as_mut_slice();
            let heads = config.kda_heads;
            let log_len = total * shape.log_row();
            let workers = worth(workers, 4 * heads * accepted * shape.dim * shape.dim);
            let pieces: Pieces<_> = partition(heads, workers.count())
                .map(|range| Piece {
                    state: take_front(&mut state_rest, range.len() * shape.kda_head()),
                    log: take_front(&mut log_rest, range.len() * log_len),
                    scratch: take_front(&mut scratch_rest, range.len() * KDA_SCRATCH * shape.dim),
                })
                .collect();
            for_each_piece(workers, pieces, |piece: Piece<'_>| {
                let states = piece.state.chunks_exact_mut(shape.kda_head());
                let logs = piece.log.chunks_exact_mut(log_len);
                let scratch = piece.scratch.chunks_exact_mut(KDA_SCRATCH * shape.dim);
                for ((state, log), scratch) in states.zip(logs).zip(scratch) {
                    let rows = log.chunks_exact_mut(shape.log_row());
                    for row in rows.skip(start).take(accepted) {
                        let row = LogRow::of(row, shape.dim);
                        repeat(self.kernels, &shape, state, row, scratch);
                    }
                }
            });
        }
        state.position += accepted;
        state.held = 0;
    }
}

/// Takes one position of one head, whose `row` is known, into `state`.
fn repeat(
    kernels: &KernelSet,
    shape: &StateShape,
    state: &mut [f32],
    row: LogRow<'_>,
    scratch: &mut [f32],
) {
    let dim = shape.dim;
    let (matrix, histories) = state.split_at_mut(dim * dim);
    let mut rest = scratch;
    let [q, delta, out] = [(); 3].map(|()| take_front(&mut rest, dim));
    // The query only reads the state; a zero is skipped by definition.
    q.fill(0.0);
    (kernels.kda_step)(KdaStep {
        state: matrix,
        alpha: row.alpha,
        q,
        k: row.k,
        v: row.v,
        beta: *row.beta,
        delta,
        out,
    });
    if shape.history == 0 {
        return;
    }
    let histories = histories.chunks_exact_mut(shape.history * dim);
    for (history, input) in histories.zip(row.inputs.chunks_exact(dim)) {
        history.copy_within(dim.., 0);
        let newest = history.len() - dim;
        history[newest..].copy_from_slice(input);
    }
}
