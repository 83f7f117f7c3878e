//! What a person reads: errors, reports, tables, progress.

pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod style;
pub(crate) mod sweeps;
pub(crate) mod table;
pub(crate) mod wrap;

/// A rate, in bytes per second.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate to three digits; negative and huge ones do not occur"
)]
pub(crate) fn short_rate(bytes_per_second: f64) -> String {
    format!("{}/s", short_bytes(bytes_per_second.round() as u64))
}

/// Bytes in decimal units alone, where both would not fit.
pub(crate) fn short_bytes(bytes: u64) -> String {
    let text = k3_config::Bytes(bytes).to_string();
    let short = text.split_once(" (").map(|(short, _)| short.to_owned());
    short.unwrap_or(text)
}
