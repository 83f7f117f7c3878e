//! What can go wrong between a wish and a plan.

use std::path::PathBuf;

use crate::bytes::{Bytes, ParseBytesError};
use crate::host::HostProblem;
use crate::names::UnknownName;
use crate::plan::PlanRefusal;
use crate::settings::SettingsErrors;

/// Why there is no budget, no plan or no settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A size that cannot be read.
    #[error(transparent)]
    Size(#[from] ParseBytesError),
    /// A name that is not known.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// Settings that cannot be used; all of them.
    #[error(transparent)]
    Settings(#[from] SettingsErrors),
    /// A settings file that cannot be read.
    #[error(
        "{path} ({named}): the settings cannot be read ({source}); name another file with \
         --settings"
    )]
    SettingsFile {
        /// The file.
        path: PathBuf,
        /// What names it.
        named: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A plan that does not fit.
    #[error(transparent)]
    Plan(#[from] PlanRefusal),
    /// The memory of the machine is not known, so `auto` has nothing to go by.
    #[error("{0}; `auto` needs it: give --memory a size instead")]
    HostMemoryUnknown(HostProblem),
    /// What the machine offers is eaten up by the reserve.
    #[error(
        "`auto` finds {available} ({limit}) and keeps {reserve} free for everything else, \
         which leaves nothing: free some memory or give --memory a size"
    )]
    NothingLeft {
        /// The smallest limit.
        available: Bytes,
        /// Which limit that is.
        limit: String,
        /// What `auto` keeps free.
        reserve: Bytes,
    },
}
