//! Threads that take parts until there are none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::FetchSettings;
use super::finish;
use super::job::{Job, Task};
use super::part::{self, Fetched};
use super::plan::{Directory, FetchPlan};
use crate::error::IntegrityError;
use crate::http::{Client, RetrySettings};
use crate::watch::Watch;

/// How often a thread without work looks again, and the end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What the threads of a download share.
#[derive(Debug)]
pub(super) struct Run {
    jobs: Vec<Arc<Job>>,
    pub(super) directory: Directory,
    pub(super) client: Client,
    pub(super) retry: RetrySettings,
    pub(super) watch: Shared,
    fetched_bytes: AtomicU64,
    stop: AtomicBool,
    failures: Mutex<Failures>,
    idle: (Mutex<()>, Condvar),
    running: AtomicUsize,
}

/// The watch, which has nothing to show.
pub(super) struct Shared(Arc<dyn Watch>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Watch")
    }
}

impl std::ops::Deref for Shared {
    type Target = dyn Watch;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

#[derive(Debug, Default)]
struct Failures {
    /// What ended everything.
    fatal: Option<IntegrityError>,
    /// What ended single files, by path.
    files: BTreeMap<String, String>,
}

/// Runs a plan; the bytes that came.
///
/// # Errors
///
/// As [`super::fetch`].
pub(super) fn run(
    plan: FetchPlan,
    settings: &FetchSettings,
    client: Client,
    watch: &Arc<dyn Watch>,
) -> Result<u64, IntegrityError> {
    let total_bytes = plan.jobs.iter().map(|job| job.file.bytes).sum();
    watch.phase("fetching", total_bytes);
    watch.bytes(plan.jobs.iter().map(|job| job.done_bytes()).sum());
    let run = Arc::new(Run {
        jobs: plan.jobs.into_iter().map(Arc::new).collect(),
        directory: plan.directory,
        client,
        retry: settings.retry,
        watch: Shared(Arc::clone(watch)),
        fetched_bytes: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
        idle: (Mutex::new(()), Condvar::new()),
        running: AtomicUsize::new(settings.parallel),
    });
    for number in 0..settings.parallel {
        let shared = Arc::clone(&run);
        let thread = std::thread::Builder::new().name(format!("k3-fetch-{number}"));
        let spawned = thread.spawn(move || shared.work());
        spawned.map_err(IntegrityError::writing("threads", "start one"))?;
    }
    run.wait();
    let failures = std::mem::take(&mut *run.failures());
    if let Some(error) = failures.fatal {
        return Err(error);
    }
    if !watch.go_on() {
        return Err(IntegrityError::Interrupted);
    }
    if !failures.files.is_empty() {
        let of = run.jobs.len();
        let failures = failures.files.into_iter();
        let failures = failures
            .map(|(path, reason)| format!("{path}: {reason}"))
            .collect();
        return Err(IntegrityError::Incomplete { failures, of });
    }
    run.directory.close();
    Ok(run.fetched_bytes.load(Ordering::Relaxed))
}

impl Run {
    /// Whether to go on, for who watches and for the threads themselves.
    pub(super) fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.watch.go_on()
    }

    /// Bytes have come.
    pub(super) fn count(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.watch.bytes(bytes);
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until all threads have ended. None waits for a server that nobody wants to
    /// hear any more.
    fn wait(&self) {
        while self.running.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn work(&self) {
        // A panic must not leave the others waiting.
        struct Leaving<'a>(&'a Run);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.stop.store(true, Ordering::Relaxed);
                }
                self.0.running.fetch_sub(1, Ordering::Release);
            }
        }
        let _leaving = Leaving(self);
        while let Some((job, task)) = self.next() {
            if let Err(error) = self.perform(&job, task) {
                self.fail(&job, error);
            }
            self.idle.1.notify_all();
        }
    }

    fn perform(&self, job: &Job, task: Task) -> Result<(), IntegrityError> {
        let is_complete = match task {
            Task::Finish => true,
            Task::Part(part) => match part::fetch(self, job, part)? {
                Fetched::Complete(epoch) => job.part_is_complete(epoch),
                Fetched::Former => false,
            },
        };
        if is_complete {
            finish::finish(self, job)?;
        }
        Ok(())
    }

    /// What ends a file, and what ends everything: a disk that is full, a hub
    /// that refuses, a network that is not there.
    fn fail(&self, job: &Job, error: IntegrityError) {
        job.end();
        let is_one_file = matches!(&error, IntegrityError::Http(error) if error.is_of_one_file());
        let mut failures = self.failures();
        if is_one_file {
            let path = job.file.path.clone();
            failures
                .files
                .entry(path)
                .or_insert_with(|| error.to_string());
            return;
        }
        self.stop.store(true, Ordering::Relaxed);
        if !matches!(error, IntegrityError::Interrupted) {
            failures.fatal.get_or_insert(error);
        }
    }

    /// The next thing to do; `None` when there is nothing and will be nothing.
    fn next(&self) -> Option<(Arc<Job>, Task)> {
        loop {
            if !self.go_on() {
                return None;
            }
            let mut is_over = true;
            for job in &self.jobs {
                match job.take() {
                    Ok(Some(task)) => return Some((Arc::clone(job), task)),
                    Ok(None) => is_over &= job.is_over(),
                    Err(error) => self.fail(job, error),
                }
            }
            if is_over {
                return None;
            }
            let (lock, changed) = &self.idle;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            // Told or not, it looks again soon.
            drop(changed.wait_timeout(guard, LOOK_AGAIN));
        }
    }
}
