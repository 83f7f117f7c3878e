//! A trace of experts against a cache that reads nothing.

use std::fmt::Write as _;

use k3_actors::sim::{ReplayReport, ReplayRow, ReplaySettings, Tally, replay};
use k3_formats::ExpertTrace;

use crate::cli::commands::ReplayArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::inputs::{InputKind, read_bytes};
use crate::render::{short_bytes, table};
use crate::stdout::Stdout;

/// Slot counts whose steps fit beside each other.
const STEP_COLUMNS_MAX: usize = 6;
/// Steps that are listed for a person.
const STEPS_MAX: usize = 64;

/// Replays the trace.
///
/// # Errors
///
/// A trace that cannot be read or does not go with the settings.
pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, CliError> {
    let bytes = read_bytes(&args.trace, InputKind::TRACE)?;
    let trace = ExpertTrace::parse(&args.trace, &bytes)?;
    drop(bytes);
    let report = replay(
        &trace,
        &ReplaySettings {
            policy: args.policy,
            slot_counts: args.slots.iter().copied().map(size).collect(),
            transit_count: size(args.transit),
            top_k: size(args.topk),
            last_pass: args.last_pass,
            prompt_positions: args.prompt_positions.map(size),
            model: args.model,
            expert_bytes: args.expert_bytes.0,
        },
    )?;
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain data serialises") + "\n"
    } else {
        render(&report)
    };
    Stdout.write(text.as_bytes())?;
    Ok(Exit::Done)
}

fn render(report: &ReplayReport) -> String {
    let mut text = table::facts(&[
        (
            "policy",
            format!("{}, {} demands", report.policy, report.model),
        ),
        (
            "trace",
            format!(
                "{} positions ({} of the prompt), {} layers, {} picks each",
                report.position_count,
                report.prompt_position_count,
                report.layer_count,
                report.top_k
            ),
        ),
        (
            "slots",
            format!(
                "{} of each for transit, {} bytes an expert",
                report.transit_count, report.expert_bytes
            ),
        ),
    ]);
    text.push_str("\nhits in percent; \"best\" is the bound that no policy can pass\n");
    let header = [
        "slots",
        "memory",
        "all",
        "best",
        "decode",
        "best",
        "last step",
        "read",
    ];
    text.push_str(&table::numbers(&header, report.rows.iter().map(row)));
    push_steps(&mut text, report);
    text
}

fn row(row: &ReplayRow) -> Vec<String> {
    let (found, best) = (&row.tallies, &row.belady);
    vec![
        row.slot_count.to_string(),
        short_bytes(row.slot_bytes),
        percent(&found.all),
        percent(&best.all),
        percent(&found.decode),
        percent(&best.decode),
        percent(&found.final_step),
        short_bytes(found.all.read_bytes),
    ]
}

/// Hits of each step, a column for each slot count.
fn push_steps(text: &mut String, report: &ReplayReport) {
    let rows = &report.rows[..report.rows.len().min(STEP_COLUMNS_MAX)];
    let Some(first) = rows.first() else { return };
    let steps = &first.steps;
    let header: Vec<String> = ["step", "positions"]
        .map(str::to_owned)
        .into_iter()
        .chain(rows.iter().map(|row| row.slot_count.to_string()))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let lines = steps
        .iter()
        .enumerate()
        .take(STEPS_MAX)
        .map(|(index, step)| {
            let label = if step.is_prompt {
                format!("{} prompt", index + 1)
            } else {
                (index + 1).to_string()
            };
            let shares = rows.iter().map(|row| percent(&row.steps[index].tally));
            [label, step.position_count.to_string()]
                .into_iter()
                .chain(shares)
                .collect()
        });
    text.push_str("\nhits of each step, in percent, by slots\n");
    text.push_str(&table::numbers(&header, lines));
    if steps.len() > STEPS_MAX || report.rows.len() > rows.len() {
        let write = "writing to a string cannot fail";
        writeln!(text, "--json has every step and slot count").expect(write);
    }
}

fn percent(tally: &Tally) -> String {
    format!("{:.2}", tally.hit_percent)
}

/// A count that the command line's parser has bounded.
fn size(count: u64) -> usize {
    usize::try_from(count).expect("bounded by the parser")
}
