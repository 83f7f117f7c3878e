//! One answer as it comes, and all of them to read.

use std::io::{IsTerminal as _, stdout};

use k3_runtime::TokenLogprobs;
use k3_runtime::report::{ChoiceReport, StopReason};

use super::stream::TokenStream;
use crate::error::CliError;
use crate::render::style::Style;
use crate::stdout::Stdout;

/// One answer.
pub(super) struct Answer<'a> {
    stream: TokenStream<'a>,
    ids: Vec<u32>,
    logprobs: Option<Vec<TokenLogprobs>>,
    /// Why it is over, once it is.
    stop: Option<StopReason>,
    /// What ended it, if it failed.
    error: Option<String>,
}

impl<'a> Answer<'a> {
    /// Nothing yet; `has_logprobs`: each token comes with how likely it was.
    pub(super) fn new(stream: TokenStream<'a>, has_logprobs: bool) -> Self {
        Self {
            stream,
            ids: Vec::new(),
            logprobs: has_logprobs.then(Vec::new),
            stop: None,
            error: None,
        }
    }

    /// Ids generated.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Why it is over, if it is.
    pub(super) fn stop(&self) -> Option<StopReason> {
        self.stop
    }

    /// Files and shows a token.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(super) fn take(
        &mut self,
        id: u32,
        logprobs: Option<TokenLogprobs>,
    ) -> Result<(), CliError> {
        if let Some(list) = &mut self.logprobs {
            list.extend(logprobs);
        }
        self.ids.push(id);
        self.stream.push(id)
    }

    /// It is over, for now.
    pub(super) fn end(&mut self, stop: StopReason, error: Option<String>) {
        self.stop = Some(stop);
        self.error = error;
    }

    /// It goes on.
    pub(super) fn resume(&mut self) {
        self.stop = None;
    }

    /// Ends its text.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(super) fn finish(&mut self) -> Result<(), CliError> {
        let finished = self.stream.finish();
        // Bytes that never became a character may complete a stop string.
        if self.stream.is_stopped() && self.stop == Some(StopReason::Length) {
            self.stop = Some(StopReason::StopString);
        }
        finished
    }

    /// Shows what there is of it, for one that was not shown as it came.
    fn show(&mut self) -> Result<(), CliError> {
        let ids = || {
            let ids: Vec<_> = self.ids.iter().map(u32::to_string).collect();
            ids.join(" ")
        };
        let whole = self.stream.text().map_or_else(ids, str::to_owned);
        self.stream.show_whole(&whole)
    }

    /// Generated ids that have no text, as a note.
    pub(super) fn note(&self) -> Option<String> {
        self.stream.note()
    }

    /// The answer for the report, as the one with that number; `stop` is why it is
    /// over where nothing else was.
    pub(super) fn report(self, choice: usize, stop: StopReason) -> ChoiceReport {
        ChoiceReport {
            choice,
            generated_text: self.stream.text().map(str::to_owned),
            generated_ids: self.ids,
            logprobs: self.logprobs,
            stop_reason: self.stop.unwrap_or(stop),
            error: self.error,
        }
    }
}

/// Shows the heading of the answer at `index` of `count`.
///
/// # Errors
///
/// Standard output cannot be written.
pub(super) fn show_heading(index: usize, count: usize) -> Result<(), CliError> {
    let text = format!("--- {} of {count} ---", index + 1);
    let text = match stdout().is_terminal() {
        true => Style::detect().hint(&text),
        false => text,
    };
    Stdout.write(format!("{text}\n").as_bytes())
}

/// Shows the answers behind the first, which was shown as it came.
///
/// # Errors
///
/// Standard output cannot be written.
pub(super) fn show_others(answers: &mut [Answer<'_>]) -> Result<(), CliError> {
    let count = answers.len();
    for (index, answer) in answers.iter_mut().enumerate().skip(1) {
        show_heading(index, count)?;
        if !answer.ids.is_empty() {
            answer.show()?;
        }
    }
    Ok(())
}
