//! The protocol under every interleaving that a model checker can reach.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k3_threads::fork_join::ForkJoin;
use k3_threads::word::Word;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};

/// The checker's atomic word, and its threads' sleep. A sleeper that misses its
/// wake is a deadlock, which the checker reports.
struct Modelled {
    value: loom::sync::atomic::AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Word for Modelled {
    fn new(value: u32) -> Self {
        Self {
            value: loom::sync::atomic::AtomicU32::new(value),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn load(&self, order: Ordering) -> u32 {
        self.value.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.value.store(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.value.swap(value, order)
    }

    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.value.compare_exchange(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.value.fetch_sub(value, order)
    }

    // As the kernel does it: the look and the sleep are one step for a waker.
    fn wait(&self, expected: u32) {
        let guard = self.sleepers.lock().unwrap();
        if self.value.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.sleepers.lock().unwrap();
        self.woken.notify_one();
    }
}

/// A job and what each helper made of it. The checker fails a run in which an
/// access to a cell is not ordered against a write to it.
struct Work {
    fork_join: ForkJoin<Modelled>,
    job: UnsafeCell<u32>,
    results: Vec<UnsafeCell<u32>>,
}

impl Work {
    fn new(helpers: usize) -> Arc<Self> {
        Arc::new(Self {
            fork_join: ForkJoin::new(helpers),
            job: UnsafeCell::new(0),
            results: (0..helpers).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn write_job(&self, value: u32) {
        // SAFETY: no fork is open; the checker verifies that no helper reads.
        self.job.with_mut(|job| unsafe { *job = value });
    }

    fn read_job(&self) -> u32 {
        // SAFETY: between a fork and its finish; the checker verifies that
        // nobody writes.
        self.job.with(|job| unsafe { *job })
    }

    fn write_result(&self, helper: usize, value: u32) {
        // SAFETY: only this helper writes, between a fork and its finish.
        self.results[helper].with_mut(|result| unsafe { *result = value });
    }

    fn read_result(&self, helper: usize) -> u32 {
        // SAFETY: after the join; the checker verifies that nobody writes.
        self.results[helper].with(|result| unsafe { *result })
    }

    /// A helper that takes part in `rounds` jobs.
    fn help(work: &Arc<Self>, helper: usize, rounds: u32) -> loom::thread::JoinHandle<()> {
        let work = Arc::clone(work);
        loom::thread::spawn(move || {
            for _ in 0..rounds {
                work.fork_join.await_fork(helper, Duration::ZERO);
                work.write_result(helper, work.read_job() * 10);
                work.fork_join.finish();
            }
        })
    }

    /// One job for the first `helpers`, checked.
    fn round(&self, helpers: usize, job: u32) {
        self.write_job(job);
        self.fork_join.fork(helpers);
        assert_eq!(self.read_job(), job);
        self.fork_join.join(Duration::ZERO);
        for helper in 0..helpers {
            assert_eq!(self.read_result(helper), job * 10);
        }
    }
}

/// Every run with up to three forced switches; without a bound two rounds take
/// minutes.
fn bounded(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// Every run there is.
#[test]
fn a_job_is_not_the_callers_before_its_join() {
    loom::model(|| {
        let work = Work::new(1);
        let helper = Work::help(&work, 0, 1);
        work.round(1, 1);
        helper.join().unwrap();
    });
}

#[test]
fn a_job_is_the_callers_again_after_each_join() {
    bounded(|| {
        let work = Work::new(1);
        let helper = Work::help(&work, 0, 2);
        work.round(1, 1);
        work.round(1, 2);
        helper.join().unwrap();
    });
}

#[test]
fn a_join_waits_for_every_helper() {
    bounded(|| {
        let work = Work::new(2);
        let helpers = [Work::help(&work, 0, 1), Work::help(&work, 1, 1)];
        work.round(2, 1);
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}

#[test]
fn helpers_that_are_not_asked_sleep_on() {
    bounded(|| {
        let work = Work::new(2);
        let helpers = [Work::help(&work, 0, 2), Work::help(&work, 1, 1)];
        work.round(1, 1);
        work.round(2, 2);
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}
