//! Compute threads with a static split.

use std::time::Duration;

use k3_kernels::assert_fp_environment;
use k3_models::Workers;
use k3_models::parallel::{WORK_MIN, WORKERS_MAX};
use k3_threads::{Pool, Setup, StartError};

use crate::error::RunError;
use crate::placement::{Entered, PinError, Placement, PlacementReport, pin_this_thread};

/// How long a thread looks for work before it sleeps. The serial steps between
/// two products of a layer are shorter; a wait for the disk is longer, and then
/// the processor is free for whoever reads.
const PATIENCE: Duration = Duration::from_micros(100);

/// Threads that run the same body, one piece each. The caller is one of them.
///
/// With one thread nothing is spawned and bodies run on the caller.
#[derive(Debug)]
pub struct ComputePool {
    pool: Pool,
    placement: Placement,
    /// Why threads float that should not.
    refused: Option<PinError>,
    work_min: usize,
}

impl ComputePool {
    /// A pool of `count` threads, which run on any processor. Every thread
    /// asserts that it rounds to nearest and keeps subnormals, as the
    /// arithmetic requires.
    ///
    /// # Errors
    ///
    /// A count outside `1..=256`, or threads the system refuses to start.
    pub fn new(count: usize) -> Result<Self, RunError> {
        Self::placed(count, Placement::floating("it was not asked for"))
    }

    /// The same with each thread where `placement` puts it, if the system lets
    /// it; the calling thread only between [`Self::enter`] and its end.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn placed(count: usize, placement: Placement) -> Result<Self, RunError> {
        if count == 0 || count > WORKERS_MAX {
            return Err(RunError::ThreadCount {
                count,
                max: WORKERS_MAX,
            });
        }
        assert_fp_environment();
        let setup = Setup {
            count,
            name: "k3-compute",
            // Threads that share a processor would look in the way of each
            // other's work.
            patience: if count <= Self::available_threads() {
                PATIENCE
            } else {
                Duration::ZERO
            },
        };
        let cpus = placement.cpus().to_vec();
        let on_start = move |index: usize| {
            assert_fp_environment();
            cpus.get(index).map_or(Ok(()), |&cpu| pin_this_thread(cpu))
        };
        let (pool, pinned) = Pool::start(setup, on_start).map_err(not_started)?;
        Ok(Self {
            pool,
            placement,
            refused: pinned.into_iter().find_map(Result::err),
            work_min: WORK_MIN,
        })
    }

    /// The same pool, handing out even the smallest job: for tests of splits
    /// on tiny models.
    #[must_use]
    pub fn splitting_everything(mut self) -> Self {
        self.work_min = 0;
        self
    }

    /// Puts the calling thread where the first of the pool's threads belongs,
    /// until the answer is dropped: for the time of a sweep. Threads that are
    /// started meanwhile stay on that processor.
    #[must_use]
    pub fn enter(&self) -> Entered {
        let cpu = match self.refused {
            None => self.placement.cpus().first(),
            Some(_) => None,
        };
        Entered::new(cpu.copied())
    }

    /// Where the threads run.
    #[must_use]
    pub fn placement(&self) -> PlacementReport {
        self.placement.report(self.refused)
    }

    /// Threads the process may run on: its affinity and CPU quota as the
    /// standard library reads them, at most 256.
    #[must_use]
    pub fn available_threads() -> usize {
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(WORKERS_MAX)
    }
}

fn not_started(error: StartError) -> RunError {
    RunError::ThreadsNotStarted {
        count: error.count,
        reason: error.source.to_string(),
    }
}

impl Workers for ComputePool {
    fn count(&self) -> usize {
        self.pool.count()
    }

    fn work_min(&self) -> usize {
        self.work_min
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.pool.run(tasks, body);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in [1, 2, 3] {
            let pool = ComputePool::new(count).unwrap();
            let hits: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            for tasks in 1..=count {
                pool.run(tasks, &|index| {
                    hits[index].fetch_add(1, Ordering::Relaxed);
                });
            }
            let counts: Vec<_> = hits.iter().map(|hit| hit.load(Ordering::Relaxed)).collect();
            assert_eq!(counts, (1..=count).rev().collect::<Vec<_>>());
        }
    }

    #[test]
    fn refuses_counts_out_of_range() {
        for count in [0, WORKERS_MAX + 1] {
            let error = ComputePool::new(count).unwrap_err().to_string();
            assert!(error.contains(&count.to_string()), "{error}");
        }
    }
}
