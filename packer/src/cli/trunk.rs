//! `k3-pack trunk`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use clap::Args;
use k3_config::Bytes;
use k3_formats::trunk::CodecChoice;
use k3_terminal::Progress;
use serde_json::json;

use super::{program, threads_or_default};
use crate::error::PackError;
use crate::interrupt;
use crate::trunk::{
    Hooks, RecordInterval, SourcePaths, TrunkError, TrunkPlan, TrunkSettings, TrunkSource,
    TrunkSummary, Verified, pack, verify,
};

pub(super) const LONG_ABOUT: &str = "\
Pack a checkpoint's trunk, losslessly, into fewer bytes.

The trunk is what every token reads: all weights but the routed experts. Its
blocks are written in the order in which a sweep reads them, each as bf16-x3
(about 0.70 of its bytes) or raw where that is no smaller, each with a checksum.
k3 --trunk OUT then reads these files instead of the shards, and computes the
same bytes.

With several OUT, on as many disks, blocks are dealt out so that all are read at
the same time; --stripe-weights 2,1 gives the first disk twice as much.

A run that is interrupted, killed or out of space keeps what it has written: the
same command goes on from there and makes the same files. Nothing opens as a
trunk before all of it is there.";

pub(super) const EXAMPLES: &str = "\
Examples:
  Pack, and compare the result with the checkpoint:
    k3-pack trunk /data/Kimi-K3 /fast/k3-trunk --verify-after

  Over two disks, the first twice as fast as the second:
    k3-pack trunk /data/Kimi-K3 /nvme0/k3 /nvme1/k3 --stripe-weights 2,1

  Check a trunk again later:
    k3-pack trunk /data/Kimi-K3 /fast/k3-trunk --verify";

/// Arguments of `trunk`.
#[derive(Debug, Clone, Args)]
pub struct TrunkArgs {
    /// Directory of the checkpoint
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Directories to write to, one for each stripe; made where not there
    #[arg(value_name = "OUT", required = true)]
    pub outs: Vec<PathBuf>,
    /// A further directory that holds shards, repeatable
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,
    /// Configuration to use instead of the checkpoint's own
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How blocks are stored: auto (what is smallest) or raw
    #[arg(long, value_name = "CODEC", default_value_t)]
    pub codec: CodecChoice,
    /// Parts of the trunk each OUT gets, as 2,1 [default: all the same]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = weight())]
    pub stripe_weights: Vec<u32>,
    /// Largest block, before packing [default: as k3 reads it]
    ///
    /// 4 MiB, or one part in 32 of a small trunk. k3 takes it from the trunk.
    #[arg(long, value_name = "SIZE", value_parser = positive_bytes)]
    pub block_bytes: Option<Bytes>,
    /// Most to be written again after a crash [default: 256 MB]
    ///
    /// What is written is made safe each time it comes to this, or 10 seconds
    /// have passed.
    #[arg(long, value_name = "SIZE", value_parser = positive_bytes)]
    pub record_bytes: Option<Bytes>,
    /// Threads that read, encode and write [default: the CPUs available]
    #[arg(long, value_name = "N", value_parser = super::synth::count(1, 1024))]
    pub threads: Option<u64>,
    /// Start anew: remove what an earlier packing left in OUT, finished or not
    #[arg(long)]
    pub restart: bool,
    /// Compare the trunk in OUT with the checkpoint instead of packing
    ///
    /// Every block is read, its checksum compared, decoded, and compared with
    /// the shards bit by bit. Exits with 1 if anything differs.
    #[arg(long, conflicts_with_all = ["codec", "stripe_weights", "block_bytes", "record_bytes", "restart", "verify_after"])]
    pub verify: bool,
    /// Compare as with --verify once the trunk is packed
    #[arg(long)]
    pub verify_after: bool,
    /// Print the result to standard output as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress bar, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

fn weight() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

fn positive_bytes(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("it must be at least one byte".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Packs the trunk, or compares it.
///
/// # Errors
///
/// What [`TrunkSource::open`], [`TrunkPlan::new`], [`pack`] and [`verify()`]
/// report, and a result that cannot be printed.
pub fn run(args: &TrunkArgs) -> Result<(), PackError> {
    static CANCEL: AtomicBool = AtomicBool::new(false);
    interrupt::install(&CANCEL)?;
    let paths = SourcePaths {
        model: args.model.clone(),
        roots: args.roots.clone(),
        config: args.config.clone(),
    };
    let source = TrunkSource::open(&paths, args.block_bytes.map(|bytes| bytes.0))?;
    let packed = match args.verify {
        true => None,
        false => Some(pack_trunk(args, &source, &CANCEL)?),
    };
    let verified = match args.verify || args.verify_after {
        true => Some(verify_trunk(args, source, &CANCEL)),
        false => None,
    };
    match verified {
        None => tell(args, packed.as_ref(), None),
        Some(Ok(verified)) => tell(args, packed.as_ref(), Some(&verified)),
        Some(Err(error)) => {
            if let Some(all) = differences(&error).filter(|_| args.json) {
                print(&json!({
                    "schema": 1, "packed": packed, "verified": null, "differences": all,
                }))?;
            }
            Err(error)
        }
    }
}

/// What differs, where that is what is wrong.
fn differences(error: &PackError) -> Option<&[String]> {
    match error {
        PackError::Trunk(TrunkError::Differs { all, .. }) => Some(all),
        _ => None,
    }
}

/// Prints a result for programs.
fn print(result: &serde_json::Value) -> Result<(), PackError> {
    let printed = writeln!(io::stdout(), "{result:#}").and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(PackError::writing(
            "standard output",
            "write the result",
        )(error)),
        _ => Ok(()),
    }
}

fn pack_trunk(
    args: &TrunkArgs,
    source: &TrunkSource,
    cancel: &AtomicBool,
) -> Result<TrunkSummary, PackError> {
    let mut record = RecordInterval::default();
    if let Some(bytes) = args.record_bytes {
        record.bytes = bytes.0;
    }
    let plan = TrunkPlan::new(
        source,
        &TrunkSettings {
            weights: args.stripe_weights.clone(),
            codec: args.codec,
            threads: threads_or_default(args.threads),
            restart: args.restart,
            record,
            ..TrunkSettings::new(args.outs.clone())
        },
    )?;
    let total = source.raw_bytes_of(0..source.block_count());
    let progress = OnceLock::<Progress>::new();
    pack(
        source,
        &plan,
        cancel,
        &Hooks {
            on_start: &|done| {
                progress.get_or_init(|| Progress::bytes_from("packing", total, done, args.quiet));
            },
            on_bytes: &|bytes| progress.get().into_iter().for_each(|bar| bar.add(bytes)),
            ..Hooks::NONE
        },
    )
}

fn verify_trunk(
    args: &TrunkArgs,
    source: TrunkSource,
    cancel: &AtomicBool,
) -> Result<Verified, PackError> {
    let total = source.raw_bytes_of(0..source.block_count());
    let progress = Progress::bytes("verifying", total, args.quiet);
    let threads = threads_or_default(args.threads);
    verify(source, &args.outs, threads, cancel, &|bytes| {
        progress.add(bytes);
    })
}

/// The result, to whoever reads it.
fn tell(
    args: &TrunkArgs,
    packed: Option<&TrunkSummary>,
    verified: Option<&Verified>,
) -> Result<(), PackError> {
    if args.json {
        return print(&json!({ "schema": 1, "packed": packed, "verified": verified }));
    }
    if !args.quiet {
        let packed = packed.map(ToString::to_string).unwrap_or_default();
        let verified = verified.map(ToString::to_string).unwrap_or_default();
        // The trunk is there, whether or not anybody can be told.
        program::say(&format!("{packed}{verified}"));
    }
    Ok(())
}
