//! `k3 repair`.

use std::path::Path;

use k3_config::Bytes;
use k3_integrity::IntegrityError;
use k3_integrity::http::{HttpSettings, RetrySettings};
use k3_integrity::repair::{BadList, Fate, RepairSettings, RepairSummary, Repaired, repair};
use k3_runtime::Cancel;

use super::onlooker::Onlooker;
use super::{hub, list, shown};
use crate::cli::integrity::RepairArgs;
use crate::commands::{named_model_path, roots};
use crate::error::CliError;
use crate::exit::Exit;
use crate::inputs::{InputKind, read_bytes};
use crate::interrupt;
use crate::stdout::Stdout;

/// Fetches what is bad again.
///
/// # Errors
///
/// What [`repair`] reports, and a list that is none.
pub(crate) fn run(args: &RepairArgs) -> Result<Exit, CliError> {
    let model = named_model_path(args.model.as_deref())?;
    let settings = RepairSettings {
        bad: args.bad.as_deref().map(read_report).transpose()?,
        model,
        roots: roots(&args.roots)?,
        manifest: args.manifest.clone(),
        from: args.from.clone(),
        endpoint: hub::endpoint()?,
        token: hub::token()?,
        dry_run: args.dry_run,
        http: HttpSettings::default(),
        retry: RetrySettings::default(),
    };
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let onlooker = Onlooker::new(cancel, args.quiet);
    let result = repair(&settings, &onlooker);
    onlooker.end();
    let summary = match result {
        Err(IntegrityError::Interrupted) => {
            let kept = "what was mended stays so; the same command goes on".to_owned();
            return Err(CliError::KeptInterrupted(kept));
        }
        other => other?,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&summary).expect("plain data serialises") + "\n"
    } else {
        show(&summary)
    };
    Stdout.write(text.as_bytes())?;
    Ok(if summary.left() == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn read_report(path: &Path) -> Result<BadList, CliError> {
    let bytes = read_bytes(path, InputKind::FINDINGS)?;
    let path = path.to_owned();
    match serde_json::from_slice(&bytes) {
        Ok(report) => Ok(BadList { path, report }),
        Err(error) => {
            let reason = error.to_string();
            Err(IntegrityError::Report { path, reason }.into())
        }
    }
}

/// What was done, as text.
fn show(summary: &RepairSummary) -> String {
    if summary.ranges.is_empty() {
        return "good: there is nothing to repair\n".to_owned();
    }
    let mut text = list(&summary.ranges, |range: &Repaired| {
        let fate = match &range.fate {
            Fate::Mended => "; mended".to_owned(),
            Fate::Good => "; good by now, not touched".to_owned(),
            Fate::Planned => "; would be fetched".to_owned(),
            Fate::Left(reason) => format!("; not mended: {reason}"),
        };
        shown(&range.bad, &fate)
    });
    let count = |fate: &Fate| {
        summary
            .ranges
            .iter()
            .filter(|range| range.fate == *fate)
            .count()
    };
    let (mended, planned) = (count(&Fate::Mended), count(&Fate::Planned));
    let left = summary.left();
    let planned_bytes: u64 = summary
        .ranges
        .iter()
        .filter(|range| range.fate == Fate::Planned)
        .map(|range| range.bad.bytes)
        .sum();
    text.push_str(&if planned > 0 {
        format!(
            "\n{planned} to be fetched, {}, from {}\n",
            Bytes(planned_bytes),
            summary.from
        )
    } else {
        format!(
            "\n{mended} mended, {left} left, {} fetched from {} in {:.1} s\n",
            Bytes(summary.fetched_bytes),
            summary.from,
            summary.seconds
        )
    });
    if mended > 0 {
        text.push_str(
            "A packed trunk that was made from the bad bytes has them still: compare it\n\
             with `k3-pack trunk MODEL OUT --verify`, or pack it again.\n",
        );
    }
    text
}
