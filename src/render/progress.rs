//! Progress of the phases a person waits for.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
pub(crate) use k3_terminal::Progress;

use super::escape;
use super::style::stderr_is_terminal;

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
        let style = ProgressStyle::with_template("{msg}, {elapsed}{prefix}");
        // All at once: each later change would be painted, what is missing left out.
        let bar = ProgressBar::new_spinner()
            .with_style(style.expect("the template is fixed"))
            .with_prefix(eta)
            .with_message(what.to_owned());
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
