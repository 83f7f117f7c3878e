//! The arithmetic of a token, to read.

use std::fmt::Write as _;

use super::decode::{DecodeReport, PhaseReport};
use crate::render::wrap::wrap;
use crate::render::{escape, short_bytes, table};

const GIGA: f64 = 1e9;
/// Phases below this share of a token are summed up in one line.
const SHARE_MIN: f64 = 0.002;

/// The tables of `report`.
pub(super) fn render(report: &DecodeReport) -> String {
    let mut text = table::facts(&facts(report));
    let write = "writing to a string cannot fail";
    let (layers, experts) = (report.target_layers, report.target_experts);
    writeln!(
        text,
        "\ncore-seconds of a token: {layers} layers of {experts} experts, from {} measured",
        report.layers
    )
    .expect(write);
    let header = [
        "part",
        "step",
        "core s",
        "share",
        "sweep ms",
        "GB/s a core",
        "of read",
    ];
    let (large, small): (Vec<&PhaseReport>, Vec<&PhaseReport>) = report
        .phases
        .iter()
        .partition(|phase| share(report, phase.token_core_seconds) >= SHARE_MIN);
    let mut rows: Vec<Vec<String>> = large.iter().map(|phase| row(report, phase)).collect();
    let rest: f64 = small.iter().map(|phase| phase.token_core_seconds).sum();
    if !small.is_empty() {
        rows.push(sum_row(
            report,
            "",
            &format!("{} others", small.len()),
            rest,
        ));
    }
    text.push_str(&table::named(&header, 2, rows.into_iter()));
    text.push('\n');
    let header = ["part", "", "core s", "share"];
    let mut rows: Vec<Vec<String>> = report
        .parts
        .iter()
        .map(|part| sum_row(report, part.part, "", part.token_core_seconds))
        .collect();
    rows.push(sum_row(report, "all", "", report.token_core_seconds));
    text.push_str(&table::named(&header, 2, rows.into_iter()));
    let verdict = if report.passed { "kept" } else { "missed" };
    writeln!(
        text,
        "\nlimit {} core-seconds: {verdict}",
        report.limit_core_seconds
    )
    .expect(write);
    for note in report.fallbacks.iter().chain(&report.notes) {
        text.push_str(&wrap(&format!("note: {}\n", escape::line(note))));
    }
    text
}

fn facts(report: &DecodeReport) -> [(&'static str, String); 5] {
    let spread = &report.cpu_seconds;
    let stream = &report.stream_bytes_per_core_second;
    [
        (
            "model",
            format!("{} ({} layers)", report.model.display(), report.layers),
        ),
        (
            "computed",
            format!("with {}, {} threads", report.isa, report.threads),
        ),
        (
            "weights",
            format!(
                "{} in memory, in turn; {} positions before",
                short_bytes(report.buffer_bytes),
                report.context_positions
            ),
        ),
        (
            "reading",
            format!(
                "{:.1} GB/s a core ({:.1}..{:.1}) where weights are only read",
                stream.median / GIGA,
                stream.min / GIGA,
                stream.max / GIGA
            ),
        ),
        (
            "sweep",
            format!(
                "{:.3} s, {:.3} core-seconds ({:.3}..{:.3}), median of {}",
                report.wall_seconds.median, spread.median, spread.min, spread.max, report.rounds
            ),
        ),
    ]
}

fn share(report: &DecodeReport, core_seconds: f64) -> f64 {
    core_seconds / report.token_core_seconds.max(f64::MIN_POSITIVE)
}

fn percent(report: &DecodeReport, core_seconds: f64) -> String {
    format!("{:.1} %", 100.0 * share(report, core_seconds))
}

fn row(report: &DecodeReport, phase: &PhaseReport) -> Vec<String> {
    #[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
    let rate = phase.weight_bytes as f64 / phase.cpu_seconds.median / GIGA;
    let of_stream = rate * GIGA / report.stream_bytes_per_core_second.median;
    let shown = |figure: String| match phase.weight_bytes {
        0 => String::new(),
        _ => figure,
    };
    vec![
        phase.part.to_owned(),
        phase.phase.to_owned(),
        format!("{:.3}", phase.token_core_seconds),
        percent(report, phase.token_core_seconds),
        format!("{:.2}", 1e3 * phase.wall_seconds.median),
        shown(format!("{rate:.2}")),
        shown(format!("{of_stream:.2}")),
    ]
}

fn sum_row(report: &DecodeReport, part: &str, name: &str, core_seconds: f64) -> Vec<String> {
    vec![
        part.to_owned(),
        name.to_owned(),
        format!("{core_seconds:.3}"),
        percent(report, core_seconds),
    ]
}
