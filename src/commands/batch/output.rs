//! The lines of the output: what is there, and what is added.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::answer::{Answer, Binding, Known};
use super::error::BatchError;
use super::input::{Prompt, Wanted};
use super::pending::{self, Pending};
use crate::error::CliError;

/// A power cut takes at most what was finished in this time.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// What to do about a file of something else.
const OTHER: &str = "name another OUTPUT, or remove this file to begin anew";

/// What answers are compared with.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// The answers to them, in the order of the output.
    pub wanted: &'a [Wanted],
    /// The model and its numerics.
    pub binding: &'a Binding,
}

/// The output, open for what is still to come.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_ordered: bool,
    /// Lines that wait for those before them, by their place in the input.
    waiting: BTreeMap<usize, Vec<u8>>,
    /// The same on the disk, where the output is a file.
    pending: Option<Pending>,
    /// The next place to be written, where order counts.
    next: usize,
    /// Since when something may not be on the disk yet.
    unsynced: Option<Instant>,
    /// Answers that were there.
    pub done_before: usize,
    /// Bytes of torn lines that were cut off.
    pub torn_bytes: u64,
}

/// What a file with answers holds.
struct Stock {
    /// Each whole line with its place.
    lines: Vec<(usize, Vec<u8>)>,
    /// Where the last of them ends.
    whole_bytes: u64,
    /// Bytes behind it.
    torn_bytes: u64,
}

impl Output {
    /// Opens `path` and marks in `done` which answers are there already, in it or
    /// waiting beside it.
    ///
    /// # Errors
    ///
    /// A file that cannot be written, is used by another run, or holds something
    /// else than the expected answers.
    pub(super) fn open(
        path: &Path,
        expected: Expected<'_>,
        is_ordered: bool,
        done: &mut [bool],
    ) -> Result<Self, CliError> {
        let fail = |source| CliError::NotWritable {
            path: path.to_owned(),
            named: Some("OUTPUT"),
            source,
        };
        if path
            .metadata()
            .is_ok_and(|metadata| metadata.file_type().is_fifo())
        {
            // What is there already would be waited for without end.
            return Err(BatchError::Output {
                path: path.to_owned(),
                what: "it is a pipe, and answers that are there are read first".into(),
                way_out: "name a file",
            }
            .into());
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(path).map_err(fail)?;
        if file.try_lock().is_err() {
            return Err(BatchError::Output {
                path: path.to_owned(),
                what: "another run is writing it".into(),
                way_out: "wait for that run, or name another OUTPUT",
            }
            .into());
        }
        let mut output = Self {
            path: path.to_owned(),
            file,
            is_ordered,
            waiting: BTreeMap::new(),
            pending: None,
            next: 0,
            unsynced: None,
            done_before: 0,
            torn_bytes: 0,
        };
        let whole_bytes = output.take_stock(expected, done)?;
        output.take_pending(expected, done)?;
        // Nothing was refused: from here on both files are this run's.
        let unread = |source| unreadable(path, source);
        if output.torn_bytes > 0 {
            output.file.set_len(whole_bytes).map_err(unread)?;
        }
        let end = SeekFrom::Start(whole_bytes);
        output.file.seek(end).map_err(unread)?;
        output.settle()?;
        Ok(output)
    }

    /// Reads what is there; where its last whole line ends.
    fn take_stock(&mut self, expected: Expected<'_>, done: &mut [bool]) -> Result<u64, CliError> {
        let file = self.file.try_clone();
        let file = file.map_err(|source| unreadable(&self.path, source))?;
        let order = self.is_ordered.then_some(0);
        let stock = stock(&self.path, BufReader::new(file), expected, order)?;
        for (place, _) in &stock.lines {
            done[*place] = true;
        }
        self.done_before = stock.lines.len();
        self.next = self.done_before;
        self.torn_bytes = stock.torn_bytes;
        Ok(stock.whole_bytes)
    }

    /// Takes in what waited when an earlier run ended, and makes the file for what
    /// will wait in this one.
    fn take_pending(&mut self, expected: Expected<'_>, done: &mut [bool]) -> Result<(), CliError> {
        let Some(path) = pending::path_of(&self.path) else {
            return Ok(());
        };
        let is_left = done.iter().any(|done| !done);
        let Some((mut pending, bytes)) = Pending::open(path, self.is_ordered && is_left)? else {
            return Ok(());
        };
        let stock = stock(pending.path(), &bytes[..], expected, None)?;
        pending.cut(stock.whole_bytes)?;
        self.torn_bytes += stock.torn_bytes;
        for (place, line) in stock.lines {
            // Those that have come into the output meanwhile are there twice.
            if !done[place] {
                done[place] = true;
                self.done_before += 1;
                self.waiting.insert(place, line);
            }
        }
        self.pending = Some(pending);
        Ok(())
    }

    /// Adds the answer at `place`, as soon as its turn has come.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn add(&mut self, place: usize, answer: &Answer) -> Result<(), CliError> {
        let mut line = serde_json::to_vec(answer).expect("plain data serialises");
        line.push(b'\n');
        let waits = self.is_ordered && place != self.next;
        if let (true, Some(pending)) = (waits, &mut self.pending) {
            pending.add(&line)?;
            self.unsynced.get_or_insert_with(Instant::now);
        }
        self.waiting.insert(place, line);
        self.settle()
    }

    /// Writes what need not wait any more.
    fn settle(&mut self) -> Result<(), CliError> {
        while let Some((&place, _)) = self.waiting.first_key_value() {
            if self.is_ordered && place != self.next {
                break;
            }
            let line = self.waiting.remove(&place).expect("it is the first");
            self.write(&line)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Answers that wait for those before them, and where: `None` where they are lost
    /// with the run.
    pub(super) fn waiting(&self) -> (usize, Option<&Path>) {
        (self.waiting.len(), self.pending.as_ref().map(Pending::path))
    }

    /// Brings what was added to the disk, unless that was done a moment ago.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn sync_if_due(&mut self) -> Result<(), CliError> {
        match self.unsynced {
            Some(since) if since.elapsed() >= SYNC_AFTER => self.sync(),
            _ => Ok(()),
        }
    }

    /// Everything that was added reaches the disk.
    fn sync(&mut self) -> Result<(), CliError> {
        match self.file.sync_data() {
            // A pipe or a device.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            other => other.map_err(|source| self.not_writable(source))?,
        }
        if let Some(pending) = &mut self.pending {
            if self.waiting.is_empty() {
                pending.cut(0)?;
            }
            pending.sync()?;
        }
        self.unsynced = None;
        Ok(())
    }

    /// Ends the output: everything is on the disk, and nothing stands beside it
    /// unless something waits.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn close(&mut self) -> Result<(), CliError> {
        self.sync()?;
        if self.waiting.is_empty()
            && let Some(pending) = self.pending.take()
        {
            pending.remove()?;
        }
        Ok(())
    }

    /// A whole line at once: whoever ends the program in between leaves a line
    /// without its end, which the next run recognises.
    fn write(&mut self, line: &[u8]) -> Result<(), CliError> {
        let written = self.file.write_all(line);
        written.map_err(|source| self.not_writable(source))?;
        self.unsynced.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn not_writable(&self, source: io::Error) -> CliError {
        CliError::NotWritable {
            path: self.path.clone(),
            named: Some("OUTPUT"),
            source,
        }
    }
}

/// A run that ends before its first sweep leaves nothing beside the output either.
impl Drop for Output {
    fn drop(&mut self) {
        // What went wrong has been told, or the next run meets it again.
        let _ = self.close();
    }
}

fn unreadable(path: &Path, source: io::Error) -> CliError {
    CliError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

/// The answers in the file at `path`, each compared with what is expected. With
/// `order` they have to come in the order of the input, from that place.
fn stock(
    path: &Path,
    mut reader: impl BufRead,
    expected: Expected<'_>,
    order: Option<usize>,
) -> Result<Stock, CliError> {
    let wanted = expected.wanted.iter().enumerate();
    let places: BTreeMap<(usize, u32), usize> = wanted
        .map(|(place, one)| ((expected.prompts[one.prompt].line, one.choice), place))
        .collect();
    let mut seen = vec![false; expected.wanted.len()];
    let mut stock = Stock {
        lines: Vec::new(),
        whole_bytes: 0,
        torn_bytes: 0,
    };
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line);
        let read = read.map_err(|source| unreadable(path, source))? as u64;
        if line.last() != Some(&b'\n') {
            stock.torn_bytes = read;
            return Ok(stock);
        }
        let due = order.map(|first| first + stock.lines.len());
        let place = place_of(&line, &places, expected, &seen, due);
        let place = place.map_err(|(what, way_out)| BatchError::Output {
            path: path.to_owned(),
            what: format!(
                "line {} (offset {}) {what}",
                stock.lines.len() + 1,
                stock.whole_bytes
            ),
            way_out,
        })?;
        seen[place] = true;
        stock.whole_bytes += read;
        stock.lines.push((place, line));
    }
}

/// The place of the answer in `line`; `due` is the one that has to come.
fn place_of(
    line: &[u8],
    places: &BTreeMap<(usize, u32), usize>,
    expected: Expected<'_>,
    seen: &[bool],
    due: Option<usize>,
) -> Result<usize, (String, &'static str)> {
    let answer: Known = serde_json::from_slice(line)
        .map_err(|error| (format!("is no answer of k3 batch: {error}"), OTHER))?;
    let choice = answer.choice.unwrap_or(0);
    let Some(&place) = places.get(&(answer.line, choice)) else {
        let what = format!(
            "answers line {} (choice {choice}) of the input, which is none",
            answer.line
        );
        return Err((what, OTHER));
    };
    let prompt = |place: usize| &expected.prompts[expected.wanted[place].prompt];
    let request = expected.binding.request(prompt(place), choice);
    if answer.request != request {
        let what = format!(
            "answers another request ({}) than line {} of the input ({request}): the prompt, \
             the model or a setting has changed",
            answer.request, answer.line
        );
        return Err((what, OTHER));
    }
    if seen[place] {
        let what = format!("answers line {} of the input again", answer.line);
        return Err((what, OTHER));
    }
    if let Some(due) = due.filter(|due| *due != place) {
        let what = format!(
            "answers line {} of the input, but line {} is due",
            answer.line,
            prompt(due).line
        );
        return Err((what, "go on with --as-completed, or name another OUTPUT"));
    }
    Ok(place)
}
