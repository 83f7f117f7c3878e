//! What a position of a prompt costs, by the number of positions in a chunk.
//!
//! A chunk reads every block once, and every expert that any of its positions
//! picked once: the more positions share it, the less each has to read. Chunks of
//! all sizes take turns, so that whatever else the machine does falls on all.

use std::sync::Arc;
use std::time::Instant;

use k3_config::BudgetPlan;
use k3_io::process_cpu_seconds;
use k3_models::{LogitRows, ModelFamily, SequenceState, Workers, WorkspaceSize};
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, Checkpoint, ComputePool, forward};
use serde::Serialize;

use super::error::BenchError;
use super::prompt::{Told, sweep};
use crate::supervisor::{ShutdownReport, StreamSettings, Supervisor};

/// What is measured.
pub struct PrefillRequest<'a, M> {
    /// The model.
    pub model: &'a M,
    /// Its weights.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// The plan; its chunk is the largest that can be measured, its context two of
    /// them.
    pub plan: &'a BudgetPlan,
    /// How weights are read.
    pub settings: &'a StreamSettings,
    /// Who computes.
    pub pool: &'a ComputePool,
    /// A request to stop.
    pub cancel: &'a Cancel,
}

/// Told the positions of the chunk at hand and how far all is, from 0 to 1.
pub type Watch<'w> = dyn FnMut(usize, f64) + 'w;

/// One size of chunk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrefillPoint {
    /// Positions of a chunk.
    pub positions: usize,
    /// Chunks that were measured.
    pub rounds: usize,
    /// Seconds of a chunk.
    pub wall_seconds: Spread,
    /// Processor seconds of a chunk, of all threads.
    pub cpu_seconds: Spread,
    /// Payload bytes of a chunk's blocks.
    pub trunk_bytes: Spread,
    /// Payload bytes of its experts.
    pub expert_bytes: Spread,
    /// Distinct experts it took, of all layers.
    pub experts: Spread,
}

/// One chunk, measured.
#[derive(Debug, Clone, Copy)]
struct Measured {
    wall_seconds: f64,
    cpu_seconds: f64,
    trunk_bytes: u64,
    expert_bytes: u64,
    experts: u64,
}

/// A streaming model, and chunks of prompts to feed it.
pub struct PrefillBench<'a, M: ModelFamily> {
    request: PrefillRequest<'a, M>,
    supervisor: Supervisor,
    state: M::State,
    workspace: M::Workspace,
}

impl<'a, M: ModelFamily> PrefillBench<'a, M> {
    /// Starts the actors.
    ///
    /// # Errors
    ///
    /// Memory or threads that cannot be had.
    pub fn start(request: PrefillRequest<'a, M>) -> Result<Self, BenchError> {
        let (model, plan) = (request.model, request.plan);
        let (checkpoint, settings) = (request.checkpoint, request.settings);
        let supervisor = Supervisor::start(model, checkpoint, plan, settings, None)?;
        let positions = crate::units::memory(plan.sweep_positions);
        let workspace = model.new_workspace(WorkspaceSize {
            held_positions: 0,
            positions,
            logit_rows: 1,
            context_positions: 2 * positions,
            workers: Workers::count(request.pool),
        });
        Ok(Self {
            state: model.new_state(2 * positions),
            request,
            supervisor,
            workspace,
        })
    }

    /// Measures chunks of each of `sizes`, `rounds` times in turn. What is known
    /// when a stop is asked for is kept: whole rounds.
    ///
    /// # Errors
    ///
    /// Reads that fail, and a stop before the first round is complete.
    pub fn measure(
        &mut self,
        sizes: &[usize],
        rounds: usize,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<PrefillPoint>, BenchError> {
        let mut done: Vec<Vec<Measured>> = Vec::with_capacity(rounds);
        let per_round: usize = sizes.iter().sum();
        for round in 0..rounds {
            let mut before = round * per_round;
            let measured = sizes.iter().map(|&positions| {
                #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
                let mut told = |share: f64| {
                    let total = (rounds * per_round) as f64;
                    watch(
                        positions,
                        (before as f64 + share * positions as f64) / total,
                    );
                };
                let measured = self.chunk(positions, &mut told);
                before += positions;
                measured
            });
            match measured.collect() {
                Ok(measured) => done.push(measured),
                Err(BenchError::Run(k3_runtime::RunError::Cancelled)) if !done.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let points = sizes.iter().enumerate().map(|(index, &positions)| {
            PrefillPoint::new(positions, done.iter().map(|round| round[index]))
        });
        Ok(points.collect())
    }

    /// The second of two chunks of a prompt: what was read ahead when the clock
    /// starts is as much as when it stops.
    fn chunk(
        &mut self,
        positions: usize,
        told: &mut dyn FnMut(f64),
    ) -> Result<Measured, BenchError> {
        self.state.reset();
        self.sweep(0, positions, &mut |share| told(share / 2.0))?;
        let (wall, cpu) = (Instant::now(), process_cpu_seconds());
        self.sweep(positions, positions, &mut |share| told(0.5 + share / 2.0))?;
        let reads = self.supervisor.source_ref().sweep_reads();
        Ok(Measured {
            wall_seconds: wall.elapsed().as_secs_f64(),
            cpu_seconds: process_cpu_seconds() - cpu,
            trunk_bytes: reads.trunk.read_bytes,
            expert_bytes: reads.experts.read_bytes,
            experts: reads.experts.hits + reads.experts.misses,
        })
    }

    fn sweep(
        &mut self,
        first: usize,
        count: usize,
        told: &mut dyn FnMut(f64),
    ) -> Result<(), BenchError> {
        let model = self.request.model;
        let sweep = sweep(first, count, LogitRows::None, model.vocab_size());
        let (pool, cancel) = (self.request.pool, self.request.cancel);
        let states = vec![&mut self.state];
        let source = self.supervisor.source();
        let (workspace, observer) = (&mut self.workspace, &mut Told(told));
        let _entered = pool.enter();
        forward(
            model, source, &sweep, states, workspace, pool, observer, cancel,
        )?;
        Ok(())
    }

    /// What reads, and what it has to do without.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Stops everything in order.
    #[must_use]
    pub fn shutdown(self) -> ShutdownReport {
        self.supervisor.shutdown()
    }
}

impl PrefillPoint {
    fn new(positions: usize, rounds: impl Iterator<Item = Measured> + Clone) -> Self {
        let spread = |value: &dyn Fn(Measured) -> f64| {
            let values: Vec<f64> = rounds.clone().map(value).collect();
            Spread::of(&values).expect("at least one round")
        };
        #[allow(clippy::cast_precision_loss, reason = "figures to a few digits")]
        let count = |value: fn(Measured) -> u64| spread(&|measured| value(measured) as f64);
        Self {
            positions,
            rounds: rounds.clone().count(),
            wall_seconds: spread(&|measured| measured.wall_seconds),
            cpu_seconds: spread(&|measured| measured.cpu_seconds),
            trunk_bytes: count(|measured| measured.trunk_bytes),
            expert_bytes: count(|measured| measured.expert_bytes),
            experts: count(|measured| measured.experts),
        }
    }
}
