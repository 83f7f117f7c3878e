//! The named memory budgets.

use k3_config::{Preset, default_chunk_positions};
use serde::Serialize;

use crate::error::CliError;
use crate::exit::Exit;
use crate::stdout::Stdout;

/// One preset, as data.
#[derive(Debug, Serialize)]
struct PresetRow {
    preset: Preset,
    /// `None` for what the machine decides.
    memory_bytes: Option<u64>,
    chunk_positions: Option<u64>,
    purpose: &'static str,
}

/// Lists the presets.
///
/// # Errors
///
/// Standard output cannot be written.
pub(crate) fn run(json: bool) -> Result<Exit, CliError> {
    let text = if json {
        let rows = Preset::ALL.iter().map(|&preset| PresetRow {
            preset,
            memory_bytes: preset.total().map(|total| total.0),
            chunk_positions: preset.total().map(default_chunk_positions),
            purpose: preset.purpose(),
        });
        let rows: Vec<_> = rows.collect();
        serde_json::to_string_pretty(&rows).expect("plain data serialises") + "\n"
    } else {
        Preset::table()
    };
    Stdout.write(text.as_bytes())?;
    Ok(Exit::Done)
}
