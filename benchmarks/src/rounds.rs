//! Passes: calls of one kernel that together take long enough to be timed.
//!
//! A pass has a fixed number of calls for each thread, found once by running
//! until a given CPU time has gone by. Rates of one thread use that thread's CPU
//! time, those of several the process's: what handing out and waiting cost is in
//! it.

use std::sync::Mutex;

use k3_models::Workers;

use crate::clock::CpuClock;

/// What a pass calls over and over.
pub trait Kernel: Send {
    /// One call.
    fn call(&mut self);

    /// One more call whose outputs, or a sample of them, are compared with the
    /// scalar definition's. `round` chooses the sample.
    fn compare(&mut self, round: usize) -> Compared;
}

/// How many outputs were compared, and how many differed in a bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Outputs compared.
    pub values: u64,
    /// Those that differ; any NaN equals any NaN.
    pub mismatches: u64,
}

impl Compared {
    /// Compares two slices of equal length.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    #[must_use]
    pub fn of(found: &[f32], expected: &[f32]) -> Self {
        assert_eq!(found.len(), expected.len());
        let differ =
            |(f, e): &(&f32, &f32)| f.to_bits() != e.to_bits() && !(f.is_nan() && e.is_nan());
        let mismatches = found.iter().zip(expected).filter(differ).count();
        Self {
            values: found.len() as u64,
            mismatches: mismatches as u64,
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        self.values += other.values;
        self.mismatches += other.mismatches;
    }
}

/// The calls of one kernel, one instance for each thread.
pub struct Pass<'k> {
    kernels: Vec<Mutex<Box<dyn Kernel + 'k>>>,
    calls: u64,
}

impl<'k> Pass<'k> {
    /// A pass over one instance for each thread that takes about `seconds` of
    /// CPU time on each: at least one call.
    ///
    /// # Panics
    ///
    /// Without instances.
    #[must_use]
    pub fn calibrated(mut kernels: Vec<Box<dyn Kernel + 'k>>, seconds: f64) -> Self {
        let first = kernels.first_mut().expect("one for each thread");
        // Pages, tables and predictors are not part of what is measured.
        first.call();
        let mut calls = 0;
        let start = CpuClock::Thread.seconds();
        while calls == 0 || CpuClock::Thread.seconds() < start + seconds {
            first.call();
            calls += 1;
        }
        Self {
            kernels: kernels.into_iter().map(Mutex::new).collect(),
            calls,
        }
    }

    /// Calls of a pass, all threads together.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls * self.kernels.len() as u64
    }

    /// Runs a pass on `workers`. Returns the CPU seconds it took.
    ///
    /// # Panics
    ///
    /// When there are fewer workers than instances.
    pub fn run(&self, workers: &dyn Workers) -> f64 {
        let count = self.kernels.len();
        let clock = if count == 1 {
            CpuClock::Thread
        } else {
            CpuClock::Process
        };
        clock.time(|| {
            let body = |index: usize| {
                let mut kernel = self.kernels[index].lock().expect("no kernel has panicked");
                (0..self.calls).for_each(|_| kernel.call());
            };
            if count == 1 {
                body(0);
            } else {
                workers.run(count, &body);
            }
        })
    }

    /// Compares a sample of every instance's outputs.
    pub fn compare(&mut self, round: usize) -> Compared {
        let mut all = Compared::default();
        for kernel in &mut self.kernels {
            let kernel = kernel.get_mut().expect("no kernel has panicked");
            all.add(kernel.compare(round));
        }
        all
    }
}

/// Places `0..count` in the order of a round: forward, then backward, so that
/// no measure always follows the same other one.
pub fn places(round: usize, count: usize) -> impl Iterator<Item = usize> {
    let backward = round % 2 == 1;
    (0..count).map(move |place| if backward { count - 1 - place } else { place })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use k3_models::parallel::Inline;
    use k3_runtime::ComputePool;

    use super::*;

    /// Takes a millisecond of CPU time.
    struct Spin(Arc<AtomicU64>);

    impl Kernel for Spin {
        fn call(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            let start = CpuClock::Thread.seconds();
            while CpuClock::Thread.seconds() < start + 1e-3 {
                black_box(0);
            }
        }

        fn compare(&mut self, round: usize) -> Compared {
            Compared::of(&[0.0, f32::NAN, 1.0], &[-0.0, -f32::NAN, round as f32])
        }
    }

    fn spins(count: usize, called: &Arc<AtomicU64>) -> Vec<Box<dyn Kernel>> {
        let one = |_| Box::new(Spin(Arc::clone(called))) as Box<dyn Kernel>;
        (0..count).map(one).collect()
    }

    #[test]
    fn a_pass_takes_the_time_it_was_calibrated_for() {
        let called = Arc::new(AtomicU64::new(0));
        let pass = Pass::calibrated(spins(1, &called), 0.01);
        // The last call begins before the time is over.
        assert!((5..=10).contains(&pass.calls()), "{}", pass.calls());
        let before = called.load(Ordering::Relaxed);
        let seconds = pass.run(&Inline);
        assert_eq!(called.load(Ordering::Relaxed), before + pass.calls());
        let expected = pass.calls() as f64 * 1e-3;
        assert!((expected..2.0 * expected).contains(&seconds), "{seconds}");
    }

    #[test]
    fn several_threads_count_the_time_of_all() {
        let called = Arc::new(AtomicU64::new(0));
        let pass = Pass::calibrated(spins(2, &called), 0.005);
        let before = called.load(Ordering::Relaxed);
        let seconds = pass.run(&ComputePool::new(2).unwrap());
        assert_eq!(called.load(Ordering::Relaxed), before + pass.calls());
        assert!(seconds >= pass.calls() as f64 * 1e-3, "{seconds}");
    }

    #[test]
    fn differences_are_counted_by_bits_but_any_nan_is_any_nan() {
        let called = Arc::new(AtomicU64::new(0));
        let mut pass = Pass::calibrated(spins(2, &called), 0.0);
        let compared = |values, mismatches| Compared { values, mismatches };
        assert_eq!(pass.compare(1), compared(6, 2));
        assert_eq!(pass.compare(0), compared(6, 4));
    }

    #[test]
    fn rounds_go_there_and_back() {
        assert_eq!(places(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(places(1, 3).collect::<Vec<_>>(), [2, 1, 0]);
    }
}
