//! Progress of writing, on a terminal only.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over bytes written, with rate and time left, on standard error;
/// invisible where that is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total_bytes`.
    pub fn new(total_bytes: u64, quiet: bool) -> Self {
        let target = if stderr().is_terminal() && !quiet {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = "writing [{bar:20}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
        let style = ProgressStyle::with_template(template).expect("the template is fixed");
        let bar = ProgressBar::with_draw_target(Some(total_bytes), target);
        bar.set_style(style.progress_chars("=> "));
        Self(bar)
    }

    /// `bytes` more are written.
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
