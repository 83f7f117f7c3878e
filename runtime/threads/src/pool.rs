//! The threads.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fork_join::ForkJoin;

/// What a thread died of.
type Panic = Box<dyn Any + Send>;

/// What is run, on the stack of whoever runs it.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
}

/// How a pool is made.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Threads that compute, the caller among them; at least 1.
    pub count: usize,
    /// What threads are called, before a dash and their index.
    pub name: &'static str,
    /// How long a thread looks for work, or for the end of others' work,
    /// before it sleeps. Waking it takes some ten microseconds; looking keeps a
    /// processor from others.
    pub patience: Duration,
}

/// A thread that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("thread {index} of {count} did not start: {source}")]
pub struct StartError {
    /// Which one.
    pub index: usize,
    /// How many there should be.
    pub count: usize,
    /// What the system says.
    pub source: std::io::Error,
}

/// Threads that run one body each and wait for one another. The calling thread
/// is the first of them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Whether a body is being run.
    is_busy: AtomicBool,
    patience: Duration,
}

/// What the threads share.
struct Shared {
    fork_join: ForkJoin<AtomicU32>,
    /// The job at hand; null tells the threads to end. Written by the caller
    /// between a join and a fork, read by helpers between a fork and their
    /// `finish`.
    job: AtomicPtr<Job<'static>>,
    /// What each helper's last body died of.
    panics: Box<[Mutex<Option<Panic>>]>,
    has_panicked: AtomicBool,
    /// Joins to come before anybody looks for work again.
    crowded_joins: AtomicU32,
}

/// Joins that sleep at once after one whose helpers were not done in time.
const CROWDED_JOINS: u32 = 32;

impl Pool {
    /// Starts the threads. Each calls `on_start` with its index, from 1, before
    /// anything else; its answers come back in that order. A panic in
    /// `on_start` is passed on.
    ///
    /// # Errors
    ///
    /// A thread the system refuses to start; those before it have ended.
    ///
    /// # Panics
    ///
    /// If the count is 0.
    pub fn start<T: Send + 'static>(
        setup: Setup,
        on_start: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Result<(Self, Vec<T>), StartError> {
        let Setup {
            count,
            name,
            patience,
        } = setup;
        assert!(count > 0, "somebody has to compute");
        let helpers = count - 1;
        let mut pool = Self {
            shared: Arc::new(Shared::new(helpers)),
            threads: Vec::with_capacity(helpers),
            is_busy: AtomicBool::new(false),
            patience,
        };
        let on_start = Arc::new(on_start);
        let mut answers = Vec::with_capacity(helpers);
        for index in 1..count {
            let (shared, on_start) = (Arc::clone(&pool.shared), Arc::clone(&on_start));
            let (tell, told) = mpsc::sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || {
                    let answer = catch_unwind(AssertUnwindSafe(|| on_start(index)));
                    // The pool waits for each answer.
                    let _ = tell.send(answer);
                    shared.help(index - 1, patience);
                });
            pool.threads.push(thread.map_err(|source| StartError {
                index,
                count,
                source,
            })?);
            answers.push(told);
        }
        let answers = answers.into_iter().map(|told| {
            let answer = told.recv().expect("a thread answers before it ends");
            // Dropping the pool ends its threads.
            answer.unwrap_or_else(|panic| resume_unwind(panic))
        });
        let answers = answers.collect();
        Ok((pool, answers))
    }

    /// Threads that compute, the caller among them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `body(index)` once for every index below `tasks` and returns when
    /// all have finished; index 0 runs on the calling thread. Allocates
    /// nothing.
    ///
    /// While the pool is busy, as when a body calls `run` itself, all indices
    /// run on the calling thread, one after the other.
    ///
    /// # Panics
    ///
    /// If there are fewer threads than `tasks`. A panic in a body is passed on
    /// once all have finished, the one of the lowest index if there are
    /// several; the pool can be used again.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let count = self.count();
        assert!(tasks <= count, "{tasks} tasks for {count} threads");
        if tasks <= 1 || self.is_busy.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(body);
            return;
        }
        let own = self.run_forked(tasks - 1, body);
        let others = self.shared.take_panic();
        self.is_busy.store(false, Ordering::Release);
        if let Some(panic) = own.err().or(others) {
            resume_unwind(panic);
        }
    }

    /// Runs index 0 here and the next `helpers` on their threads. Returns when
    /// all are done, whatever happens.
    fn run_forked(&self, helpers: usize, body: &(dyn Fn(usize) + Sync)) -> Result<(), Panic> {
        let shared = &*self.shared;
        let job = Job { body };
        shared.job.store(
            ptr::from_ref(&job).cast::<Job<'static>>().cast_mut(),
            Ordering::Relaxed,
        );
        shared.fork_join.fork(helpers);
        // Nothing between here and the end of the join may unwind: helpers
        // still use `job`.
        let own = catch_unwind(AssertUnwindSafe(|| body(0)));
        let patience = shared.patience(self.patience);
        let is_seen = shared.fork_join.join(patience);
        shared.note_join(is_seen);
        own
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("count", &self.count())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A pool whose start failed has fewer threads than it has signals.
        let helpers = self.threads.len();
        if helpers == 0 {
            return;
        }
        self.shared.job.store(ptr::null_mut(), Ordering::Relaxed);
        self.shared.fork_join.fork(helpers);
        for thread in self.threads.drain(..) {
            // A helper catches every panic of a body.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(helpers: usize) -> Self {
        Self {
            fork_join: ForkJoin::new(helpers),
            job: AtomicPtr::new(ptr::null_mut()),
            panics: (0..helpers).map(|_| Mutex::new(None)).collect(),
            has_panicked: AtomicBool::new(false),
            crowded_joins: AtomicU32::new(0),
        }
    }

    /// How long to look now. When threads share a processor, whoever looks keeps
    /// it from those that are looked for: then all sleep at once, and only now
    /// and then a join looks whether that is still so.
    fn patience(&self, patience: Duration) -> Duration {
        if self.crowded_joins.load(Ordering::Relaxed) == 0 {
            patience
        } else {
            Duration::ZERO
        }
    }

    /// Called by the caller alone, so two steps are as good as one.
    fn note_join(&self, is_seen: bool) {
        let left = self.crowded_joins.load(Ordering::Relaxed);
        let left = match left.checked_sub(1) {
            Some(left) => left,
            None if is_seen => 0,
            None => CROWDED_JOINS,
        };
        self.crowded_joins.store(left, Ordering::Relaxed);
    }

    /// The life of helper `helper`, from 0.
    fn help(&self, helper: usize, patience: Duration) {
        loop {
            self.fork_join.await_fork(helper, self.patience(patience));
            let job = self.job.load(Ordering::Relaxed);
            if job.is_null() {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| perform(job, helper + 1))) {
                let mut place = self.panics[helper]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                *place = Some(panic);
                self.has_panicked.store(true, Ordering::Relaxed);
            }
            self.fork_join.finish();
            // Before looking for more, a turn for whoever waits for this
            // processor: the caller, if both share it.
            std::thread::yield_now();
        }
    }

    /// What the job at hand died of, if it did, after its join.
    fn take_panic(&self) -> Option<Panic> {
        if !self.has_panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.has_panicked.store(false, Ordering::Relaxed);
        let taken = self
            .panics
            .iter()
            .map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).take());
        taken.fold(None, Option::or)
    }
}

/// Runs the part `index` of the job at hand.
#[allow(unsafe_code, reason = "a body on the caller's stack crosses threads")]
fn perform(job: *const Job<'static>, index: usize) {
    // SAFETY: the caller's `run_forked` stored the address of its local `job`
    // before the fork that this helper was woken by, and it neither returns nor
    // unwinds before a join that waits for this helper's `finish`, which comes
    // after this function: the job and the body it refers to live, whatever
    // lifetime their types are given here, and nobody writes them. Sharing the
    // body between threads is allowed, as it is `Sync`.
    let job = unsafe { &*job };
    (job.body)(index);
}
