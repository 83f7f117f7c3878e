//! `k3 bench experts`.

use std::fmt::Write as _;
use std::path::PathBuf;

use k3_benchmarks::experts::{
    CodingReport, CodingRequest, ExpertMatrix, Part, Rates, measure as measure_codings,
};
use k3_config::{PathList, SettingValues, Settings};
use k3_formats::TensorRef;
use k3_formats::experts::ExpertPart;
use k3_kernels::Isa;
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, Checkpoint, CheckpointPaths};
use serde::Serialize;

use super::watch::{Stages, Watch};
use super::{Finished, size};
use crate::cli::bench::ExpertsArgs;
use crate::commands::generate::guard;
use crate::commands::model_path;
use crate::commands::running::setup::chosen_isa;
use crate::error::CliError;
use crate::output_file::OutputFile;
use crate::render::{escape, short_bytes, table, wrap::wrap};
use crate::{exit::Exit, interrupt, settings};

/// Cores of the machine that a rate is told for.
const CORES: f64 = 8.0;
/// What its disks read: the rate that decoding has to keep up with.
const DISK_BYTES_PER_SECOND: f64 = 7e9;
const GIGA: f64 = 1e9;
const WRITE: &str = "writing to a string cannot fail";

/// The result, as data.
#[derive(Debug, Serialize)]
struct ExpertsReport {
    #[serde(serialize_with = "k3_config::lossy::path")]
    model: PathBuf,
    identity: String,
    /// Experts that were looked at, of how many.
    sample: usize,
    experts: usize,
    isa: String,
    #[serde(flatten)]
    coding: CodingReport,
    interrupted: bool,
    notes: Vec<String>,
}

/// Measures, and tells what came out.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &ExpertsArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let path = model_path(args.model.as_deref())?;
    let mut settings = settings::resolve(values(args), None)?;
    settings::check_places(&settings)?;
    settings.warnings.extend(settings::idle_trunk(&settings));
    let isa = chosen_isa(&settings.isa)?;
    let roots = settings.root.as_ref().map(|roots| roots.value.0.clone());
    let checkpoint = Checkpoint::open(&CheckpointPaths {
        model_dir: path,
        roots: roots.unwrap_or_default(),
        config: args.config.clone(),
    })?;
    let file = output(args, &checkpoint, &settings)?;
    let report = measure(args, &checkpoint, isa, watch, &cancel)?;
    let report = ExpertsReport {
        notes: settings.warnings,
        ..report
    };
    let mismatches = report.coding.rates.as_ref().map_or(0, |r| r.mismatches);
    Finished {
        text: render(&report),
        passed: mismatches == 0,
        interrupted: report.interrupted,
        report: &report,
    }
    .hand_over(&args.result, None, file)
    .map(|exit| if mismatches > 0 { Exit::Failed } else { exit })
}

fn values(args: &ExpertsArgs) -> SettingValues {
    SettingValues {
        isa: args.isa,
        root: (!args.roots.is_empty()).then(|| PathList(args.roots.clone())),
        ..SettingValues::default()
    }
}

fn output(
    args: &ExpertsArgs,
    checkpoint: &Checkpoint,
    settings: &Settings,
) -> Result<Option<OutputFile>, CliError> {
    let Some(out) = &args.result.out else {
        return Ok(None);
    };
    let inputs = guard::Inputs::of_checkpoint(checkpoint, settings);
    let inputs = inputs.and("the configuration", args.config.clone());
    guard::check_one("--out", out, &inputs)?;
    OutputFile::create(out).map(Some)
}

fn measure(
    args: &ExpertsArgs,
    checkpoint: &Checkpoint,
    isa: Isa,
    watch: &Watch,
    cancel: &Cancel,
) -> Result<ExpertsReport, CliError> {
    // Checks that the experts have the form that the configuration says.
    checkpoint.bind(None)?;
    let mut stages = Stages::new(watch, args.result.quiet);
    let places = places(checkpoint);
    let sample = size(args.sample).min(places.len());
    let mut matrices = Vec::with_capacity(3 * sample);
    for index in 0..sample {
        if cancel.is_requested() {
            return Err(CliError::MeasuringInterrupted);
        }
        let (layer, expert) = places[index * places.len() / sample];
        read_expert(checkpoint, layer, expert, &mut matrices)?;
        #[allow(clippy::cast_precision_loss, reason = "at most some thousands")]
        stages.set("read", (index + 1) as f64 / sample as f64);
    }
    let request = CodingRequest {
        isa,
        rounds: size(args.rounds),
        pass_seconds: args.seconds,
        cancel,
    };
    let coding = measure_codings(&matrices, &request, &mut |share| stages.set("time", share))?;
    Ok(ExpertsReport {
        model: checkpoint.path().to_owned(),
        identity: checkpoint.identity().to_string(),
        sample,
        experts: places.len(),
        isa: isa.to_string(),
        interrupted: cancel.is_requested(),
        coding,
        notes: Vec::new(),
    })
}

/// Layer and id of every expert.
fn places(checkpoint: &Checkpoint) -> Vec<(usize, usize)> {
    let experts = checkpoint.index().experts();
    (0..experts.layer_count())
        .flat_map(|layer| (0..experts.experts_of_layer(layer)).map(move |id| (layer, id)))
        .collect()
}

fn read_expert(
    checkpoint: &Checkpoint,
    layer: usize,
    expert: usize,
    matrices: &mut Vec<ExpertMatrix>,
) -> Result<(), CliError> {
    let experts = checkpoint.index().experts();
    let place = experts.get(layer, expert).expect("counted above");
    let read = |tensor: TensorRef| -> Result<Vec<u8>, CliError> {
        let mut bytes = vec![0; size(tensor.bytes)];
        checkpoint.read_tensor(&tensor, &mut bytes)?;
        Ok(bytes)
    };
    let parts = [
        [ExpertPart::W1Packed, ExpertPart::W1Scale],
        [ExpertPart::W2Packed, ExpertPart::W2Scale],
        [ExpertPart::W3Packed, ExpertPart::W3Scale],
    ];
    for [packed, scales] in parts.map(|pair| pair.map(|part| place.part(part))) {
        let columns = 2 * size(packed.shape.as_slice()[1]);
        matrices.push(ExpertMatrix::new(read(packed)?, read(scales)?, columns));
    }
    Ok(())
}

fn render(report: &ExpertsReport) -> String {
    let coding = &report.coding;
    let mut text = table::facts(&[
        ("model", report.model.display().to_string()),
        (
            "sample",
            format!(
                "{} of {} experts, {}",
                report.sample,
                report.experts,
                short_bytes(coding.bytes)
            ),
        ),
        (
            "scales",
            format!(
                "{:.1} % of the bytes, {} different values",
                percent(coding.scale_bytes, coding.bytes),
                coding.scale_values
            ),
        ),
    ]);
    text.push_str("\nwhat a coding takes, and what of all expert bytes it saves\n");
    let rows = coding.codings.iter().map(|coding| {
        let method = if coding.is_bound { "at least" } else { "coded" };
        vec![
            part(coding.part).to_owned(),
            coding.method.to_owned(),
            method.to_owned(),
            format!("{:.3}", coding.bits),
            format!("{:.1} %", 100.0 * coding.saved_share),
        ]
    });
    let header = ["part", "method", "", "bits", "saved"];
    text.push_str(&table::named(&header, 3, rows));
    if let Some(rates) = &coding.rates {
        push_rates(&mut text, report, rates);
    }
    if report.interrupted {
        text.push_str("\ninterrupted: not every round was measured\n");
    }
    for note in &report.notes {
        text.push_str(&wrap(&format!("note: {}\n", escape::line(note))));
    }
    text
}

fn push_rates(text: &mut String, report: &ExpertsReport, rates: &Rates) {
    text.push_str("\nGB of experts, as stored now, for each CPU second of a core\n");
    let product = format!("multiply, one position, {}", report.isa);
    let row = |name: &str, rate: &Spread| {
        let figures = [rate.median, rate.q1, rate.q3];
        let figures = figures.map(|rate| format!("{:.2}", rate / GIGA));
        [&[name.to_owned()], &figures[..]].concat()
    };
    let rows = [
        row("decode the scales", &rates.scales),
        row("decode the values", &rates.values),
        row(&product, &rates.product),
    ];
    let header = ["", "median", "q1", "q3"];
    text.push_str(&table::named(&header, 1, rows.into_iter()));
    writeln!(
        text,
        "\n{CORES} cores that do nothing else, against a disk of {:.0} GB/s:",
        DISK_BYTES_PER_SECOND / GIGA
    )
    .expect(WRITE);
    for (what, rate) in [
        ("multiply", CORES * rates.product.median),
        ("decode scales and multiply", rates.together(CORES, false)),
        ("decode both and multiply", rates.together(CORES, true)),
    ] {
        let verdict = if rate >= DISK_BYTES_PER_SECOND {
            "keeps up"
        } else {
            "too slow"
        };
        writeln!(text, "  {what:<27} {:6.1} GB/s  {verdict}", rate / GIGA).expect(WRITE);
    }
    writeln!(text, "bytes or outputs that differed: {}", rates.mismatches).expect(WRITE);
}

fn part(part: Part) -> &'static str {
    match part {
        Part::Values => "values",
        Part::Scales => "scales",
        Part::Both => "both",
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share to read")]
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
