//! The helper that touches planned memory ahead of the reads.
//!
//! Fresh memory costs a page fault at first touch, in a guest one of the host
//! as well. Left to the reads, that time would be the engine's. This thread
//! touches the arenas in the order in which they fill, tells the engine how far
//! it has come, so that it can register buffers, and ends. Memory that the
//! system does not have, or no longer has, is found here: an error before the
//! next sweep or layer, where the kernel would end the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use k3_io::{EngineError, HugeArena, PREFAULT_STEP_BYTES, PagePolicy, PrefaultMethod, ReadEngine};
use k3_runtime::Cancel;
use parking_lot::Mutex;

use crate::error::ActorError;
use crate::room::{AskRoom, MemoryTaken, Room, of_this_machine};

const NAME: &str = "k3-prefault";

/// How far the helper has come.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PrefaultCounts {
    /// Bytes of the arenas.
    pub total_bytes: u64,
    /// Bytes touched.
    pub touched_bytes: u64,
    /// Time it took.
    pub seconds: f64,
}

/// Why planned memory could not be touched.
#[derive(Debug, Clone)]
enum Failure {
    /// The system refused.
    Refused(EngineError),
    /// It would have ended the process.
    Taken(MemoryTaken),
}

#[derive(Debug, Default)]
struct State {
    counts: PrefaultCounts,
    /// Nothing may be touched ahead here: pages come with the first reads.
    is_refused: bool,
    failure: Option<Failure>,
}

/// What others see of the helper.
#[derive(Debug, Clone)]
pub(crate) struct PrefaultStatus(Arc<Mutex<State>>);

impl PrefaultStatus {
    /// Whether memory could be had so far.
    pub(crate) fn check(&self) -> Result<(), ActorError> {
        match self.0.lock().failure.clone() {
            None => Ok(()),
            Some(Failure::Refused(error)) => Err(error.into()),
            Some(Failure::Taken(error)) => Err(error.into()),
        }
    }

    pub(crate) fn counts(&self) -> PrefaultCounts {
        self.0.lock().counts
    }

    pub(crate) fn fallback(&self) -> Option<String> {
        self.0.lock().is_refused.then(|| {
            "memory is touched by the first reads: the system allows neither \
             MADV_POPULATE_WRITE nor locking"
                .to_owned()
        })
    }
}

/// What ends the helper early.
#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    /// The run's own wish to end, once the run has one.
    cancel: OnceLock<Cancel>,
}

impl Stop {
    fn is_requested(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.cancel.get().is_some_and(Cancel::is_requested)
    }
}

/// The helper. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Prefault {
    stop: Arc<Stop>,
    status: PrefaultStatus,
    thread: Option<JoinHandle<()>>,
}

impl Prefault {
    /// Starts touching `arenas`, one after the other.
    ///
    /// # Errors
    ///
    /// A thread the system refuses to start.
    pub(crate) fn spawn(
        arenas: Vec<Arc<HugeArena>>,
        engine: Arc<dyn ReadEngine>,
    ) -> Result<Self, ActorError> {
        let total_bytes = arenas.iter().map(|arena| arena.len_bytes() as u64).sum();
        let state = State {
            counts: PrefaultCounts {
                total_bytes,
                ..PrefaultCounts::default()
            },
            ..State::default()
        };
        let status = PrefaultStatus(Arc::new(Mutex::new(state)));
        let stop = Arc::new(Stop::default());
        let toucher = Toucher {
            engine,
            stop: Arc::clone(&stop),
            status: status.clone(),
            started: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || toucher.run(&arenas, of_this_machine()))
            .map_err(|source| ActorError::Thread { name: NAME, source })?;
        Ok(Self {
            stop,
            status,
            thread: Some(thread),
        })
    }

    pub(crate) fn status(&self) -> PrefaultStatus {
        self.status.clone()
    }

    /// Ends it after the step at hand once `cancel` is requested. While it
    /// touches memory the kernel lets nobody else free any: a run that is
    /// interrupted would wait for it long before it comes to stop it.
    pub(crate) fn heed(&self, cancel: &Cancel) {
        // A second run over the same memory finds it touched, or goes on.
        let _ = self.stop.cancel.set(cancel.clone());
    }

    /// Ends it after the step at hand.
    ///
    /// # Errors
    ///
    /// [`ActorError::Panicked`] when it died of a bug.
    pub(crate) fn stop(&mut self) -> Result<(), ActorError> {
        self.stop.asked.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread
            .join()
            .map_err(|_| ActorError::Panicked { name: NAME })
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        // The error was the run's to report; here only the thread's end counts.
        let _ = self.stop();
    }
}

/// The thread's own.
struct Toucher {
    engine: Arc<dyn ReadEngine>,
    stop: Arc<Stop>,
    status: PrefaultStatus,
    started: Instant,
}

impl Toucher {
    fn run(&self, arenas: &[Arc<HugeArena>], ask: Box<AskRoom>) {
        let mut room = Room::new(ask);
        let mut before_bytes = 0;
        for arena in arenas {
            match self.touch(arena, before_bytes, &mut room) {
                Ok(PrefaultMethod::FirstTouch) => {
                    self.status.0.lock().is_refused = true;
                    return;
                }
                Ok(PrefaultMethod::Populate | PrefaultMethod::LockUnlock) => {}
                Err(failure) => {
                    self.status.0.lock().failure = Some(failure);
                    return;
                }
            }
            if self.stop.is_requested() {
                return;
            }
            before_bytes += arena.len_bytes() as u64;
        }
    }

    /// Touches `arena` after `before_bytes` of others, as far as there is room.
    fn touch(
        &self,
        arena: &Arc<HugeArena>,
        before_bytes: u64,
        room: &mut Room,
    ) -> Result<PrefaultMethod, Failure> {
        let arena_bytes = arena.len_bytes();
        // Reserved huge pages are set aside already: nobody else gets them.
        let is_set_aside = arena.report().got == PagePolicy::Hugetlb;
        let mut has_room = |from: usize| {
            let bytes = (arena_bytes - from).min(PREFAULT_STEP_BYTES) as u64;
            if is_set_aside || bytes == 0 {
                return Ok(());
            }
            room.take(bytes, before_bytes + from as u64)
        };
        has_room(0).map_err(Failure::Taken)?;
        let mut taken = None;
        let touched = arena.prefault(0..arena_bytes, |bytes| {
            self.engine.memory_ready(arena, 0..bytes);
            {
                let counts = &mut self.status.0.lock().counts;
                counts.touched_bytes = before_bytes + bytes as u64;
                counts.seconds = self.started.elapsed().as_secs_f64();
            }
            if self.stop.is_requested() {
                return false;
            }
            taken = has_room(bytes).err();
            taken.is_none()
        });
        match taken {
            Some(taken) => Err(Failure::Taken(taken)),
            None => touched.map_err(Failure::Refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use k3_config::{Bytes, Headroom};
    use k3_io::{DirectPolicy, EngineConfig, EnginePreference, FileTable, PagePolicy, open_engine};

    use super::*;

    const ARENA_BYTES: usize = 3 << 20;

    fn engine(arenas: &[Arc<HugeArena>]) -> Arc<dyn ReadEngine> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let table = FileTable::open(&[file.path().to_owned()], DirectPolicy::Probe).unwrap();
        let config = EngineConfig {
            arenas: arenas.to_vec(),
            ..EngineConfig::default()
        };
        open_engine(Arc::new(table), &config, EnginePreference::Uring).unwrap()
    }

    fn arenas() -> Vec<Arc<HugeArena>> {
        let reserve = || {
            HugeArena::reserve(ARENA_BYTES, PagePolicy::Small)
                .unwrap()
                .0
        };
        vec![reserve(), reserve()]
    }

    #[test]
    fn every_arena_is_touched_and_registered_where_that_is_allowed() {
        let arenas = arenas();
        let engine = engine(&arenas);
        let mut helper = Prefault::spawn(arenas.clone(), Arc::clone(&engine)).unwrap();
        let status = helper.status();
        let deadline = Instant::now() + Duration::from_secs(20);
        while status.counts().touched_bytes < status.counts().total_bytes {
            assert!(Instant::now() < deadline, "{:?}", status.counts());
            std::thread::yield_now();
        }
        helper.stop().unwrap();
        status.check().unwrap();
        assert_eq!(status.counts().total_bytes, 2 * ARENA_BYTES as u64);
        for arena in &arenas {
            assert_eq!(arena.resident().unwrap().resident_bytes, ARENA_BYTES as u64);
        }
        engine.shutdown();
        let caps = engine.caps();
        let fixed: usize = caps.devices.iter().map(|device| device.fixed_bytes).sum();
        assert!(
            fixed == 2 * ARENA_BYTES || !caps.fallbacks.is_empty() || caps.devices.is_empty(),
            "neither registered nor said why: {caps:?}"
        );
    }

    #[test]
    fn an_interrupted_run_has_no_more_memory_touched() {
        let stop = Arc::new(Stop::default());
        let status = PrefaultStatus(Arc::new(Mutex::new(State::default())));
        let arenas = arenas();
        let toucher = Toucher {
            engine: engine(&arenas),
            stop: Arc::clone(&stop),
            status: status.clone(),
            started: Instant::now(),
        };
        let helper = Prefault {
            stop,
            status: status.clone(),
            thread: None,
        };
        let cancel = Cancel::default();
        helper.heed(&cancel);
        cancel.request();
        toucher.run(&arenas, Box::new(|| None));
        // One step, and not the next arena.
        assert_eq!(status.counts().touched_bytes, ARENA_BYTES as u64);
        assert_eq!(arenas[1].resident().unwrap().resident_bytes, 0);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_for_the_next_sweep() {
        let status = PrefaultStatus(Arc::new(Mutex::new(State::default())));
        status.check().unwrap();
        status.0.lock().failure = Some(Failure::Refused(EngineError::Prefault {
            offset: 0,
            bytes: 16 << 20,
            reason: "Cannot allocate memory".to_owned(),
        }));
        let error = status.check().unwrap_err().to_string();
        assert!(error.contains("Cannot allocate memory"), "{error}");
    }

    #[test]
    fn memory_that_others_take_meanwhile_is_not_touched() {
        let status = PrefaultStatus(Arc::new(Mutex::new(State::default())));
        let arenas = arenas();
        let toucher = Toucher {
            engine: engine(&arenas),
            stop: Arc::new(Stop::default()),
            status: status.clone(),
            started: Instant::now(),
        };
        // Room for one arena at first, and then for none.
        let rooms = Mutex::new(vec![0, 2 * ARENA_BYTES as u64]);
        let ask = move || {
            Some(Headroom {
                bytes: Bytes(rooms.lock().pop().unwrap()),
                group: None,
            })
        };
        toucher.run(&arenas, Box::new(ask));
        let resident = |at: usize| arenas[at].resident().unwrap().resident_bytes;
        assert_eq!((resident(0), resident(1)), (ARENA_BYTES as u64, 0));
        let error = status.check().unwrap_err();
        assert!(
            matches!(&error, ActorError::MemoryTaken(taken) if taken.touched.0 == ARENA_BYTES as u64),
            "{error}"
        );
    }
}
