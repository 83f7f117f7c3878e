//! Why a batch cannot be run as it is.

use std::path::PathBuf;

/// What is wrong with the input or the output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    /// Lines that cannot be run.
    #[error("{path}: {count} of the lines cannot be run as they are\n{}", faults.join("\n"))]
    Lines {
        /// The input.
        path: PathBuf,
        /// How many.
        count: usize,
        /// What is wrong with the first of them.
        faults: Vec<String>,
    },
    /// Nothing to run.
    #[error("{path}: no prompt in here")]
    Empty {
        /// The input.
        path: PathBuf,
    },
    /// More choices than sequences.
    #[error("{together} choices of one prompt run together, but --sequences is {asked}")]
    Choices {
        /// What was asked for.
        asked: usize,
        /// What is needed.
        together: usize,
    },
    /// Fewer positions than the choices of one line take.
    #[error(
        "line {line} takes {needed} positions{}, but --context-total is {asked}",
        together(*choices)
    )]
    Total {
        /// The line.
        line: usize,
        /// Its choices.
        choices: u32,
        /// What they take.
        needed: usize,
        /// What was asked for.
        asked: usize,
    },
    /// An output that cannot be gone on with.
    #[error("{path}: {what}")]
    Output {
        /// The output.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        way_out: &'static str,
    },
}

/// What several answers to one line add to a sentence about it.
fn together(choices: u32) -> String {
    match choices {
        0 | 1 => String::new(),
        choices => format!(" for its {choices} answers, which run together"),
    }
}

impl BatchError {
    /// What the user can do.
    pub(crate) fn way_out(&self) -> &'static str {
        match self {
            Self::Lines { .. } => {
                "mend these lines, or take them out; `k3 batch --help` has the form"
            }
            Self::Choices { .. } => "raise --sequences, or ask for fewer \"choices\"",
            Self::Total { .. } => {
                "raise --context-total to that, leave it out, or ask for fewer \"choices\" or \
                 tokens"
            }
            Self::Empty { .. } => "write one JSON object on each line",
            Self::Output { way_out, .. } => way_out,
        }
    }
}
