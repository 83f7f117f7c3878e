//! The report of a run, to read.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use k3_config::Bytes;
use k3_runtime::RunReport;
use k3_runtime::report::{
    BytesReport, ChecksumUse, CountsReport, EngineReport, MemoryReport, PrefixReport, StateReport,
    StopReason, StreamingReport, TrunkReport,
};
use k3_terminal::{Stream, fitting, wrap};

use super::style::Style;
use super::{escape, short_bytes, short_rate, sweeps, table};
use crate::settings::variable;

/// Hex digits of the identity that are shown.
const IDENTITY_DIGITS: usize = 12;

/// Prints the report on standard error, with a row for every sweep if
/// `per_token`.
pub(crate) fn print(report: &RunReport, per_token: bool, style: Style) {
    let mut text = render(report, style);
    if let (true, Some(streaming)) = (per_token, &report.streaming) {
        text.push_str(&sweeps::render(streaming));
    }
    // A report that nobody can read must not fail a run that succeeded.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints `text` as it is, also on standard error.
pub(crate) fn print_text(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints a sentence that is worth knowing, also on standard error.
pub(crate) fn print_note(note: &str) {
    print_text(&note_line(note, Style::detect()));
}

fn render(report: &RunReport, style: Style) -> String {
    let facts = [
        ("model", model(report)),
        ("numerics", numerics(report)),
        ("computed", execution(report)),
        (
            "loaded",
            format!("in {}", seconds(report.timing.load_seconds)),
        ),
        ("prompt", prompt(report)),
        ("generated", generated(report)),
        (
            "trunk",
            consumed(
                report.counts.trunk_bytes,
                report.counts.trunk_blocks,
                "blocks",
            ),
        ),
        (
            "experts",
            consumed(report.counts.expert_bytes, report.counts.experts, "experts"),
        ),
    ];
    let mut facts = facts.to_vec();
    if let Some(streaming) = &report.streaming {
        facts.extend(streamed(streaming));
        facts.extend(lookahead(streaming));
    }
    facts.extend(report.trunk.as_ref().map(packed));
    facts.extend(guessed(&report.counts));
    facts.extend(
        report
            .prefix_cache
            .as_ref()
            .map(|cache| prefixes(cache, report)),
    );
    facts.extend(report.loaded_state.as_ref().map(loaded));
    facts.extend(report.saved_state.as_ref().map(saved));
    let mut text = String::from("\n");
    text.push_str(&table::fitting_facts(&facts));
    let skipped = report.counts.nan_scale_groups;
    if skipped > 0 {
        let _ = writeln!(
            text,
            "{} {skipped} groups of expert weights were skipped: their scale is NaN",
            style.warning("warning:")
        );
    }
    let fallbacks = report
        .streaming
        .iter()
        .flat_map(|streaming| &streaming.fallbacks);
    for note in report.notes.iter().chain(fallbacks) {
        text.push_str(&note_line(note, style));
    }
    text
}

fn note_line(note: &str, style: Style) -> String {
    let line = format!("{} {}\n", style.hint("note:"), escape::line(note));
    match style.is_terminal() {
        true => wrap(&line, fitting(Stream::Stderr)),
        false => line,
    }
}

/// What guessing ahead came to, if anything was guessed.
fn guessed(counts: &CountsReport) -> Option<(&'static str, String)> {
    let (guessed, accepted) = (counts.guessed_tokens, counts.accepted_tokens);
    let text = format!("{accepted} of {guessed} tokens ahead were right");
    (guessed > 0).then_some(("guessed", text))
}

/// What the prefix cache gave and took.
fn prefixes(cache: &PrefixReport, report: &RunReport) -> (&'static str, String) {
    let reused = match report.loaded_state {
        Some(_) => 0,
        None => report.counts.reused_positions,
    };
    let text = format!(
        "{reused} positions from the prefix cache, {} read, {} written",
        short_bytes(cache.read_bytes),
        short_bytes(cache.written_bytes)
    );
    ("reused", text)
}

/// What was not computed again.
fn loaded(state: &StateReport) -> (&'static str, String) {
    let StateReport {
        path,
        ids,
        position,
        ..
    } = state;
    (
        "loaded",
        format!("state of {position} of {ids} ids, {}", escape::line(path)),
    )
}

/// What the next run can go on with.
fn saved(state: &StateReport) -> (&'static str, String) {
    let bytes = short_bytes(state.file_bytes);
    let text = format!("{} ids, {bytes}, {}", state.ids, escape::line(&state.path));
    ("saved", text)
}

fn model(report: &RunReport) -> String {
    let model = &report.model;
    let digits = model
        .identity
        .get(..IDENTITY_DIGITS)
        .unwrap_or(&model.identity);
    let layers = if model.layers == model.layers_total {
        format!("{} layers", model.layers)
    } else {
        format!("{} of {} layers", model.layers, model.layers_total)
    };
    let home = variable("HOME").map(PathBuf::from);
    let path = below_home(Path::new(&model.path), home.as_deref());
    format!("{path} ({layers}, identity {digits})")
}

/// `path` as a shell may be given it: what lies in `home` begins with a tilde.
fn below_home(path: &Path, home: Option<&Path>) -> String {
    let home = home.filter(|home| home.components().count() > 1);
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) => Path::new("~").join(below).display().to_string(),
        None => path.display().to_string(),
    }
}

fn numerics(report: &RunReport) -> String {
    let numerics = &report.numerics;
    format!(
        "version {}, {} attention",
        numerics.version, numerics.attention
    )
}

fn execution(report: &RunReport) -> String {
    let execution = &report.execution;
    let pinned = match execution.placement.pinned {
        true => " pinned",
        false => "",
    };
    let threads = format!("{}{pinned}", counted(execution.threads, "thread"));
    let recompute = if execution.recompute {
        ", whole text again for every token"
    } else {
        ""
    };
    let sweeps = counted(
        usize::try_from(report.counts.sweeps).unwrap_or(usize::MAX),
        "sweep",
    );
    let weights = match report.streaming {
        Some(_) => "weights streamed",
        None => "weights in memory",
    };
    format!(
        "with {}, {threads}, {weights}, {sweeps}{recompute}",
        execution.isa
    )
}

/// What packing saved, and what comparing with checksums took.
#[allow(clippy::cast_precision_loss, reason = "a share to a few digits")]
fn packed(trunk: &TrunkReport) -> (&'static str, String) {
    let share = 100.0 * trunk.stored_bytes as f64 / trunk.raw_bytes.max(1) as f64;
    let checked = match trunk.checksums {
        ChecksumUse::Compared => format!(
            "checksums of {} in {}",
            short_bytes(trunk.checked_bytes),
            seconds(trunk.check_seconds)
        ),
        ChecksumUse::Off => "checksums off".to_owned(),
        ChecksumUse::None => "has no checksums".to_owned(),
    };
    let size = format!(
        "{} a sweep, {share:.1} % of raw",
        short_bytes(trunk.stored_bytes)
    );
    ("packed", format!("{size}; {checked}"))
}

/// What was reserved, read and waited for.
fn streamed(report: &StreamingReport) -> [(&'static str, String); 6] {
    let memory = &report.memory;
    let peak = match memory.peak_bytes {
        Some(peak) => format!("peak {} of ", short_bytes(peak)),
        None => String::new(),
    };
    let (bytes, cache, time) = (&report.bytes, &report.cache, &report.time);
    [
        (
            "memory",
            format!(
                "{peak}{} planned, budget {}",
                short_bytes(memory.planned_bytes),
                Bytes(memory.budget_bytes)
            ),
        ),
        (
            "read",
            format!(
                "trunk {} ({} pinned), experts {}{}, device {}",
                short_bytes(bytes.trunk_read_bytes),
                percent(cache.pinned_share),
                short_bytes(bytes.expert_read_bytes),
                pages(bytes),
                short_bytes(bytes.device_bytes)
            ),
        ),
        (
            "cache",
            format!(
                "{} hits, {} misses ({}), {} evictions",
                cache.hits,
                cache.misses,
                percent(cache.hit_rate),
                cache.evictions
            ),
        ),
        ("disk", disk(&report.engine)),
        (
            "waits",
            format!(
                "{} of the time for reads, overlap {:.2}",
                percent(time.io_share),
                time.overlap
            ),
        ),
        ("paging", paging(memory)),
    ]
}

/// What was read of pages that do not stay in memory, if there were any.
fn pages(bytes: &BytesReport) -> String {
    match bytes.page_read_bytes {
        0 => String::new(),
        read => format!(", pages {}", short_bytes(read)),
    }
}

fn disk(engine: &EngineReport) -> String {
    let rate = short_rate(engine.bytes_per_second);
    let against = match (engine.ceiling_share, engine.ceiling_bytes_per_second) {
        (Some(share), Some(ceiling)) => {
            let source = engine.ceiling_source.unwrap_or_default();
            format!(
                ", {} of the {} {source}",
                percent(share),
                short_rate(ceiling)
            )
        }
        _ => String::new(),
    };
    format!("{}, {rate}{against}", engine.kind)
}

fn paging(memory: &MemoryReport) -> String {
    let faults = match memory.major_faults {
        Some(1) => "1 major fault".to_owned(),
        Some(count) => format!("{count} major faults"),
        None => "faults not known".to_owned(),
    };
    match memory.swapped_bytes {
        Some(0) | None => faults,
        Some(bytes) => format!("{faults}, {} swapped out", short_bytes(bytes)),
    }
}

/// What guesses at the next layer came to, where they were asked for.
fn lookahead(report: &StreamingReport) -> Option<(&'static str, String)> {
    let cache = &report.cache;
    (report.plan.lookahead.experts_per_position > 0).then(|| {
        let text = format!(
            "{} of {} misses begun early, {} read in vain",
            cache.lookahead_used,
            cache.misses,
            short_bytes(cache.lookahead_wasted_bytes)
        );
        ("lookahead", text)
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn prompt(report: &RunReport) -> String {
    let count = report.prompt_ids.len();
    let spent = report.timing.prefill_seconds;
    if spent <= 0.0 {
        let done = report.counts.positions;
        return format!("{}, of which {done} were read", counted(count, "token"));
    }
    // What was taken up took no time, and says nothing about the rate.
    let reused = usize::try_from(report.counts.reused_positions).unwrap_or(count);
    let reused = reused.min(count);
    let taken = match reused {
        0 => String::new(),
        _ => format!(", {reused} of them reused,"),
    };
    format!(
        "{}{taken} in {}{}",
        counted(count, "token"),
        seconds(spent),
        rate(count - reused, spent)
    )
}

fn generated(report: &RunReport) -> String {
    let choices = report.choices.as_deref().unwrap_or_default();
    let all = choices.iter().map(|choice| choice.generated_ids.len());
    let count = match choices {
        [] => report.generated_ids.len(),
        _ => all.sum(),
    };
    let times = &report.timing.token_seconds;
    // Not `sum`, which makes -0 of nothing.
    let spent = times.iter().fold(0.0, |sum, one| sum + one);
    // The first token's sweep belongs to the prompt.
    let rate = rate(count.saturating_sub(1), times.iter().skip(1).sum());
    let stop = match report.stop_reason {
        StopReason::Length => "as many as asked for",
        StopReason::Stop => "ended by a stop token",
        StopReason::StopString => "ended by a stop string",
        StopReason::Interrupted => "interrupted",
        StopReason::Failed => "failed",
        StopReason::Nothing => return "nothing, as asked".to_owned(),
    };
    let answers = match choices {
        [] => String::new(),
        _ => format!(" of {} answers", choices.len()),
    };
    format!(
        "{}{answers} in {}{rate}, {stop}",
        counted(count, "token"),
        seconds(spent)
    )
}

fn consumed(bytes: u64, count: u64, of: &str) -> String {
    format!("{}, {count} {of}", Bytes(bytes))
}

fn counted(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

fn seconds(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.3} s")
    } else {
        format!("{seconds:.1} s")
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate to three digits")]
fn rate(tokens: usize, seconds: f64) -> String {
    if tokens == 0 || seconds <= 0.0 {
        return String::new();
    }
    let rate = tokens as f64 / seconds;
    let digits = if rate < 10.0 { 3 } else { 1 };
    format!(" ({rate:.digits$} tokens/s)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_at_home_is_shown_so() {
        let home = Some(Path::new("/people/somebody"));
        let shown = |path: &str| below_home(Path::new(path), home);
        assert_eq!(
            shown("/people/somebody/.cache/k3/demo-1"),
            "~/.cache/k3/demo-1"
        );
        assert_eq!(
            shown("/people/somebody-else/k3"),
            "/people/somebody-else/k3"
        );
        assert_eq!(shown("models/k3"), "models/k3");
        let model = Path::new("/k3");
        for home in [None, Some(Path::new("/")), Some(Path::new(""))] {
            assert_eq!(below_home(model, home), "/k3");
        }
    }

    #[test]
    fn rates_and_seconds_keep_their_digits() {
        assert_eq!(rate(1, 8.0), " (0.125 tokens/s)");
        assert_eq!(rate(100, 2.0), " (50.0 tokens/s)");
        assert_eq!(rate(0, 2.0), "");
        assert_eq!(seconds(0.0123), "0.012 s");
        assert_eq!(seconds(123.456), "123.5 s");
        assert_eq!(counted(1, "token"), "1 token");
    }
}
