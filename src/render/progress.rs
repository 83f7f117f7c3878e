//! Progress of the phases a person waits for, on a terminal only.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::escape;
use super::style::stderr_is_terminal;

/// Parts of a bar that counts nothing else.
const SHARE_PARTS: u64 = 10_000;

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

    /// A bar over something whose parts have no name.
    pub(crate) fn share(label: String, quiet: bool) -> Self {
        Self::new(label, SHARE_PARTS, quiet, "{percent:>3} % ETA {eta}")
    }

    /// From 0 to 1 of a bar made by [`Progress::share`] is done.
    pub(crate) fn set_share(&self, done: f64) {
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let parts = (done.clamp(0.0, 1.0) * SHARE_PARTS as f64).floor();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of parts"
        )]
        self.set(parts as u64);
    }

    fn new(label: impl Into<Cow<'static, str>>, total: u64, quiet: bool, counts: &str) -> Self {
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

    /// Runs `print`, which writes on the same screen, with the bar out of the way.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// `done` of the total are done.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

/// Runs that follow each other: the one that is under way with its time, on a
/// terminal, and a line for each that has ended.
#[derive(Debug)]
pub(crate) struct Runs {
    quiet: bool,
    bar: Option<ProgressBar>,
}

/// How often the time of a run is brought up to date.
const TICK: Duration = Duration::from_millis(250);

impl Runs {
    /// Nothing is under way.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, bar: None }
    }

    /// `what` has begun; all that is left will take `remaining_seconds`.
    pub(crate) fn begin(&mut self, what: &str, remaining_seconds: Option<f64>) {
        if !stderr_is_terminal() || self.quiet {
            return;
        }
        let eta = remaining_seconds.map_or_else(String::new, |seconds| {
            let whole = Duration::from_secs_f64(seconds.max(0.0));
            format!(", all done in {}", HumanDuration(whole))
        });
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{msg}, {elapsed}{prefix}");
        bar.set_style(style.expect("the template is fixed"));
        bar.set_prefix(eta);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        self.bar = Some(bar);
    }

    /// It has ended, as `line` tells.
    pub(crate) fn end(&mut self, line: &str) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if !self.quiet {
            // Without standard error there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{}", escape::line(line));
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    /// Takes the bar off the screen, whatever ended the phase.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
