//! The one walk through a sweep's program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k3_config::BlockKind;
use k3_models::phase::TAKE_WEIGHTS;
use k3_models::{
    ExpertDemand, Finished, LayerIndex, ModelFamily, SequenceState as _, Step, Sweep, SweepProgram,
    SweepRun, Workers,
};

use crate::error::RunError;
use crate::source::WeightSource;

/// A request to stop, shared by whoever may ask for it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the run to stop at the next block.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says whether a sweep should stop at its next block.
pub trait StopSignal {
    /// Whether a stop was asked for.
    fn is_requested(&self) -> bool;
}

impl StopSignal for Cancel {
    fn is_requested(&self) -> bool {
        Self::is_requested(self)
    }
}

/// Told what a sweep does, as it happens.
pub trait SweepObserver {
    /// A layer's demand, `[positions][top_k]` ids in pick order.
    fn demand(&mut self, demand: &ExpertDemand) {
        let _ = demand;
    }

    /// `done` of `total` steps have run.
    fn progress(&mut self, done: usize, total: usize) {
        let _ = (done, total);
    }
}

/// Observes nothing.
impl SweepObserver for () {}

/// Where a sweep stands, for other threads to look at.
#[derive(Debug, Default)]
pub struct SweepProgress {
    done: AtomicUsize,
    total: AtomicUsize,
}

impl SweepProgress {
    /// `done` of `total` steps have run.
    pub fn set(&self, done: usize, total: usize) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Steps that have run, and steps of a sweep; both 0 before the first.
    #[must_use]
    pub fn get(&self) -> (usize, usize) {
        let total = self.total.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed), total)
    }
}

/// Counts of one sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Bytes of trunk blocks consumed.
    pub trunk_bytes: u64,
    /// Blocks consumed.
    pub blocks: u64,
    /// Bytes of experts consumed.
    pub expert_bytes: u64,
    /// Experts consumed (the union over positions).
    pub experts: u64,
    /// Bytes of embedding rows consumed.
    pub embedding_bytes: u64,
    /// Weight groups skipped because their scale is NaN.
    pub nan_scale_groups: u64,
}

/// Runs `sweep` over `states`, feeding the model from `source`. Returns the
/// wanted logits with the segments that failed, and what was consumed.
///
/// # Errors
///
/// What the model or the source reports, or [`RunError::Cancelled`]. Unless a
/// sweep is refused at its start, the states are poisoned by any error.
#[allow(
    clippy::too_many_arguments,
    reason = "every part of a sweep meets here, once"
)]
pub fn forward<'a, M: ModelFamily, S: WeightSource>(
    model: &'a M,
    source: &mut S,
    sweep: &'a Sweep,
    states: Vec<&'a mut M::State>,
    workspace: &'a mut M::Workspace,
    workers: &'a dyn Workers,
    observer: &mut dyn SweepObserver,
    stop: &dyn StopSignal,
) -> Result<(Finished<'a>, SweepCounts), RunError> {
    let program = model.program();
    let with_head = sweep.logit_row_count() > 0;
    let outside = states.iter().flat_map(|state| state.outside());
    let outside: Vec<u32> = outside.copied().collect();
    let mut run = model.begin(sweep, states, workspace, workers)?;
    let mut counts = SweepCounts::default();
    source.begin_sweep(sweep)?;
    source.begin_past(&outside);
    for (done, step) in program.steps.iter().enumerate() {
        if stop.is_requested() {
            return Err(RunError::Cancelled);
        }
        observer.progress(done, program.steps.len());
        match *step {
            Step::Embed => {
                for (index, token) in sweep.tokens().enumerate() {
                    let row = source.embedding_row(token)?;
                    counts.embedding_bytes += row.len() as u64;
                    run.embed(index, &row);
                }
            }
            Step::Past(_) if outside.is_empty() => {}
            Step::Past(layer) => {
                workers.phase(TAKE_WEIGHTS, 0);
                run.past(layer, source.past())?;
            }
            Step::Block(index) => {
                let block = program.block(index);
                if block.kind == BlockKind::Head && !with_head {
                    continue;
                }
                workers.phase(TAKE_WEIGHTS, 0);
                let bytes = source.block(index)?;
                counts.trunk_bytes += bytes.len() as u64;
                counts.blocks += 1;
                run.block(block, &bytes)?;
            }
            Step::Route(layer) => {
                let demand = run.route(layer)?;
                observer.demand(demand);
                workers.phase(TAKE_WEIGHTS, 0);
                source.demand(demand)?;
            }
            Step::Experts(layer) => {
                experts(&mut run, source, workers, &mut counts, stop)?;
                run.finish_moe(layer);
            }
            Step::EndLayer(layer) => {
                run.end_layer(layer)?;
                look_ahead(program, &mut run, source, layer)?;
            }
        }
    }
    observer.progress(program.steps.len(), program.steps.len());
    counts.nan_scale_groups = run.nan_scale_groups();
    Ok((run.finish()?, counts))
}

/// Hands over every expert of the layer's demand.
fn experts<'a, S: WeightSource>(
    run: &mut impl SweepRun<'a>,
    source: &mut S,
    workers: &dyn Workers,
    counts: &mut SweepCounts,
    stop: &dyn StopSignal,
) -> Result<(), RunError> {
    loop {
        workers.phase(TAKE_WEIGHTS, 0);
        let Some((key, bytes)) = source.next_expert()? else {
            return Ok(());
        };
        if stop.is_requested() {
            return Err(RunError::Cancelled);
        }
        counts.expert_bytes += bytes.len() as u64;
        counts.experts += 1;
        run.expert(key, &bytes);
    }
}

/// Tells the source which experts the layer after `layer` will probably need,
/// if it wants to know and holds that layer's router. They can be read while
/// that layer's attention is computed.
fn look_ahead<'a, S: WeightSource>(
    program: &SweepProgram,
    run: &mut impl SweepRun<'a>,
    source: &mut S,
    layer: LayerIndex,
) -> Result<(), RunError> {
    let count = source.lookahead_count();
    let router = program.next_router(layer).filter(|_| count > 0);
    let Some(router) = router else {
        return Ok(());
    };
    for index in router.block_indices() {
        let Some(bytes) = source.lookahead_block(index) else {
            return Ok(());
        };
        run.look_ahead(program.block(index), &bytes)?;
    }
    source.expect(run.guess(router.layer, count))
}
