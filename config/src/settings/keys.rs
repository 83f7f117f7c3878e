//! The keys, stated once, and a layer of values for them.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::budget::{Gigabytes, MemoryRequest};
use crate::bytes::Bytes;
use crate::choices::{AttentionChoice, CachePolicy, EngineChoice, IsaChoice, Pins, ThreadPins};
use crate::origin::{Origin, Sourced};
use crate::preset::Preset;

use super::value::{PathList, PositiveCount, SettingValue};

/// The name of a setting, in every layer's spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SettingKey(&'static str);

/// Positions that a context or a sweep may have at most: products of sizes stay
/// far below 2^64.
pub const POSITIONS_MAX: u32 = 1 << 24;
/// Sequences that run at a time at most.
pub const SEQUENCES_MAX: u32 = 1 << 12;
/// Tokens that are guessed ahead at most: of longer guesses the last are hardly
/// ever right.
pub const DRAFT_MAX: u32 = 64;
/// Compute threads at most.
pub const THREADS_MAX: u32 = 256;

impl SettingKey {
    /// The counts that a key called `name` takes, in every layer.
    fn counts(name: &str) -> RangeInclusive<u32> {
        match name {
            "context" | "chunk" => 1..=POSITIONS_MAX,
            "threads" => 1..=THREADS_MAX,
            "sequences" => 1..=SEQUENCES_MAX,
            "draft" => 0..=DRAFT_MAX,
            "lookahead" => 0..=u32::MAX,
            _ => 1..=u32::MAX,
        }
    }

    /// As in the settings file: `trunk_gb`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }

    /// As a flag: `--trunk-gb`.
    #[must_use]
    pub fn flag(self) -> String {
        format!("--{}", self.0.replace('_', "-"))
    }

    /// As an environment variable: `K3_TRUNK_GB`.
    #[must_use]
    pub fn variable(self) -> String {
        format!("K3_{}", self.0.to_ascii_uppercase())
    }
}

fn check_count(name: &str, count: Option<u32>) -> Result<(), String> {
    let range = SettingKey::counts(name);
    match count {
        Some(count) if !range.contains(&count) => Err(no_count(name, &count.to_string())),
        _ => Ok(()),
    }
}

/// Why `text` is no count for the key called `name`: one sentence, whether it
/// is no number or one out of range.
fn no_count(name: &str, text: &str) -> String {
    let range = SettingKey::counts(name);
    let (least, most) = (range.start(), range.end());
    format!("`{text}` is not a whole number from {least} to {most}")
}

macro_rules! setting_keys {
    ($($(#[$meta:meta])* $key:ident: $type:ty,)+) => {
        /// Every setting, in the order they are shown in.
        pub const SETTING_KEYS: &[SettingKey] = &[$(SettingKey(stringify!($key))),+];

        /// Their names, for suggestions.
        pub(super) const KEY_NAMES: &[&str] = &[$(stringify!($key)),+];

        /// Values of one layer, without their origin: what the flags of a
        /// command line come to.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct SettingValues {
            $($(#[$meta])* pub $key: Option<$type>,)+
        }

        impl SettingValues {
            /// The same values with the origin of each.
            pub(super) fn into_layer(self, origin: impl Fn(SettingKey) -> Origin) -> Layer {
                Layer {
                    $($key: self
                        .$key
                        .map(|value| Sourced::new(value, origin(SettingKey(stringify!($key))))),)+
                }
            }
        }

        /// Values of one layer with their origins.
        #[derive(Debug, Clone, Default)]
        pub(super) struct Layer {
            $(pub(super) $key: Option<Sourced<$type>>,)+
        }

        impl Layer {
            /// Sets the key called `name`, which exists, from its text.
            pub(super) fn set(
                &mut self,
                name: &str,
                items: &[OsString],
                folder: Option<&Path>,
                origin: Origin,
            ) -> Result<(), String> {
                match name {
                    $(stringify!($key) => {
                        let value = <$type as SettingValue>::from_items(items, folder);
                        let value = value.map_err(|reason| match items {
                            [item] if <$type as SettingValue>::IS_COUNT => {
                                item.to_str().map_or(reason, |text| no_count(name, text))
                            }
                            _ => reason,
                        })?;
                        check_count(name, SettingValue::count(&value))?;
                        self.$key = Some(Sourced::new(value, origin));
                    })+
                    _ => unreachable!("`{name}` is not a key"),
                }
                Ok(())
            }

            /// This layer with every value that `above` has.
            pub(super) fn overridden_by(self, above: Self) -> Self {
                Self {
                    $($key: above.$key.or(self.$key),)+
                }
            }
        }

        /// Whether the key called `name`, which exists, is one of paths.
        pub(super) fn is_path(name: &str) -> bool {
            match name {
                $(stringify!($key) => <$type as SettingValue>::IS_PATH,)+
                _ => unreachable!("`{name}` is not a key"),
            }
        }

        /// The items within the environment variable of the key called
        /// `name`, which exists.
        pub(super) fn split_variable(name: &str, value: &OsStr) -> Vec<OsString> {
            match name {
                $(stringify!($key) => <$type as SettingValue>::split_variable(value),)+
                _ => unreachable!("`{name}` is not a key"),
            }
        }
    };
}

setting_keys! {
    /// How much memory.
    memory: MemoryRequest,
    /// A named amount of memory.
    preset: Preset,
    /// Bytes of pinned trunk.
    trunk_gb: Gigabytes,
    /// Bytes of expert cache.
    cache_gb: Gigabytes,
    /// Positions a sequence may reach.
    context: PositiveCount,
    /// Positions that sequences which run together have memory for.
    context_total: PositiveCount,
    /// Positions of one sweep.
    chunk: PositiveCount,
    /// Compute threads.
    threads: PositiveCount,
    /// Whether each thread stays on a processor of its own.
    pin_threads: ThreadPins,
    /// Instruction set.
    isa: IsaChoice,
    /// Read engine.
    engine: EngineChoice,
    /// Largest size of a block.
    block_bytes: Bytes,
    /// Which blocks are pinned.
    pins: Pins,
    /// Which experts stay.
    policy: CachePolicy,
    /// Expert slots in all.
    slots: PositiveCount,
    /// Experts of the next layer that are read ahead; 0 is off.
    lookahead: u32,
    /// Tokens that are guessed ahead for a sequence; 0 is off.
    draft: u32,
    /// Sequences that run at a time.
    sequences: PositiveCount,
    /// Where states that may be wanted again are kept.
    prefix_cache: PathBuf,
    /// How much of them.
    prefix_cache_gb: Gigabytes,
    /// Where positions go that do not fit into memory.
    spill: PathBuf,
    /// How much of them.
    spill_gb: Gigabytes,
    /// Attention form.
    attention: AttentionChoice,
    /// Further folders that hold shards.
    root: PathList,
    /// Folders that hold a packed trunk.
    trunk: PathList,
    /// Folder or file of the tokenizer.
    tokenizer: PathBuf,
    /// Where metrics are served.
    metrics_listen: SocketAddr,
}
