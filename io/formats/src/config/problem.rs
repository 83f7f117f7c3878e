//! What can be wrong with a configuration.

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// A required key is absent or null.
    #[error("{key} is missing")]
    Missing {
        /// The key, with its alias where it has one.
        key: String,
    },
    /// A key's value has the wrong type.
    #[error("{key} is {found}, expected {expected}")]
    IllTyped {
        /// The key.
        key: String,
        /// What a value should be.
        expected: String,
        /// The value.
        found: String,
    },
    /// A key's value has the right type and cannot be right.
    #[error("{key} is {found}, must be {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The permitted range.
        expected: String,
        /// The value.
        found: String,
    },
    /// A variant of the model that the arithmetic does not implement.
    #[error("{key} is {found}: not supported by this version, which implements {supported}")]
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
        "{key} says this is Kimi K3.1, whose sparse indexer (lightning indexer) is not supported \
         by this version; use a Kimi K3 checkpoint"
    )]
    SparseIndexer {
        /// The key that says so.
        key: String,
    },
}
