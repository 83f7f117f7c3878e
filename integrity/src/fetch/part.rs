//! One part, over as many answers as it takes.

use std::os::unix::fs::FileExt as _;
use std::sync::PoisonError;

use super::job::{Job, Part, Standing};
use super::run::Run;
use crate::error::IntegrityError;
use crate::http::{Answer, HttpError, RangeAnswer, Retry, range_answer};

/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of one answer that count as progress.
const PROGRESS_BYTES: u64 = 1 << 20;

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// It is on the disk, for this epoch.
    Complete(u32),
    /// The file was begun anew.
    Former,
}

/// Why one answer did not bring all of a part.
enum Stop {
    /// Another may.
    Http(HttpError),
    /// None will.
    Fatal(IntegrityError),
    /// The file was begun anew.
    Former,
    /// The server has the whole file only: this part is it.
    Whole(Box<(Part, Answer)>),
}

impl From<HttpError> for Stop {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<IntegrityError> for Stop {
    fn from(error: IntegrityError) -> Self {
        Self::Fatal(error)
    }
}

/// Fetches `part` of `job`.
///
/// # Errors
///
/// Whatever no other try mends.
pub(super) fn fetch(run: &Run, job: &Job, part: Part) -> Result<Fetched, IntegrityError> {
    let mut retry = Retry::new(&run.retry);
    let mut part = part;
    let mut is_whole = false;
    let mut answer: Option<Answer> = None;
    loop {
        let begin = part.begin;
        let asked = match answer.take() {
            Some(answer) => Ok(answer),
            None => ask(run, job, &part, is_whole),
        };
        let stop = match asked.and_then(|answer| store(run, job, &mut part, answer)) {
            Ok(()) => return Ok(Fetched::Complete(part.epoch)),
            Err(stop) => stop,
        };
        match stop {
            Stop::Former => return Ok(Fetched::Former),
            Stop::Fatal(error) => return Err(error),
            Stop::Whole(whole) => {
                let (whole, first) = *whole;
                (part, answer) = (whole, Some(first));
                is_whole = true;
            }
            Stop::Http(error) => {
                if part.begin - begin >= PROGRESS_BYTES && !is_whole {
                    retry.progress();
                }
                retry.failed(error, &*run.watch)?;
                if is_whole {
                    // There is no going on in the middle.
                    match job.take_whole(part.epoch)? {
                        None => return Ok(Fetched::Former),
                        Some((whole, bytes)) => {
                            run.watch.undone(bytes);
                            part = whole;
                        }
                    }
                }
            }
        }
    }
}

/// Asks for what is left of a part.
fn ask(run: &Run, job: &Job, part: &Part, is_whole: bool) -> Result<Answer, Stop> {
    let file_bytes = job.file.bytes;
    let all = part.begin == 0 && part.end == file_bytes;
    let range = (!all && !is_whole).then_some((part.begin, part.end));
    let answer = request(run, job, range).map_err(|error| match error {
        // The file the hub tells of is longer than the one it has.
        HttpError::Status {
            url, status: 416, ..
        } => {
            let (begin, end) = (part.begin, part.end);
            let reason = format!("the server has no bytes {begin} to {end} of the file");
            HttpError::Answer { url, reason }
        }
        other => other,
    })?;
    let asked = range.unwrap_or((0, file_bytes));
    let kind = range_answer(&answer, asked, file_bytes)?;
    let former = job.check_etag(part.epoch, answer.etag());
    if let Some(former) = former.map_err(IntegrityError::writing(&job.part, "write the journal"))? {
        let now = answer.etag().unwrap_or_default();
        let reason = format!("changed on the server ({former:.60} is now {now:.60})");
        restart(run, job, part.epoch, &reason)?;
        return Err(Stop::Former);
    }
    if kind == RangeAnswer::Part || range.is_none() {
        return Ok(answer);
    }
    run.watch.message(&format!(
        "{}: the server gives no parts of files, so it comes in one piece",
        job.file.path
    ));
    match job.take_whole(part.epoch)? {
        None => Err(Stop::Former),
        Some((whole, bytes)) => {
            run.watch.undone(bytes);
            Err(Stop::Whole(Box::new((whole, answer))))
        }
    }
}

/// Asks where the hub redirected to, if it has, else the hub.
fn request(run: &Run, job: &Job, range: Option<(u64, u64)>) -> Result<Answer, HttpError> {
    let redirected = || {
        let lock = job.redirected.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    };
    let known = redirected().clone();
    let Some(address) = known else {
        let answer = run.client.get(&job.address, range, &|| run.go_on())?;
        if answer.address != job.address {
            *redirected() = Some(answer.address.clone());
        }
        return Ok(answer);
    };
    let again = run.client.get(&address, range, &|| run.go_on());
    again.map_err(|error| {
        // What the hub redirected to is good for some time only.
        *redirected() = None;
        match error {
            HttpError::Status { url, status, .. } if !matches!(status, 429 | 500..) => {
                let reason = format!("the server answers {status} where the hub redirected to");
                HttpError::Answer { url, reason }
            }
            other => other,
        }
    })
}

/// Begins a file anew.
///
/// # Errors
///
/// It has been begun anew too often.
pub(super) fn restart(
    run: &Run,
    job: &Job,
    epoch: u32,
    reason: &str,
) -> Result<(), IntegrityError> {
    let again = job
        .restart(epoch, reason)
        .map_err(|reason| HttpError::Answer {
            url: job.address.to_string(),
            reason,
        })?;
    if let Some(bytes) = again {
        run.watch.undone(bytes);
        run.watch
            .message(&format!("{}: {reason}: begun anew", job.file.path));
    }
    Ok(())
}

/// Writes an answer's bytes where they belong, and moves the part's beginning
/// over them.
fn store(run: &Run, job: &Job, part: &mut Part, mut answer: Answer) -> Result<(), Stop> {
    let begin = part.begin;
    let result = copy(run, job, part, &mut answer);
    if part.begin > begin {
        // Even of an answer that broke off, what came is kept.
        let synced = part.data.sync_data();
        synced.map_err(IntegrityError::writing(&job.part, "write to the disk"))?;
        let noted = job.note(part.epoch, begin, part.begin);
        let standing = noted.map_err(IntegrityError::writing(&job.part, "write the journal"))?;
        if standing == Standing::Former {
            // Counted, and of no use.
            run.watch.undone(part.begin - begin);
            return Err(Stop::Former);
        }
    }
    result
}

fn copy(run: &Run, job: &Job, part: &mut Part, answer: &mut Answer) -> Result<(), Stop> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let first = part.begin;
    while part.begin < part.end {
        if !run.go_on() {
            return Err(Stop::Fatal(IntegrityError::Interrupted));
        }
        let left = usize::try_from(part.end - part.begin).unwrap_or(usize::MAX);
        let room = left.min(BUFFER_BYTES);
        let count = match answer.body.read(&mut buffer[..room], &|| run.go_on()) {
            Ok(0) => {
                let reason = format!("the answer ended {left} bytes early");
                return Err(broken(answer, reason).into());
            }
            Ok(count) => count,
            Err(error) => return Err(HttpError::broken(&answer.address, &error).into()),
        };
        if job.standing(part.epoch) == Standing::Former {
            return Err(Stop::Former);
        }
        let written = part.data.write_all_at(&buffer[..count], part.begin);
        written.map_err(IntegrityError::writing(&job.part, "write"))?;
        part.begin += count as u64;
        run.count(count as u64);
    }
    // A body of unstated length may go on behind what was asked for.
    let is_stated = answer.content_length().is_some();
    let mut next = || answer.body.read(&mut buffer[..1], &|| run.go_on());
    if !is_stated && matches!(next(), Ok(1)) {
        // An answer to another question: none of it is taken.
        run.watch.undone(part.begin - first);
        part.begin = first;
        let reason = "the answer goes on after all bytes of it".to_owned();
        return Err(broken(answer, reason).into());
    }
    Ok(())
}

fn broken(answer: &Answer, reason: String) -> HttpError {
    HttpError::Connection {
        url: answer.address.to_string(),
        reason,
    }
}
