//! What a replay can be asked for by name.

use std::fmt;
use std::str::FromStr;

use k3_config::{CachePolicy, UnknownName};
use serde::{Serialize, Serializer};

/// A policy of the cache, or the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayPolicy {
    /// A policy that a run can have.
    Cache(CachePolicy),
    /// The best that knowledge of the future allows.
    Belady,
}

impl ReplayPolicy {
    /// The names users write.
    pub const NAMES: &'static [&'static str] =
        &["deep-layers", "lru", "decayed-frequency", "belady"];
}

impl Default for ReplayPolicy {
    fn default() -> Self {
        Self::Cache(CachePolicy::DeepLayers)
    }
}

impl fmt::Display for ReplayPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(policy) => policy.fmt(f),
            Self::Belady => f.pad("belady"),
        }
    }
}

impl FromStr for ReplayPolicy {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().eq_ignore_ascii_case("belady") {
            return Ok(Self::Belady);
        }
        let known = Self::NAMES;
        text.parse()
            .map(Self::Cache)
            .map_err(|error: UnknownName| UnknownName { known, ..error })
    }
}

impl Serialize for ReplayPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How a trace is turned into demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessModel {
    /// One expert at a time, in (position, layer, pick) order: as if each
    /// position walked through the layers alone and each pick were read before
    /// the next is looked up.
    Pick,
    /// The distinct experts of a layer at once, for all positions of a step: as
    /// the engine does it.
    #[default]
    Batch,
}

impl AccessModel {
    /// The names users write.
    pub const NAMES: &'static [&'static str] = &["pick", "batch"];
}

impl fmt::Display for AccessModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pick => "pick",
            Self::Batch => "batch",
        })
    }
}

impl FromStr for AccessModel {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().as_str() {
            "pick" => Ok(Self::Pick),
            "batch" => Ok(Self::Batch),
            _ => Err(UnknownName {
                what: "access model",
                text: text.to_owned(),
                known: Self::NAMES,
                nearest: None,
            }),
        }
    }
}

impl Serialize for AccessModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_what_they_print() {
        for name in ReplayPolicy::NAMES {
            assert_eq!(name.parse::<ReplayPolicy>().unwrap().to_string(), *name);
        }
        for name in AccessModel::NAMES {
            assert_eq!(name.parse::<AccessModel>().unwrap().to_string(), *name);
        }
        assert_eq!(CachePolicy::NAMES.len() + 1, ReplayPolicy::NAMES.len());
        let error = "lur".parse::<ReplayPolicy>().unwrap_err();
        assert_eq!((error.nearest, error.known.len()), (Some("lru"), 4));
        assert!("batches".parse::<AccessModel>().is_err());
    }
}
