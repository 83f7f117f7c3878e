//! What can be wrong with a configuration.

use std::fmt;

use crate::shown::{listed, plain, sentence};

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// A required key is absent or null.
    #[error("{} is missing", plain(key))]
    Missing {
        /// The key, with its alias where it has one.
        key: String,
    },
    /// A key's value has the wrong type.
    #[error("{} is {}, expected {expected}", plain(key), sentence(found))]
    IllTyped {
        /// The key.
        key: String,
        /// What a value should be.
        expected: String,
        /// The value.
        found: String,
    },
    /// A key's value has the right type and cannot be right.
    #[error("{} is {}, must be {expected}", plain(key), sentence(found))]
    OutOfRange {
        /// The key.
        key: String,
        /// The permitted range.
        expected: String,
        /// The value.
        found: String,
    },
    /// A variant of the model that the arithmetic does not implement.
    #[error(
        "{} is {}: not supported by this version, which implements {supported}",
        plain(key),
        plain(found)
    )]
    Unsupported {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// The value that is implemented.
        supported: String,
    },
    /// The successor model, by name.
    #[error(
        "{} says this is Kimi K3.1, whose sparse indexer (lightning indexer) is not supported \
         by this version; use a Kimi K3 checkpoint",
        plain(key)
    )]
    SparseIndexer {
        /// The key that says so.
        key: String,
    },
}

/// All problems of a configuration as one sentence.
pub(crate) struct ProblemList<'a> {
    problems: &'a [ConfigProblem],
    architectures: &'a [String],
}

pub(crate) fn problem_list<'a>(
    problems: &'a [ConfigProblem],
    architectures: &'a [String],
) -> ProblemList<'a> {
    ProblemList {
        problems,
        architectures,
    }
}

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.problems.len() == 1 { "" } else { "s" };
        write!(formatter, "{} problem{plural}", self.problems.len())?;
        if !self.architectures.is_empty() {
            let names = listed(self.architectures);
            write!(formatter, " in this configuration of {names}")?;
        }
        for problem in self.problems {
            write!(formatter, "\n  - {problem}")?;
        }
        Ok(())
    }
}
