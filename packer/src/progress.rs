//! Progress of long work, on a terminal only.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over bytes, with rate and time left, on standard error; invisible where
/// that is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total_bytes` of which `done_bytes` are done; `verb` is up to
    /// nine letters ("writing").
    pub fn new(verb: &'static str, total_bytes: u64, done_bytes: u64, quiet: bool) -> Self {
        let target = if stderr().is_terminal() && !quiet {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = "{msg} [{bar:20}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
        let style = ProgressStyle::with_template(template).expect("the template is fixed");
        let bar = ProgressBar::with_draw_target(Some(total_bytes), target);
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(verb);
        // What an earlier run did says nothing about the rate of this one.
        bar.set_position(done_bytes);
        bar.reset_eta();
        Self(bar)
    }

    /// `bytes` more are done.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    /// Takes the bar off the screen, whatever ended the run.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
