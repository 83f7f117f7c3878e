//! Tokens to standard output as they come.

use k3_runtime::StopText;
use k3_terminal::{COLUMNS, Flow, Stream};
use k3_tokenizer::{Render, StreamDecoder, Tokenizer};

use crate::error::CliError;
use crate::render::report::print_text;
use crate::stdout::Stdout;

/// Where tokens become visible, and the text they make.
#[derive(Debug)]
pub(super) struct TokenStream<'a> {
    decoder: Option<StreamDecoder<&'a Tokenizer>>,
    /// Holds back what may become a stop string, and ends the text before one.
    stop: StopText,
    /// Whether standard output is kept for something else.
    silent: bool,
    text: String,
    first: bool,
    /// Ids of the model that the vocabulary has no token for.
    unknown: Vec<u32>,
    /// What goes to standard error before the first token.
    beginning: &'static str,
    /// How the text lies on a terminal; `None` for a file or a pipe.
    flow: Option<Flow>,
}

impl<'a> TokenStream<'a> {
    /// Text where there is a vocabulary, up to one of `stops`, none of which is
    /// empty; ids where there is none; nothing when `silent`. `beginning` is shown
    /// before the first token, on standard error, as it is not the model's.
    pub(super) fn new(
        tokenizer: Option<&'a Tokenizer>,
        stops: Vec<String>,
        silent: bool,
        beginning: &'static str,
    ) -> Self {
        let on_screen = k3_terminal::is_terminal(Stream::Stdout) && !k3_terminal::is_dumb();
        // Both go to one screen, or they have nothing to do with each other.
        let is_beside = k3_terminal::is_terminal(Stream::Stderr);
        let before = if is_beside { beginning } else { "" };
        Self {
            decoder: tokenizer.map(|tokenizer| StreamDecoder::new(tokenizer, Render::Plain)),
            stop: StopText::new(stops).expect("parsing refuses empty ones"),
            silent,
            text: String::new(),
            first: true,
            unknown: Vec::new(),
            beginning,
            flow: on_screen.then(|| Flow::behind(before, columns())),
        }
    }

    /// Shows `id`: the text it completes, or its number.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(super) fn push(&mut self, id: u32) -> Result<(), CliError> {
        if !self.silent {
            self.begin();
        }
        let piece = match &mut self.decoder {
            Some(decoder) => match decoder.push(id) {
                Ok(text) => self.stop.push(text).text.to_owned(),
                // The model has more rows than the vocabulary has tokens.
                Err(_) => {
                    self.unknown.push(id);
                    String::new()
                }
            },
            None if self.first => id.to_string(),
            None => format!(" {id}"),
        };
        self.first = false;
        self.emit(&piece)
    }

    /// Shows what stands before the text, if that has not been done.
    fn begin(&mut self) {
        print_text(std::mem::take(&mut self.beginning));
    }

    /// Shows `whole`, what there is of an answer that was kept silent, and a line end.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(super) fn show_whole(&mut self, whole: &str) -> Result<(), CliError> {
        self.begin();
        let text = match &mut self.flow {
            Some(flow) => flow.push(whole, columns()),
            None => whole.to_owned(),
        };
        Stdout.write(format!("{text}\n").as_bytes())
    }

    /// Ends the text: what was held back, and a line end if anything came.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(super) fn finish(&mut self) -> Result<(), CliError> {
        if let Some(decoder) = &mut self.decoder {
            let rest = self.stop.push(decoder.finish()).text.to_owned();
            self.emit(&rest)?;
            let held = self.stop.finish().to_owned();
            self.emit(&held)?;
        }
        if self.first || self.silent {
            return Ok(());
        }
        Stdout.write(b"\n")
    }

    /// Whether the text has come to a stop string: it ends before it.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// The text so far; `None` without a vocabulary.
    pub(super) fn text(&self) -> Option<&str> {
        self.decoder.as_ref().map(|_| self.text.as_str())
    }

    /// Generated ids that have no text, if there are any, as a note.
    pub(super) fn note(&self) -> Option<String> {
        let first = self.unknown.first()?;
        let count = self.unknown.len();
        Some(format!(
            "{count} generated ids have no token in the vocabulary and no text, the first is {first}"
        ))
    }

    fn emit(&mut self, piece: &str) -> Result<(), CliError> {
        if piece.is_empty() {
            return Ok(());
        }
        if self.decoder.is_some() {
            self.text.push_str(piece);
        }
        if self.silent {
            return Ok(());
        }
        match &mut self.flow {
            Some(flow) => Stdout.write(flow.push(piece, columns()).as_bytes()),
            None => Stdout.write(piece.as_bytes()),
        }
    }
}

/// Columns of the terminal, which may have been resized.
fn columns() -> usize {
    k3_terminal::columns(Stream::Stdout).unwrap_or(COLUMNS)
}
