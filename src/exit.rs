//! How a run of the program ends, in the one place that knows the numbers.

/// The documented exit codes. 4 is reserved for "finished but unsound", which
/// k3 never produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The run failed, or `compare` found a difference.
    Failed = 1,
    /// Refused before it started: usage, configuration or plan.
    Refused = 2,
    /// An output cannot be written.
    NotWritable = 3,
    /// Interrupted; the tokens so far and the report were kept.
    InterruptedKept = 5,
    /// Interrupted with nothing to keep (128 + SIGINT, as shells have it).
    Interrupted = 130,
}

impl Exit {
    /// The number the shell sees.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
