//! One total, where it came from, and how to split it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::bytes::{Bytes, ParseBytesError, parse_scaled};
use crate::error::ConfigError;
use crate::host::{AutoBudget, HostMemory};
use crate::names::nearest;
use crate::origin::{Origin, Sourced};
use crate::preset::Preset;

/// What `--memory` takes: a size, or the name of a preset.
///
/// ```
/// use k3_config::{Bytes, MemoryRequest, Preset};
/// assert_eq!("8G".parse(), Ok(MemoryRequest::Size(Bytes(8_000_000_000))));
/// assert_eq!("auto".parse(), Ok(MemoryRequest::Preset(Preset::Auto)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MemoryRequest {
    /// This many bytes.
    Size(Bytes),
    /// As much as the preset says.
    Preset(Preset),
}

/// Why a text is neither a size nor a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMemoryError {
    /// It looks like a size, but is none.
    #[error(transparent)]
    Size(#[from] ParseBytesError),
    /// It looks like a name, but is none.
    #[error(
        "`{text}` is neither a size such as 8G or 1.5GiB nor a preset ({}){}",
        Preset::NAMES.join(", "),
        nearest(.text, Preset::NAMES).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
    )]
    Name {
        /// What was given.
        text: String,
    },
}

impl FromStr for MemoryRequest {
    type Err = ParseMemoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(preset) = text.parse() {
            return Ok(Self::Preset(preset));
        }
        match text.parse() {
            Ok(bytes) => Ok(Self::Size(bytes)),
            Err(error) if text.contains(|c: char| c.is_ascii_digit()) => Err(error.into()),
            Err(_) => Err(ParseMemoryError::Name {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for MemoryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) => bytes.fmt(f),
            Self::Preset(preset) => preset.fmt(f),
        }
    }
}

/// A size whose plain number means 10^9 bytes: `--trunk-gb 2.5`.
///
/// ```
/// use k3_config::{Bytes, Gigabytes};
/// assert_eq!("2.5".parse::<Gigabytes>().unwrap().0, Bytes(2_500_000_000));
/// assert_eq!("512MiB".parse::<Gigabytes>().unwrap().0, Bytes(536_870_912));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Gigabytes(pub Bytes);

impl FromStr for Gigabytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_scaled(text.trim(), 1_000_000_000) {
            Some(bytes) => Ok(Self(Bytes(bytes))),
            None => text.parse().map(Self),
        }
    }
}

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a total came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetOrigin {
    /// A size that somebody wrote down.
    Given {
        /// Who.
        origin: Origin,
    },
    /// A preset.
    Preset {
        /// Which.
        preset: Preset,
        /// Who chose it.
        origin: Origin,
    },
    /// Measured on this machine.
    Auto {
        /// What was measured.
        measured: AutoBudget,
        /// Who chose `auto`.
        origin: Origin,
    },
}

impl fmt::Display for BudgetOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given { origin } => origin.fmt(f),
            Self::Preset { preset, origin } => write!(f, "preset {preset}, {origin}"),
            Self::Auto { measured, origin } => write!(
                f,
                "auto, {origin}: {} is the least with {}, less {} for the rest of the machine",
                measured.limit, measured.available, measured.reserve
            ),
        }
    }
}

/// All the memory a run may use, and how it wishes to split it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryBudget {
    /// The total.
    pub total: Bytes,
    /// Where the total came from.
    pub origin: BudgetOrigin,
    /// Bytes of pinned trunk, instead of all that is left.
    pub trunk: Option<Bytes>,
    /// Bytes of expert cache, instead of what the trunk leaves.
    pub cache: Option<Bytes>,
}

impl MemoryBudget {
    /// `total` bytes that `origin` asked for, split as the plan sees fit.
    #[must_use]
    pub fn given(total: Bytes, origin: Origin) -> Self {
        Self {
            total,
            origin: BudgetOrigin::Given { origin },
            trunk: None,
            cache: None,
        }
    }

    /// The budget that `request` comes to.
    ///
    /// `host` is called for [`Preset::Auto`] only, so that a fixed budget
    /// needs nothing from the machine.
    ///
    /// # Errors
    ///
    /// Those of [`HostMemory::auto_budget`].
    pub fn resolve(
        request: &Sourced<MemoryRequest>,
        host: impl FnOnce() -> HostMemory,
    ) -> Result<Self, ConfigError> {
        let origin = request.origin.clone();
        let preset = match request.value {
            MemoryRequest::Size(total) => return Ok(Self::given(total, origin)),
            MemoryRequest::Preset(preset) => preset,
        };
        let (total, origin) = match preset.total() {
            Some(total) => (total, BudgetOrigin::Preset { preset, origin }),
            None => {
                let measured = host().auto_budget()?;
                (measured.total, BudgetOrigin::Auto { measured, origin })
            }
        };
        assert!(total > Bytes(0), "no preset and no machine offers nothing");
        Ok(Self {
            total,
            origin,
            trunk: None,
            cache: None,
        })
    }

    /// The same total with `--trunk-gb` and `--cache-gb` applied.
    #[must_use]
    pub fn with_split(mut self, trunk: Option<Bytes>, cache: Option<Bytes>) -> Self {
        self.trunk = trunk;
        self.cache = cache;
        self
    }
}
