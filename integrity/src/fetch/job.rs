//! One file that is being fetched.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FallocateFlags, fallocate};

use super::journal::{self, Done, Journal};
use crate::error::IntegrityError;
use crate::http::Address;
use crate::hub::HubFile;

/// How often a file is begun anew before it is given up.
const RESTARTS_MAX: u32 = 3;

/// A file that is being fetched.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: HubFile,
    /// Where it will be.
    pub(super) target: PathBuf,
    /// Where it is until then.
    pub(super) part: PathBuf,
    journal_path: PathBuf,
    /// Where the hub has it.
    pub(super) address: Address,
    /// Where the hub redirected to: asked directly until that fails.
    pub(super) redirected: Mutex<Option<Address>>,
    part_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Counts beginnings: who works for a former one has nothing to say.
    epoch: u32,
    done: Done,
    open: Option<Open>,
    waiting: VecDeque<(u64, u64)>,
    active: usize,
    restarts: u32,
    status: Status,
}

/// What is open while the file is being written.
#[derive(Debug)]
struct Open {
    data: Arc<File>,
    journal: Journal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Fetching,
    Finishing,
    Over,
}

/// What a thread can do for a job.
#[derive(Debug)]
pub(super) enum Task {
    /// Fetch a part.
    Part(Part),
    /// All parts are there.
    Finish,
}

/// A part of a file that one thread has taken.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) epoch: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) data: Arc<File>,
}

/// Whether work still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Current,
    /// The file was begun anew meanwhile.
    Former,
}

impl Job {
    /// A file to fetch, or to go on with. The second value says what of an
    /// earlier download is of no use, and why.
    pub(super) fn new(
        file: HubFile,
        target: PathBuf,
        part: PathBuf,
        address: Address,
        part_bytes: u64,
    ) -> (Self, Option<&'static str>) {
        let journal_path = journal_path(&part);
        let (done, reason) = match journal::read(&journal_path, &file) {
            Ok(Some(_)) if !part.exists() => (Done::default(), Some("its unfinished file is gone")),
            Ok(done) => (done.unwrap_or_default(), None),
            Err(reason) => (Done::default(), Some(reason)),
        };
        let state = State {
            epoch: 0,
            waiting: done.missing(file.bytes, part_bytes).into(),
            done,
            open: None,
            active: 0,
            restarts: 0,
            status: Status::Fetching,
        };
        let job = Self {
            file,
            target,
            part,
            journal_path,
            address,
            redirected: Mutex::new(None),
            part_bytes,
            state: Mutex::new(state),
        };
        (job, reason)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are on the disk.
    pub(super) fn done_bytes(&self) -> u64 {
        self.state().done.bytes()
    }

    /// Space it will still take.
    pub(super) fn needed_bytes(&self) -> u64 {
        let taken = fs::metadata(&self.part).map_or(0, |found| found.blocks() * 512);
        self.file.bytes.saturating_sub(taken)
    }

    /// Whether nothing is left to do, or can be done.
    pub(super) fn is_over(&self) -> bool {
        self.state().status == Status::Over
    }

    /// Something to do, if there is.
    ///
    /// # Errors
    ///
    /// An unfinished file that cannot be written.
    pub(super) fn take(&self) -> Result<Option<Task>, IntegrityError> {
        let mut state = self.state();
        if state.status != Status::Fetching {
            return Ok(None);
        }
        let Some((begin, end)) = state.waiting.pop_front() else {
            if state.active > 0 {
                return Ok(None);
            }
            // Nothing to fetch: empty, or complete since the last time.
            self.open(&mut state)?;
            state.status = Status::Finishing;
            return Ok(Some(Task::Finish));
        };
        let data = self.open(&mut state)?;
        state.active += 1;
        Ok(Some(Task::Part(Part {
            epoch: state.epoch,
            begin,
            end,
            data,
        })))
    }

    fn open(&self, state: &mut State) -> Result<Arc<File>, IntegrityError> {
        if let Some(open) = &state.open {
            return Ok(Arc::clone(&open.data));
        }
        let opened = self.open_files(&state.done);
        let open = opened.map_err(IntegrityError::writing(
            &self.part,
            "write the unfinished file",
        ))?;
        let data = Arc::clone(&open.data);
        state.open = Some(open);
        Ok(data)
    }

    fn open_files(&self, done: &Done) -> io::Result<Open> {
        if done.ranges.is_empty() {
            // A new file: whoever still writes to the former one writes to none.
            match fs::remove_file(&self.part) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut options = OpenOptions::new();
        let data = options
            .write(true)
            .read(true)
            .create(true)
            .truncate(false)
            .open(&self.part)?;
        let bytes = i64::try_from(self.file.bytes).unwrap_or(i64::MAX);
        if bytes > 0
            && let Err(error) = fallocate(&data, FallocateFlags::empty(), 0, bytes)
        {
            use nix::errno::Errno;
            // File systems that cannot: the space was counted before.
            if !matches!(error, Errno::EOPNOTSUPP | Errno::ENOSYS) {
                return Err(error.into());
            }
        }
        data.set_len(self.file.bytes)?;
        let journal = Journal::open(&self.journal_path, &self.file, done)?;
        let data = Arc::new(data);
        Ok(Open { data, journal })
    }

    /// Whether work of `epoch` still counts.
    pub(super) fn standing(&self, epoch: u32) -> Standing {
        standing(&self.state(), epoch)
    }

    /// Notes what a server calls the content; a former name that differs is
    /// returned.
    ///
    /// # Errors
    ///
    /// A journal that cannot be written.
    pub(super) fn check_etag(
        &self,
        epoch: u32,
        etag: Option<String>,
    ) -> io::Result<Option<String>> {
        let mut state = self.state();
        let Some(etag) = etag.filter(|_| standing(&state, epoch) == Standing::Current) else {
            return Ok(None);
        };
        match &state.done.etag {
            Some(known) if *known == etag => Ok(None),
            Some(known) => Ok(Some(known.clone())),
            None => {
                if let Some(open) = &mut state.open {
                    open.journal.etag(&etag)?;
                }
                state.done.etag = Some(etag);
                Ok(None)
            }
        }
    }

    /// Bytes have reached the disk.
    ///
    /// # Errors
    ///
    /// A journal that cannot be written.
    pub(super) fn note(&self, epoch: u32, begin: u64, end: u64) -> io::Result<Standing> {
        let mut state = self.state();
        let standing = standing(&state, epoch);
        if standing == Standing::Current && begin < end {
            if let Some(open) = &mut state.open {
                open.journal.done(begin, end)?;
            }
            state.done.add(begin, end);
        }
        Ok(standing)
    }

    /// A part is complete; whether it was the last.
    pub(super) fn part_is_complete(&self, epoch: u32) -> bool {
        let mut state = self.state();
        if standing(&state, epoch) == Standing::Former {
            return false;
        }
        state.active -= 1;
        let is_last = state.active == 0 && state.waiting.is_empty();
        if is_last {
            state.status = Status::Finishing;
        }
        is_last
    }

    /// Begins the file anew, unless somebody has already: what was done counts
    /// no more. The bytes that have to come again.
    ///
    /// # Errors
    ///
    /// It has been begun anew too often.
    pub(super) fn restart(&self, epoch: u32, reason: &str) -> Result<Option<u64>, String> {
        let mut state = self.state();
        if standing(&state, epoch) == Standing::Former {
            return Ok(None);
        }
        state.restarts += 1;
        if state.restarts > RESTARTS_MAX {
            return Err(format!(
                "{reason}, again after {RESTARTS_MAX} new beginnings"
            ));
        }
        let bytes = self.reset(&mut state);
        state.waiting = state.done.missing(self.file.bytes, self.part_bytes).into();
        Ok(Some(bytes))
    }

    /// Takes the whole file as one part, because its server gives nothing else;
    /// `None` when somebody else has already. With the part come the bytes that
    /// have to come again.
    ///
    /// # Errors
    ///
    /// An unfinished file that cannot be written.
    pub(super) fn take_whole(&self, epoch: u32) -> Result<Option<(Part, u64)>, IntegrityError> {
        let mut state = self.state();
        if standing(&state, epoch) == Standing::Former {
            return Ok(None);
        }
        let bytes = self.reset(&mut state);
        state.active = 1;
        let data = self.open(&mut state)?;
        let part = Part {
            epoch: state.epoch,
            begin: 0,
            end: self.file.bytes,
            data,
        };
        Ok(Some((part, bytes)))
    }

    fn reset(&self, state: &mut State) -> u64 {
        let bytes = state.done.bytes();
        state.epoch += 1;
        state.done = Done::default();
        state.open = None;
        state.active = 0;
        state.waiting.clear();
        state.status = Status::Fetching;
        *self
            .redirected
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        bytes
    }

    /// Epoch of a job whose parts are all there.
    pub(super) fn epoch(&self) -> u32 {
        self.state().epoch
    }

    /// The data, to be sent to the disk.
    pub(super) fn data(&self) -> Option<Arc<File>> {
        self.state()
            .open
            .as_ref()
            .map(|open| Arc::clone(&open.data))
    }

    /// Nothing more will be done.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.status = Status::Over;
        state.waiting.clear();
        state.open = None;
        state.epoch += 1;
    }

    /// Removes the journal of a file that is complete.
    pub(super) fn remove_journal(&self) {
        // Without its data it says nothing.
        let _ = fs::remove_file(&self.journal_path);
    }
}

/// The journal of the unfinished file at `part`.
pub(super) fn journal_path(part: &Path) -> PathBuf {
    let mut path = part.as_os_str().to_owned();
    path.push(".journal");
    PathBuf::from(path)
}

fn standing(state: &State, epoch: u32) -> Standing {
    if state.epoch == epoch && state.status != Status::Over {
        Standing::Current
    } else {
        Standing::Former
    }
}
