//! What it costs to hand out a job and to wait for it.

use std::time::{Duration, Instant};

use k3_models::Workers;
use k3_runtime::ComputePool;
use k3_runtime::statistics::Spread;
use serde::Serialize;

/// Jobs of one round, one right after the other.
const BUSY_JOBS: usize = 1000;
/// Jobs of one round with a pause before each.
const IDLE_JOBS: usize = 20;
/// Long enough for the others to have gone to sleep.
const PAUSE: Duration = Duration::from_millis(2);

/// Wall time of empty jobs over all threads of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForkJoin {
    /// Threads of the pool.
    pub threads: usize,
    /// One job right after the other, as within a layer.
    pub busy_seconds: Spread,
    /// After two milliseconds in which nothing was done.
    pub idle_seconds: Spread,
}

/// Times of single jobs, round by round.
#[derive(Debug, Default)]
pub struct ForkJoinTimes {
    busy: Vec<f64>,
    idle: Vec<f64>,
}

impl ForkJoinTimes {
    /// One more round.
    pub fn round(&mut self, pool: &ComputePool) {
        let empty = || {
            let start = Instant::now();
            pool.run(pool.count(), &|_| {});
            start.elapsed().as_secs_f64()
        };
        self.busy.extend((0..BUSY_JOBS).map(|_| empty()));
        self.idle.extend((0..IDLE_JOBS).map(|_| {
            std::thread::sleep(PAUSE);
            empty()
        }));
    }

    /// What came out; `None` before the first round.
    #[must_use]
    pub fn figures(&self, threads: usize) -> Option<ForkJoin> {
        Some(ForkJoin {
            threads,
            busy_seconds: Spread::of(&self.busy)?,
            idle_seconds: Spread::of(&self.idle)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_of_every_round_is_timed() {
        let pool = ComputePool::new(2).unwrap();
        let mut times = ForkJoinTimes::default();
        times.round(&pool);
        times.round(&pool);
        assert_eq!(times.busy.len(), 2 * BUSY_JOBS);
        assert_eq!(times.idle.len(), 2 * IDLE_JOBS);
        let figures = times.figures(2).unwrap();
        assert!(figures.busy_seconds.min > 0.0 && figures.idle_seconds.min > 0.0);
    }
}
