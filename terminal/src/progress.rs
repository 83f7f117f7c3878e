//! Progress of what a person waits for: a bar on a terminal, a line now and then in a log.

use std::borrow::Cow;
use std::fmt;
use std::io::{Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use k3_config::Bytes;

use crate::width::{Stream, is_terminal};

/// Parts of a phase that counts nothing else.
const SHARE_PARTS: u64 = 10_000;
/// Time between two lines of a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// One phase on standard error: a bar with rate and time left where that is a terminal,
/// and a line of a log every ten seconds where it is none. Nothing if quiet.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    log: Option<Mutex<Log>>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Positions,
    Seconds,
    Share,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Self::Bytes => "{bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
            Self::Positions => "{pos}/{len} {rate} ETA {eta}",
            Self::Seconds => "{pos} of at most {len} s",
            Self::Share => "{percent:>3} % ETA {eta}",
        }
    }
}

impl Progress {
    /// `total` bytes are read or written; `label` is up to nine letters ("writing").
    #[must_use]
    pub fn bytes(label: &'static str, total: u64, quiet: bool) -> Self {
        Self::new(label, Unit::Bytes, total, 0, quiet)
    }

    /// The same, of which an earlier run has `done`: that says nothing about the rate.
    #[must_use]
    pub fn bytes_from(label: &'static str, total: u64, done: u64, quiet: bool) -> Self {
        Self::new(label, Unit::Bytes, total, done, quiet)
    }

    /// `total` positions are computed.
    #[must_use]
    pub fn positions(label: &'static str, total: u64, quiet: bool) -> Self {
        Self::new(label, Unit::Positions, total, 0, quiet)
    }

    /// A measurement may take `total` seconds.
    #[must_use]
    pub fn seconds(label: &'static str, total: u64, quiet: bool) -> Self {
        Self::new(label, Unit::Seconds, total, 0, quiet)
    }

    /// Something whose parts have no name.
    #[must_use]
    pub fn share(label: String, quiet: bool) -> Self {
        Self::new(label, Unit::Share, SHARE_PARTS, 0, quiet)
    }

    fn new(
        label: impl Into<Cow<'static, str>>,
        unit: Unit,
        total: u64,
        done: u64,
        quiet: bool,
    ) -> Self {
        let label = label.into();
        let on_terminal = is_terminal(Stream::Stderr);
        let target = if on_terminal && !quiet {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = format!("{{msg:9}} [{{bar:20}}] {}", unit.template());
        let style = ProgressStyle::with_template(&template).expect("the template is fixed");
        let style = style.with_key("rate", |state: &ProgressState, to: &mut dyn fmt::Write| {
            // A screen that cannot take a number has nobody to tell.
            let _ = write!(to, "{:.1} tokens/s", state.per_sec());
        });
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(label.clone());
        bar.set_position(done);
        bar.reset_eta();
        let log = !on_terminal && !quiet;
        let log = log.then(|| Log::new(label, unit, total, done, Instant::now()));
        Self {
            bar,
            log: log.map(Mutex::new),
        }
    }

    /// `done` of the total are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
        self.tell();
    }

    /// So many more are done.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
        self.tell();
    }

    /// From 0 to 1 of a phase made by [`Progress::share`] is done.
    pub fn set_share(&self, done: f64) {
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let parts = (done.clamp(0.0, 1.0) * SHARE_PARTS as f64).floor();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of parts"
        )]
        self.set(parts as u64);
    }

    /// Runs `print`, which writes on the same screen, with the bar out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    fn tell(&self) {
        let Some(log) = &self.log else { return };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = log.line(self.bar.position(), Instant::now()) {
            // Without standard error there is nobody to tell.
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

impl Drop for Progress {
    /// Takes the bar off the screen, whatever ended the phase.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The lines of a log.
#[derive(Debug)]
struct Log {
    label: Cow<'static, str>,
    unit: Unit,
    total: u64,
    /// Where it began, and when.
    first: u64,
    started: Instant,
    /// When the latest line was due.
    told: Instant,
}

impl Log {
    fn new(label: Cow<'static, str>, unit: Unit, total: u64, first: u64, started: Instant) -> Self {
        Self {
            label,
            unit,
            total,
            first,
            started,
            told: started,
        }
    }

    /// What is to be told at `now`, if it is time: nothing of a phase that is short, or
    /// over.
    fn line(&mut self, done: u64, now: Instant) -> Option<String> {
        if now.duration_since(self.told) < LINE_INTERVAL || done >= self.total {
            return None;
        }
        self.told = now;
        let seconds = now.duration_since(self.started).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "figures for people to read")]
        let [share, rate, left] = {
            let rate = done.saturating_sub(self.first) as f64 / seconds;
            let left = (self.total - done) as f64 / rate;
            [100.0 * done as f64 / self.total as f64, rate, left]
        };
        let counts = match self.unit {
            Unit::Bytes => format!("{} of {}", short(done), short(self.total)),
            Unit::Positions => format!("{done} of {}", self.total),
            Unit::Seconds => {
                return Some(format!(
                    "{}: {done} of at most {} s",
                    self.label, self.total
                ));
            }
            Unit::Share => String::new(),
        };
        let counts = if counts.is_empty() {
            format!("{share:.0} %")
        } else {
            format!("{counts} ({share:.0} %)")
        };
        let rate = match self.unit {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate to three digits"
            )]
            Unit::Bytes => format!(", {}/s", short(rate as u64)),
            Unit::Positions => format!(", {rate:.1} a second"),
            Unit::Seconds | Unit::Share => String::new(),
        };
        let left = match left.is_finite() {
            true => format!(", {} left", clock(left)),
            false => String::new(),
        };
        Some(format!("{}: {counts}{rate}{left}", self.label))
    }
}

/// Bytes in decimal units alone.
fn short(bytes: u64) -> String {
    let text = Bytes(bytes).to_string();
    let short = text.split_once(" (").map(|(short, _)| short.to_owned());
    short.unwrap_or(text)
}

/// A time that is an estimate.
fn clock(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        60.0..3600.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(log: &mut Log, seconds: u64, done: u64) -> Option<String> {
        let now = log.started + Duration::from_secs(seconds);
        log.line(done, now)
    }

    #[test]
    fn a_log_has_a_line_every_ten_seconds_and_none_of_what_is_short() {
        let mut log = Log::new(
            "hashing".into(),
            Unit::Bytes,
            5_000_000_000,
            0,
            Instant::now(),
        );
        assert_eq!(after(&mut log, 0, 0), None);
        assert_eq!(after(&mut log, 9, 900_000_000), None);
        assert_eq!(
            after(&mut log, 10, 1_000_000_000).unwrap(),
            "hashing: 1.00 GB of 5.00 GB (20 %), 100.00 MB/s, 40 s left"
        );
        assert_eq!(after(&mut log, 19, 2_000_000_000), None, "not yet again");
        assert!(after(&mut log, 21, 2_000_000_000).is_some());
        assert_eq!(after(&mut log, 50, 5_000_000_000), None, "it is over");
    }

    #[test]
    fn an_earlier_run_is_no_part_of_the_rate() {
        let mut log = Log::new("packing".into(), Unit::Bytes, 4_000, 3_000, Instant::now());
        let line = after(&mut log, 10, 3_100).unwrap();
        assert!(line.ends_with("(78 %), 10 B/s, 2 min left"), "{line}");
        let mut log = Log::new("packing".into(), Unit::Bytes, 4_000, 3_000, Instant::now());
        let line = after(&mut log, 10, 3_000).unwrap();
        assert!(!line.contains("left"), "nothing is known: {line}");
    }

    #[test]
    fn every_unit_says_what_it_counts() {
        for (unit, expected) in [
            (
                Unit::Positions,
                "work: 20 of 200 (10 %), 2.0 a second, 2 min left",
            ),
            (Unit::Share, "work: 10 %, 2 min left"),
            (Unit::Seconds, "work: 20 of at most 200 s"),
        ] {
            let mut log = Log::new("work".into(), unit, 200, 0, Instant::now());
            assert_eq!(after(&mut log, 10, 20).unwrap(), expected);
        }
    }
}
