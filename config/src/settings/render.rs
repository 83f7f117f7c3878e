//! The settings in force, as lines of text and as data.

use std::fmt::Write as _;

use serde::Serialize;

use crate::origin::Sourced;

use super::Settings;
use super::value::SettingValue;

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    /// Its name in the settings file.
    pub key: &'static str,
    /// Its value; `None` if the model or the machine decides.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: String,
}

impl SettingRow {
    fn new<T: SettingValue>(key: &'static str, sourced: &Sourced<T>) -> Self {
        Self {
            key,
            value: Some(sourced.value.to_text()),
            origin: sourced.origin.to_string(),
        }
    }

    fn optional<T: SettingValue>(key: &'static str, sourced: &Option<Sourced<T>>) -> Self {
        match sourced {
            Some(sourced) => Self::new(key, sourced),
            None => Self {
                key,
                value: None,
                origin: "default".to_owned(),
            },
        }
    }
}

impl Settings {
    /// Every setting with its value and origin. A preset shows as the value
    /// of `memory`.
    #[must_use]
    pub fn rows(&self) -> Vec<SettingRow> {
        vec![
            SettingRow::new("memory", &self.memory),
            SettingRow::optional("trunk_gb", &self.trunk_gb),
            SettingRow::optional("cache_gb", &self.cache_gb),
            SettingRow::new("context", &self.context),
            SettingRow::optional("context_total", &self.context_total),
            SettingRow::optional("chunk", &self.chunk),
            SettingRow::optional("threads", &self.threads),
            SettingRow::new("pin_threads", &self.pin_threads),
            SettingRow::new("isa", &self.isa),
            SettingRow::new("engine", &self.engine),
            SettingRow::new("block_bytes", &self.block_bytes),
            SettingRow::new("pins", &self.pins),
            SettingRow::new("policy", &self.policy),
            SettingRow::optional("slots", &self.slots),
            SettingRow::new("lookahead", &self.lookahead),
            SettingRow::new("draft", &self.draft),
            SettingRow::optional("sequences", &self.sequences),
            SettingRow::optional("prefix_cache", &self.prefix_cache),
            SettingRow::new("prefix_cache_gb", &self.prefix_cache_gb),
            SettingRow::optional("spill", &self.spill),
            SettingRow::optional("spill_gb", &self.spill_gb),
            SettingRow::new("attention", &self.attention),
            SettingRow::optional("root", &self.root),
            SettingRow::optional("trunk", &self.trunk),
            SettingRow::optional("tokenizer", &self.tokenizer),
            SettingRow::optional("metrics_listen", &self.metrics_listen),
        ]
    }

    /// [`Self::rows`] as a table: key, value, origin.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for row in self.rows() {
            let value = row.value.as_deref().unwrap_or("-");
            writeln!(text, "{:<15}  {value:<23}  {}", row.key, row.origin)
                .expect("writing to a string cannot fail");
        }
        text
    }
}
