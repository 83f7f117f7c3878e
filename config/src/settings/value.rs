//! How the text of a setting becomes a value, whatever layer it stands in.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::budget::{Gigabytes, MemoryRequest};
use crate::bytes::Bytes;
use crate::choices::{AttentionChoice, CachePolicy, EngineChoice, IsaChoice, Pins, ThreadPins};
use crate::preset::Preset;

/// A whole number from 1 to 4,294,967,295.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PositiveCount(NonZeroU32);

impl PositiveCount {
    /// `count`, unless it is 0.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// A text that is no [`PositiveCount`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a whole number from 1 to 4294967295")]
pub struct ParseCountError(String);

impl FromStr for PositiveCount {
    type Err = ParseCountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.trim().parse().map(Self);
        count.map_err(|_| ParseCountError(text.to_owned()))
    }
}

impl fmt::Display for PositiveCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Folders, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct PathList(#[serde(serialize_with = "crate::lossy::paths")] pub Vec<PathBuf>);

impl fmt::Display for PathList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self
            .0
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        f.write_str(&paths.join(", "))
    }
}

/// A value that settings can have.
pub(super) trait SettingValue: Sized {
    /// Whether it is a count, with a range that depends on the key.
    const IS_COUNT: bool = false;
    /// Whether it consists of paths: texts, whatever they look like.
    const IS_PATH: bool = false;

    /// The value that `items` stand for: one, or the members of a list.
    /// `folder` is where relative paths start, if not from the current one.
    fn from_items(items: &[OsString], folder: Option<&Path>) -> Result<Self, String>;

    /// The items within one environment variable.
    fn split_variable(value: &OsStr) -> Vec<OsString> {
        vec![value.to_owned()]
    }

    /// The value as a user would read it.
    fn to_text(&self) -> String;

    /// The value if it is a count.
    fn count(&self) -> Option<u32> {
        None
    }
}

/// The one item of a value that is no list, as text.
fn single(items: &[OsString]) -> Result<&str, String> {
    match items {
        [item] => item
            .to_str()
            .ok_or_else(|| "the value is not valid UTF-8".to_owned()),
        _ => Err(format!(
            "one value is expected, not a list of {}",
            items.len()
        )),
    }
}

macro_rules! scalar_settings {
    ($($type:ty),+ $(,)?) => {
        $(impl SettingValue for $type {
            fn from_items(items: &[OsString], _: Option<&Path>) -> Result<Self, String> {
                single(items)?.parse().map_err(|error: <$type as FromStr>::Err| error.to_string())
            }

            fn to_text(&self) -> String {
                self.to_string()
            }
        })+
    };
}

scalar_settings!(
    MemoryRequest,
    Preset,
    Gigabytes,
    IsaChoice,
    EngineChoice,
    Pins,
    CachePolicy,
    AttentionChoice,
    ThreadPins,
);

impl SettingValue for PositiveCount {
    const IS_COUNT: bool = true;

    fn from_items(items: &[OsString], _: Option<&Path>) -> Result<Self, String> {
        single(items)?
            .parse()
            .map_err(|error: ParseCountError| error.to_string())
    }

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn count(&self) -> Option<u32> {
        Some(self.get())
    }
}

impl SettingValue for u32 {
    const IS_COUNT: bool = true;

    fn count(&self) -> Option<u32> {
        Some(*self)
    }

    fn from_items(items: &[OsString], _: Option<&Path>) -> Result<Self, String> {
        let text = single(items)?;
        let number = text.trim().parse();
        number.map_err(|_| format!("`{text}` is not a whole number from 0 to {}", Self::MAX))
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for Bytes {
    fn from_items(items: &[OsString], _: Option<&Path>) -> Result<Self, String> {
        let text = single(items)?;
        match text.parse() {
            Ok(Self(0)) => Err(format!("`{text}` is no size: it has to be at least 1")),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(crate::bytes::ParseBytesError::to_string(&error)),
        }
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for SocketAddr {
    fn from_items(items: &[OsString], _: Option<&Path>) -> Result<Self, String> {
        let text = single(items)?;
        let address = text.trim().parse();
        address.map_err(|_| {
            format!("`{text}` is not an address with a port, such as 127.0.0.1:9300 or [::1]:9300")
        })
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

fn path_from(item: &OsStr, folder: Option<&Path>) -> Result<PathBuf, String> {
    if item.is_empty() {
        return Err("an empty path names nothing".to_owned());
    }
    // An absolute path replaces the folder it is joined to.
    Ok(folder.map_or_else(|| PathBuf::from(item), |folder| folder.join(item)))
}

impl SettingValue for PathBuf {
    const IS_PATH: bool = true;

    fn from_items(items: &[OsString], folder: Option<&Path>) -> Result<Self, String> {
        match items {
            [item] => path_from(item, folder),
            _ => Err(format!(
                "one path is expected, not a list of {}",
                items.len()
            )),
        }
    }

    fn to_text(&self) -> String {
        self.display().to_string()
    }
}

impl SettingValue for PathList {
    const IS_PATH: bool = true;

    fn from_items(items: &[OsString], folder: Option<&Path>) -> Result<Self, String> {
        let paths: Result<_, _> = items.iter().map(|item| path_from(item, folder)).collect();
        paths.map(Self)
    }

    fn split_variable(value: &OsStr) -> Vec<OsString> {
        std::env::split_paths(value)
            .map(PathBuf::into_os_string)
            .collect()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}
