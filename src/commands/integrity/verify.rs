//! `k3 verify`.

use std::time::{SystemTime, UNIX_EPOCH};

use k3_config::Bytes;
use k3_integrity::Watch as _;
use k3_integrity::check::{Check, CheckReport, CheckSettings, Selection};
use k3_runtime::Cancel;

use super::onlooker::Onlooker;
use super::{list, shown};
use crate::cli::integrity::VerifyArgs;
use crate::commands::{named_model_path, roots};
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::render::wrap::wrap;
use crate::render::{escape, short_bytes, short_rate, table};
use crate::stdout::Stdout;

/// Compares, and tells what is bad.
///
/// # Errors
///
/// Nothing to compare with, a manifest of another checkpoint, and
/// [`CliError::KeptInterrupted`] after what was found so far is printed.
pub(crate) fn run(args: &VerifyArgs) -> Result<Exit, CliError> {
    let model = named_model_path(args.model.as_deref())?;
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let selection = match (args.sample, args.layer) {
        (Some(amount), _) => Selection::Sample {
            amount,
            seed: args.seed.unwrap_or_else(from_clock),
        },
        (None, Some(layer)) => Selection::Layer(layer),
        (None, None) => Selection::All,
    };
    let check = Check::new(CheckSettings {
        model,
        roots: roots(&args.roots)?,
        manifest: args.manifest.clone(),
        selection,
        threads: args.threads.and_then(|count| usize::try_from(count).ok()),
    })?;
    let onlooker = Onlooker::new(cancel, args.quiet);
    onlooker.phase("verifying", check.selected_bytes());
    let report = check.run(&onlooker);
    onlooker.end();
    let report = report?;
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain data serialises") + "\n"
    } else {
        show(&report)
    };
    Stdout.write(text.as_bytes())?;
    match (report.complete, report.bad.is_empty()) {
        (false, _) => Err(CliError::KeptInterrupted(
            "what was looked at before is above".to_owned(),
        )),
        (true, true) => Ok(Exit::Done),
        (true, false) => Ok(Exit::Failed),
    }
}

/// A seed that differs from run to run; the report tells it.
fn from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() & 0xffff_ffff)
}

/// The findings as text.
fn show(report: &CheckReport) -> String {
    #[allow(clippy::cast_precision_loss, reason = "shares and rates to read")]
    let (checked, total) = (report.checked_bytes as f64, report.total_bytes as f64);
    let share = 100.0 * checked / total.max(1.0);
    let selection = match (report.selection.as_str(), report.seed, report.layer) {
        (_, Some(seed), _) => format!("a sample drawn from seed {seed}"),
        (_, _, Some(layer)) => format!("layer {layer}"),
        _ => "everything".to_owned(),
    };
    let covered = format!(
        "{} of {} ranges, {} of {} ({share:.1} %)",
        report.checked_ranges,
        report.total_ranges,
        short_bytes(report.checked_bytes),
        short_bytes(report.total_bytes)
    );
    let rate = short_rate(checked / report.seconds.max(1e-9));
    let mut facts = vec![
        ("checkpoint", report.model.clone()),
        ("against", format!("{} ({})", report.source, report.hash)),
    ];
    if let Some(identity) = &report.identity {
        facts.push(("identity", identity.clone()));
    }
    facts.extend([
        ("selected", selection),
        ("looked at", covered),
        ("time", format!("{:.1} s, {rate}", report.seconds)),
    ]);
    let mut text = table::facts(&facts);
    text.push('\n');
    let stopped = if report.complete {
        ""
    } else {
        " before it was interrupted"
    };
    if report.bad.is_empty() {
        text.push_str(&format!("good: nothing wrong was found{stopped}\n"));
    } else {
        let (count, bytes) = (report.bad.len(), Bytes(report.bad_bytes));
        text.push_str(&format!("bad: {count} found{stopped}, {bytes}\n"));
        text.push_str(&list(&report.bad, |bad| shown(bad, "")));
        let command = if report.hash == "blake3" {
            "k3 repair"
        } else {
            "k3 fetch --recheck"
        };
        text.push_str(&format!("\n`{command}` fetches what is bad again\n"));
    }
    for note in &report.notes {
        text.push_str(&wrap(&format!("note: {}\n", escape::line(note))));
    }
    text
}
