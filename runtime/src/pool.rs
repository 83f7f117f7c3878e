//! Compute threads with a static split.

use k3_kernels::assert_fp_environment;
use k3_models::Workers;
use k3_models::parallel::{WORK_MIN, WORKERS_MAX};

use crate::error::RunError;

/// Threads that run the same body, one piece each.
///
/// With one thread nothing is spawned and bodies run on the caller.
#[derive(Debug)]
pub struct ComputePool {
    threads: Option<rayon::ThreadPool>,
    count: usize,
    work_min: usize,
}

impl ComputePool {
    /// A pool of `count` threads. Every thread asserts that it rounds to
    /// nearest and keeps subnormals, as the arithmetic requires.
    ///
    /// # Errors
    ///
    /// A count outside `1..=256`, or threads the system refuses to start.
    pub fn new(count: usize) -> Result<Self, RunError> {
        if count == 0 || count > WORKERS_MAX {
            return Err(RunError::ThreadCount {
                count,
                max: WORKERS_MAX,
            });
        }
        assert_fp_environment();
        let threads = (count > 1)
            .then(|| {
                rayon::ThreadPoolBuilder::new()
                    .num_threads(count)
                    .thread_name(|index| format!("k3-compute-{index}"))
                    .start_handler(|_| assert_fp_environment())
                    .build()
            })
            .transpose()
            .map_err(|error| RunError::ThreadsNotStarted {
                count,
                reason: error.to_string(),
            })?;
        Ok(Self {
            threads,
            count,
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

    /// Threads the process may run on: its affinity and CPU quota as the
    /// standard library reads them, at most 256.
    #[must_use]
    pub fn available_threads() -> usize {
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(WORKERS_MAX)
    }
}

impl Workers for ComputePool {
    fn count(&self) -> usize {
        self.count
    }

    fn work_min(&self) -> usize {
        self.work_min
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        assert!(
            tasks <= self.count,
            "{tasks} tasks for {} workers",
            self.count
        );
        match &self.threads {
            None => (0..tasks).for_each(body),
            Some(pool) => {
                pool.broadcast(|context| {
                    if context.index() < tasks {
                        body(context.index());
                    }
                });
            }
        }
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
