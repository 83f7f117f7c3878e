//! Trying again, a bounded number of times.

use std::time::{Duration, Instant, SystemTime};

use super::HttpError;
use crate::error::IntegrityError;
use crate::watch::Watch;

/// How often and how soon to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySettings {
    /// Tries without progress before giving up.
    pub tries: u32,
    /// Pause after the first; it doubles with each.
    pub first_pause: Duration,
    /// Longest pause of one's own accord.
    pub longest_pause: Duration,
    /// Longest pause that a server can ask for.
    pub patience: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            tries: 8,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            patience: Duration::from_secs(600),
        }
    }
}

/// The tries at one thing.
#[derive(Debug)]
pub(crate) struct Retry<'a> {
    settings: &'a RetrySettings,
    failed: u32,
}

impl<'a> Retry<'a> {
    pub(crate) fn new(settings: &'a RetrySettings) -> Self {
        Self {
            settings,
            failed: 0,
        }
    }

    /// Something was achieved: counting begins anew.
    pub(crate) fn progress(&mut self) {
        self.failed = 0;
    }

    /// A try has failed: waits before the next, which the watch is told of.
    ///
    /// # Errors
    ///
    /// The failure, when no other try would help or there were enough;
    /// [`IntegrityError::Interrupted`].
    pub(crate) fn failed(
        &mut self,
        error: HttpError,
        watch: &dyn Watch,
    ) -> Result<(), IntegrityError> {
        // Whatever it was: nobody waits for another try.
        if !watch.go_on() {
            return Err(IntegrityError::Interrupted);
        }
        if !error.is_passing() {
            return Err(error.into());
        }
        self.failed += 1;
        if self.failed >= self.settings.tries {
            let last = Box::new(error);
            let tries = self.failed;
            return Err(HttpError::Exhausted { tries, last }.into());
        }
        let doubled =
            self.settings.first_pause * 2_u32.saturating_pow(self.failed - 1).min(1 << 16);
        let own = doubled.min(self.settings.longest_pause);
        let wait = error.retry_after().unwrap_or(own).max(own);
        if wait > self.settings.patience {
            let url = match error {
                HttpError::Status { url, .. } => url,
                _ => String::new(),
            };
            return Err(HttpError::Patience { url, wait }.into());
        }
        let seconds = wait.as_secs_f64();
        watch.message(&format!("{error}; trying again in {seconds:.1} s"));
        pause(wait, watch)
    }
}

/// Waits, as long as the watch goes on.
///
/// # Errors
///
/// [`IntegrityError::Interrupted`].
pub(crate) fn pause(wait: Duration, watch: &dyn Watch) -> Result<(), IntegrityError> {
    const STEP: Duration = Duration::from_millis(50);
    let end = Instant::now() + wait;
    loop {
        if !watch.go_on() {
            return Err(IntegrityError::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(STEP));
    }
}

/// Seconds, or a date.
pub(super) fn parse_retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(parse_date(text)?);
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that
/// servers still write.
fn parse_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64;
    let year: u64 = words.next()?.parse().ok()?;
    let mut clock = words
        .next()?
        .split(':')
        .map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let fits =
        (1970..10_000).contains(&year) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if !fits || words.next() != Some("GMT") {
        return None;
    }
    // Days from civil (Hinnant): years begin in March, so that leap days come
    // last.
    let (year, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Silent;

    fn settings() -> RetrySettings {
        RetrySettings {
            tries: 3,
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(2),
            patience: Duration::from_secs(5),
        }
    }

    fn broken() -> HttpError {
        HttpError::Connection {
            url: "u".to_owned(),
            reason: "reset".to_owned(),
        }
    }

    #[test]
    fn tries_without_progress_are_counted() {
        let settings = settings();
        let mut retry = Retry::new(&settings);
        for _ in 0..5 {
            retry.failed(broken(), &Silent).unwrap();
            retry.failed(broken(), &Silent).unwrap();
            retry.progress();
        }
        retry.failed(broken(), &Silent).unwrap();
        retry.failed(broken(), &Silent).unwrap();
        let error = retry.failed(broken(), &Silent).unwrap_err().to_string();
        assert!(
            error.contains("after 3 tries") && error.contains("reset"),
            "{error}"
        );
    }

    #[test]
    fn what_no_try_mends_is_told_at_once() {
        let settings = settings();
        let status = |status, retry_after| HttpError::Status {
            url: "u".to_owned(),
            status,
            retry_after,
            sent_from: None,
        };
        for code in [400, 401, 403, 404, 416] {
            Retry::new(&settings)
                .failed(status(code, None), &Silent)
                .unwrap_err();
        }
        let long = Some(Duration::from_secs(3600));
        let error = Retry::new(&settings).failed(status(429, long), &Silent);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("3600 s"), "{error}");
    }

    #[test]
    fn a_pause_ends_when_the_watch_says_so() {
        struct Stop;
        impl Watch for Stop {
            fn go_on(&self) -> bool {
                false
            }
        }
        let started = Instant::now();
        pause(Duration::from_secs(60), &Stop).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn dates_are_seconds() {
        assert_eq!(
            parse_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            parse_date("Thu, 29 Feb 2024 23:59:59 GMT"),
            Some(1_709_251_199)
        );
        for wrong in [
            "",
            "Sun, 06 Nov 1994",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1894 08:49:37 GMT",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
        assert_eq!(parse_retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_retry_after("soon"), None);
    }
}
