//! CPU time: what a part of the program took, whatever others took meanwhile.

use rustix::time::{ClockId, clock_gettime};

/// A clock that runs while this program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// While the calling thread runs.
    Thread,
    /// While any thread of the process runs, each adding to it.
    Process,
}

impl CpuClock {
    /// Seconds on the clock.
    #[must_use]
    pub fn seconds(self) -> f64 {
        let time = clock_gettime(match self {
            Self::Thread => ClockId::ThreadCPUTime,
            Self::Process => ClockId::ProcessCPUTime,
        });
        #[allow(
            clippy::cast_precision_loss,
            reason = "52 bits of seconds are more than a process lives"
        )]
        let seconds = time.tv_sec as f64;
        #[allow(clippy::cast_precision_loss, reason = "below 10^9")]
        let rest = time.tv_nsec as f64;
        seconds + rest * 1e-9
    }

    /// Seconds that `body` takes on the clock.
    pub fn time(self, body: impl FnOnce()) -> f64 {
        let before = self.seconds();
        body();
        self.seconds() - before
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Duration;

    use super::*;

    fn work(seconds: f64) {
        let start = CpuClock::Thread.seconds();
        while CpuClock::Thread.seconds() < start + seconds {
            black_box((0..1000).fold(0_u64, |sum, i| sum ^ black_box(i)));
        }
    }

    #[test]
    fn sleep_takes_no_cpu_time_and_work_does() {
        let slept = CpuClock::Thread.time(|| std::thread::sleep(Duration::from_millis(50)));
        let worked = CpuClock::Thread.time(|| work(0.05));
        assert!(slept < 0.02 && worked >= 0.05, "{slept} {worked}");
    }

    #[test]
    fn a_process_takes_what_all_its_threads_take() {
        let both = || {
            std::thread::scope(|scope| {
                scope.spawn(|| work(0.05));
                work(0.05);
            });
        };
        let mut thread = 0.0;
        let process = CpuClock::Process.time(|| thread = CpuClock::Thread.time(both));
        assert!(
            process >= 0.1 && thread < process - 0.04,
            "{process} {thread}"
        );
    }
}
