//! `k3-pack manifest`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use k3_config::Bytes;
use k3_formats::manifest::{MANIFEST_NAME, hex};
use k3_terminal::Progress;

use super::program;
use super::synth::count;
use crate::error::PackError;
use crate::interrupt;
use crate::manifest::{ManifestJob, ManifestSummary, make};

pub(super) const LONG_ABOUT: &str = "\
Hash every byte of a checkpoint, for `k3 verify` and `k3 repair`.

One BLAKE3 hash for each shard's header, each expert, each other tensor and each
file beside the shards (*.json, *.model, *.jinja, *.py, *.txt). Reads the whole
checkpoint once, past the page cache, and writes MODEL/k3-manifest.bin, which
belongs to this checkpoint and no other. Make it when the checkpoint is known to
be right, as after `k3 fetch`: it tells later changes, not earlier ones.";

pub(super) const EXAMPLES: &str = "\
Examples:
  k3-pack manifest /disk1/k3
  k3-pack manifest /disk1/k3 --root /disk2/k3 --force
  k3-pack manifest /mnt/readonly/k3 --out k3.bin";

/// Arguments of `manifest`.
#[derive(Debug, Clone, Args)]
pub struct ManifestArgs {
    /// Checkpoint directory
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,
    /// Where to write it [default: MODEL/k3-manifest.bin]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace a manifest that is there
    #[arg(long)]
    pub force: bool,
    /// Threads that hash [default: the CPUs available, at most 16]
    #[arg(long, value_name = "N", value_parser = count(1, 256))]
    pub threads: Option<u64>,
    /// No progress bar, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// Hashes the checkpoint.
///
/// # Errors
///
/// What [`ManifestJob::new`] and [`make`] report.
pub fn run(args: &ManifestArgs) -> Result<(), PackError> {
    static CANCEL: AtomicBool = AtomicBool::new(false);
    interrupt::install(&CANCEL)?;
    let job = ManifestJob::new(&args.model, &args.roots)?;
    let identity = job.identity();
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| args.model.join(MANIFEST_NAME));
    let progress = Progress::bytes("hashing", job.total_bytes(), args.quiet);
    let threads = args.threads.and_then(|count| usize::try_from(count).ok());
    let add = |bytes| progress.add(bytes);
    let summary = make(job, &out, args.force, threads, &CANCEL, &add);
    drop(progress);
    let summary = summary?;
    if !args.quiet {
        let text = describe(&out.display().to_string(), &identity.to_string(), &summary);
        // The manifest is there, whether or not anybody can be told.
        program::say(&text);
    }
    Ok(())
}

/// What a person is told at the end.
fn describe(out: &str, identity: &str, summary: &ManifestSummary) -> String {
    let hashing = &summary.hashing;
    #[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
    let rate = hashing.hashed_bytes as f64 / hashing.seconds.max(1e-9) / 1e9;
    let mut text = format!(
        "{out}\n  identity  {identity}\n  root      {root}\n  \
         hashed    {bytes} in {seconds:.1} s: {rate:.2} GB/s\n  \
         ranges    {ranges} in {files} files, {size} of hashes and names\n",
        root = hex(&summary.root),
        bytes = Bytes(hashing.hashed_bytes),
        seconds = hashing.seconds,
        ranges = summary.range_count,
        files = summary.file_count,
        size = Bytes(summary.manifest_bytes),
    );
    for line in &hashing.fallbacks {
        text.push_str(&format!("  note: {line}\n"));
    }
    text
}
