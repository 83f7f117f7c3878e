//! `k3-pack synth`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use k3_config::Bytes;
use k3_formats::KimiK3Config;
use k3_formats::config::limits;
use k3_formats::synth::{Resizing, Vision, released_config};
use k3_io::read_small;
use k3_terminal::Progress;

use super::{program, threads_or_default};
use crate::error::PackError;
use crate::interrupt;
use crate::synth::{Content, RESERVE_BYTES, SynthPlan, SynthSettings, SynthSummary, write};

pub(super) const LONG_ABOUT: &str = "\
Write a synthetic Kimi K3 checkpoint in the released layout.

Names, types, shapes and shards are those of the released model: one layer per
shard, experts out of order, data at odd offsets. Values come from a seed:
normal matrices with log-normal row scales, experts with the statistics of
released ones. The same command gives the same bytes on any machine. The model
computes, but knows nothing; there is no vocabulary, so give k3 --ids.";

pub(super) const EXAMPLES: &str = "\
Examples:
  8 layers of 32 experts at the released sizes, 19 GB:
    k3-pack synth /data/k3synth --layers 8 --experts 32

  All 497,220 tensors of the released model, 1.56 TB as files with holes
  that take a few hundred megabytes:
    k3-pack synth /data/k3shape --sparse

  The sizes of another configuration:
    k3-pack synth /tmp/small --config fixtures/tiny/config.json --seed 7";

/// Arguments of `synth`.
#[derive(Debug, Clone, Args)]
pub struct SynthArgs {
    /// Directory to make; it appears when everything is written
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Decoder layers [default: the configuration's]
    ///
    /// Full attention sits at every fourth layer and the last, as released.
    #[arg(long, value_name = "N", value_parser = count(2, limits::LAYERS_MAX))]
    pub layers: Option<u64>,
    /// Routed experts of a layer [default: the configuration's]
    ///
    /// Fewer than a position picks lowers the picks.
    #[arg(long, value_name = "N", value_parser = count(1, limits::EXPERTS_MAX))]
    pub experts: Option<u64>,
    /// Configuration to take all sizes from [default: the released one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What the values follow from
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Write small tensors only and leave holes, which read as zeros
    ///
    /// Norms, biases, convolution taps and decay rates are written. The vision
    /// tower is part of it, unless --no-vision is given.
    #[arg(long)]
    pub sparse: bool,
    /// Include the vision tower and its projector
    #[arg(long, overrides_with = "no_vision")]
    pub vision: bool,
    /// Leave the vision tower out; the default without --sparse
    #[arg(long, overrides_with = "vision")]
    pub no_vision: bool,
    /// Replace OUT if it is a checkpoint, and what a killed run left
    #[arg(long)]
    pub force: bool,
    /// Threads that generate and write [default: the CPUs available]
    #[arg(long, value_name = "N", value_parser = count(1, 1024))]
    pub threads: Option<u64>,
    /// No progress bar, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

pub(super) fn count(least: u64, most: usize) -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(least..=most as u64)
}

/// Writes the checkpoint.
///
/// # Errors
///
/// What [`SynthPlan::new`] and [`write()`] report, and a configuration that
/// cannot be read.
pub fn run(args: &SynthArgs) -> Result<(), PackError> {
    static CANCEL: AtomicBool = AtomicBool::new(false);
    interrupt::install(&CANCEL)?;
    let plan = SynthPlan::new(&settings(args)?)?;
    let progress = Progress::bytes("writing", plan.written_bytes(), args.quiet);
    let summary = write(&plan, &CANCEL, &|bytes| progress.add(bytes));
    drop(progress);
    let summary = summary?;
    if !args.quiet {
        // The checkpoint is there, whether or not anybody can be told.
        program::say(&describe(&plan, &summary));
    }
    Ok(())
}

fn settings(args: &SynthArgs) -> Result<SynthSettings, PackError> {
    let base = match &args.config {
        None => released_config(),
        Some(path) => read_config(path)?,
    };
    let size = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok());
    let resizing = Resizing {
        layer_count: size(args.layers),
        expert_count: size(args.experts),
    };
    let (content, vision) = match (args.sparse, args.vision, args.no_vision) {
        (true, _, false) => (Content::VectorsOnly, Vision::Included),
        (true, _, true) => (Content::VectorsOnly, Vision::Left),
        (false, true, _) => (Content::Everything, Vision::Included),
        (false, false, _) => (Content::Everything, Vision::Left),
    };
    Ok(SynthSettings {
        out: args.out.clone(),
        config: resizing.apply(&base)?,
        vision,
        seed: args.seed,
        content,
        replace: args.force,
        threads: threads_or_default(args.threads),
        reserve_bytes: RESERVE_BYTES,
    })
}

fn read_config(path: &Path) -> Result<KimiK3Config, PackError> {
    let bytes = read_small(path, k3_formats::config::MAX_CONFIG_BYTES)?;
    Ok(KimiK3Config::parse(path, &bytes)?)
}

/// What a person is told at the end.
fn describe(plan: &SynthPlan, summary: &SynthSummary) -> String {
    let config = &plan.settings().config;
    let rate = |bytes: u64, seconds: f64| bytes as f64 / seconds.max(1e-9) / 1e9;
    format!(
        "{out}\n  model    {layers} layers, {experts} experts a layer, {picks} picked\n  \
         tensors  {tensors} in {shards} shards, {bytes}\n  \
         on disk  {disk}\n  \
         written  {written} in {seconds:.1} s: {rate:.2} GB/s ({how}, {threads} threads)\n  \
         made     at {made:.2} GB/s per core\n",
        out = plan.settings().out.display(),
        layers = config.num_hidden_layers,
        experts = config.num_experts,
        picks = config.num_experts_per_token,
        tensors = plan.tensor_count(),
        shards = plan.shard_count(),
        bytes = Bytes(plan.tensor_bytes()),
        disk = Bytes(summary.disk_bytes),
        written = Bytes(summary.written_bytes),
        seconds = summary.seconds,
        rate = rate(summary.written_bytes, summary.seconds),
        how = if summary.direct {
            "direct"
        } else {
            "through the page cache"
        },
        threads = plan.settings().threads,
        made = rate(summary.written_bytes, summary.generating_seconds),
    )
}
