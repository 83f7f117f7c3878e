//! Where a value came from.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::preset::Preset;

/// Who decided a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Nobody: it is the default.
    Default,
    /// The preset in force.
    Preset(Preset),
    /// The packed trunk, which was made so.
    Trunk,
    /// A line of the settings file.
    File {
        /// The file.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// Its name with dashes.
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset(preset) => write!(f, "preset {preset}"),
            Self::Trunk => f.write_str("the packed trunk"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { name } => f.write_str(name),
        }
    }
}

impl Origin {
    /// The setting `key`, in the settings file's spelling, as whoever decided
    /// its value wrote it: the flag, the variable, or the key and its line.
    ///
    /// Where nobody did it is the flag, with which to say otherwise.
    ///
    /// ```
    /// use k3_config::Origin;
    /// let file = Origin::File { path: "k3.toml".into(), line: 3 };
    /// assert_eq!(file.spelled("trunk_gb"), "`trunk_gb` in k3.toml:3");
    /// assert_eq!(Origin::Default.spelled("trunk_gb"), "--trunk-gb");
    /// ```
    #[must_use]
    pub fn spelled(&self, key: &str) -> String {
        match self {
            Self::Flag { name } => name.clone(),
            Self::Environment { variable } => variable.clone(),
            Self::File { .. } => format!("`{key}` in {self}"),
            Self::Default | Self::Preset(_) | Self::Trunk => format!("--{}", key.replace('_', "-")),
        }
    }
}

/// A value and who decided it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Who decided it.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// `value` as `origin` wants it.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// `value` because nobody said otherwise.
    pub fn default_value(value: T) -> Self {
        Self::new(value, Origin::Default)
    }
}
