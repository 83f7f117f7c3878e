//! The lines of the output: what is there, and what is added.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::BatchError;
use super::input::{Label, Prompt, Wanted};
use crate::error::CliError;

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    /// Line of the prompt, from 1.
    pub line: usize,
    /// What the prompt is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Label>,
    /// Number of the choice, where the prompt asks for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Digest of everything the answer depends on.
    pub request: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Ids generated.
    pub generated_ids: Vec<u32>,
    /// Their text, where there is a vocabulary.
    pub text: Option<String>,
    /// Why it ended: length, stop or failed.
    pub stop_reason: String,
    /// What went wrong, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What everything in an output has in common.
#[derive(Debug, Clone)]
pub(super) struct Binding(blake3::Hasher);

impl Binding {
    /// The model, its numerics and the ids that end an answer.
    pub(super) fn new(identity: &str, numerics: (u32, &str), layers: usize, stops: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let head = serde_json::json!([
            "k3 batch 1",
            identity,
            numerics.0,
            numerics.1,
            layers,
            stops
        ]);
        hasher.update(head.to_string().as_bytes());
        Self(hasher)
    }

    /// The digest of one answer's request: 16 hexadecimal digits.
    pub(super) fn request(&self, prompt: &Prompt, choice: u32) -> String {
        let mut hasher = self.0.clone();
        let rest = serde_json::json!([prompt.ids, prompt.gen_count, prompt.sampling, choice]);
        hasher.update(rest.to_string().as_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

/// The output, open for what is still to come.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_ordered: bool,
    /// Answers that wait for those before them, by their place in the input.
    waiting: BTreeMap<usize, Answer>,
    /// The next place to be written, where order counts.
    next: usize,
    /// Answers that were there.
    pub done_before: usize,
    /// Bytes of a torn line that was cut off.
    pub torn_bytes: u64,
}

impl Output {
    /// Opens `path` and marks in `done` which of `prompts` it answers already.
    ///
    /// # Errors
    ///
    /// A file that cannot be written, is used by another run, or holds something
    /// else than answers to these prompts.
    pub(super) fn open(
        path: &Path,
        (prompts, wanted): (&[Prompt], &[Wanted]),
        binding: &Binding,
        is_ordered: bool,
        done: &mut [bool],
    ) -> Result<Self, CliError> {
        let fail = |source| CliError::NotWritable {
            path: path.to_owned(),
            named: Some("OUTPUT"),
            source,
        };
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
            next: 0,
            done_before: 0,
            torn_bytes: 0,
        };
        output.take_stock((prompts, wanted), binding, done)?;
        Ok(output)
    }

    /// Reads what is there, and cuts off a line that was torn.
    fn take_stock(
        &mut self,
        (prompts, wanted): (&[Prompt], &[Wanted]),
        binding: &Binding,
        done: &mut [bool],
    ) -> Result<(), CliError> {
        let fail = |source| CliError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let places: BTreeMap<(usize, u32), usize> = wanted
            .iter()
            .enumerate()
            .map(|(place, wanted)| ((prompts[wanted.prompt].line, wanted.choice), place))
            .collect();
        let mut reader = BufReader::new(self.file.try_clone().map_err(fail)?);
        let (mut line, mut number, mut offset) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(fail)?;
            if read == 0 {
                break;
            }
            if line.last() != Some(&b'\n') {
                self.torn_bytes = read as u64;
                self.file.set_len(offset).map_err(fail)?;
                break;
            }
            number += 1;
            let place = self.check(&line, &places, (prompts, wanted), binding, done);
            let place = place.map_err(|(what, way_out)| BatchError::Output {
                path: self.path.clone(),
                what: format!("line {number} (offset {offset}) {what}"),
                way_out,
            })?;
            done[place] = true;
            self.done_before += 1;
            offset += read as u64;
        }
        self.next = self.done_before;
        self.file.seek(SeekFrom::Start(offset)).map_err(fail)?;
        Ok(())
    }

    /// The place of the prompt that `line` answers.
    fn check(
        &self,
        line: &[u8],
        places: &BTreeMap<(usize, u32), usize>,
        (prompts, wanted): (&[Prompt], &[Wanted]),
        binding: &Binding,
        done: &[bool],
    ) -> Result<usize, (String, &'static str)> {
        const OTHER: &str = "name another OUTPUT, or remove this file to begin anew";
        let answer: Answer = serde_json::from_slice(line)
            .map_err(|error| (format!("is no answer of k3 batch: {error}"), OTHER))?;
        let choice = answer.choice.unwrap_or(0);
        let Some(&place) = places.get(&(answer.line, choice)) else {
            let what = format!(
                "answers line {} (choice {choice}) of the input, which is none",
                answer.line
            );
            return Err((what, OTHER));
        };
        let prompt = |place: usize| &prompts[wanted[place].prompt];
        let request = binding.request(prompt(place), choice);
        if answer.request != request {
            let what = format!(
                "answers another request ({}) than line {} of the input ({request}): the prompt, \
                 the model or a setting has changed",
                answer.request, answer.line
            );
            return Err((what, OTHER));
        }
        if done[place] {
            let what = format!("answers line {} of the input again", answer.line);
            return Err((what, OTHER));
        }
        if self.is_ordered && place != self.done_before {
            let what = format!(
                "answers line {} of the input, but line {} is due",
                answer.line,
                prompt(self.done_before).line
            );
            return Err((what, "go on with --as-completed, or name another OUTPUT"));
        }
        Ok(place)
    }

    /// Adds the answer at `place`, as soon as its turn has come.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn add(&mut self, place: usize, answer: Answer) -> Result<(), CliError> {
        if !self.is_ordered {
            return self.write(&answer);
        }
        self.waiting.insert(place, answer);
        while let Some(answer) = self.waiting.remove(&self.next) {
            self.write(&answer)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Answers that wait for those before them, and will be computed again.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Everything that was added reaches the disk.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn sync(&self) -> Result<(), CliError> {
        match self.file.sync_data() {
            // A pipe or a device.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other.map_err(|source| self.not_writable(source)),
        }
    }

    /// A whole line at once: whoever ends the program in between leaves a line
    /// without its end, which the next run recognises.
    fn write(&mut self, answer: &Answer) -> Result<(), CliError> {
        let mut line = serde_json::to_vec(answer).expect("plain data serialises");
        line.push(b'\n');
        let written = self.file.write_all(&line);
        written.map_err(|source| self.not_writable(source))
    }

    fn not_writable(&self, source: io::Error) -> CliError {
        CliError::NotWritable {
            path: self.path.clone(),
            named: Some("OUTPUT"),
            source,
        }
    }
}
