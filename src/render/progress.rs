//! Progress of the phases a person waits for, on a terminal only.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::style::stderr_is_terminal;

/// A bar on standard error, invisible where that is no terminal.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total` bytes that are read.
    pub(crate) fn bytes(label: &'static str, total: u64, quiet: bool) -> Self {
        let counts = "{bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
        Self::new(label, total, quiet, counts)
    }

    /// A bar over `total` positions that are computed.
    pub(crate) fn positions(label: &'static str, total: u64, quiet: bool) -> Self {
        Self::new(label, total, quiet, "{pos}/{len} {rate} ETA {eta}")
    }

    /// A bar over the seconds that a measurement may take.
    pub(crate) fn seconds(label: &'static str, total: u64, quiet: bool) -> Self {
        Self::new(label, total, quiet, "{pos} of at most {len} s")
    }

    fn new(label: &'static str, total: u64, quiet: bool, counts: &str) -> Self {
        let visible = stderr_is_terminal() && !quiet;
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = format!("{{msg:9}} [{{bar:20}}] {counts}");
        let style = ProgressStyle::with_template(&template).expect("the template is fixed");
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let style = style.with_key("rate", |state: &ProgressState, to: &mut dyn fmt::Write| {
            // A screen that cannot take a number has nobody to tell.
            let _ = write!(to, "{:.1} tokens/s", state.per_sec());
        });
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(label);
        Self(bar)
    }

    /// `done` of the total are done.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    /// Takes the bar off the screen, whatever ended the phase.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
