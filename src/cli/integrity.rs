//! The arguments of `fetch`, `verify` and `repair`.

use std::path::PathBuf;

use clap::Args;
use k3_integrity::Pattern;
use k3_integrity::check::SampleAmount;

use super::values;

pub(super) const FETCH_ABOUT: &str = "\
Download a snapshot from the model hub.

The revision is resolved to a commit first, and every file is compared with the
hash that the hub publishes for that commit before it gets its name. Ctrl-C, a
broken connection or a crash lose nothing: the same command goes on where the
last one ended. Free space is compared with the need before anything is fetched.
k3-fetch.json in DIR tells afterwards what came from where.";

pub(super) const FETCH_EXAMPLES: &str = "\
Examples:
  All of Kimi K3, 1.56 TB:
    k3 fetch /disk1/k3

  Everything but the weights; then some shards of another repository:
    k3 fetch /disk1/k3 --exclude '*.safetensors'
    k3 fetch OWNER/NAME /disk1/other --include 'model-0000[1-3]*'

  A fixed commit, over more connections:
    k3 fetch /disk1/k3 --revision 0123abc… --parallel 16

Environment:
  HF_ENDPOINT  address of the hub [default: https://huggingface.co]
  HF_TOKEN     token for repositories that ask for one; it is sent to the hub
               and to no other server, and written nowhere
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY  as usual";

pub(super) const VERIFY_ABOUT: &str = "\
Compare a checkpoint's bytes with what they should be.

The hashes are those of MODEL/k3-manifest.bin (see `k3-pack manifest`), which
has one for every expert and tensor; where there is no manifest, those of whole
files that `k3 fetch` recorded. Every bad range is named: file, offset, length,
tensor or expert. Exits with 0 when everything looked at is right, with 1 when
something is not.";

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  k3 verify /disk1/k3
  k3 verify /disk1/k3 --root /disk2/k3 --sample 5%
  k3 verify /disk1/k3 --layer 17
  k3 verify /disk1/k3 --json > bad.json; k3 repair /disk1/k3 --bad bad.json";

pub(super) const REPAIR_ABOUT: &str = "\
Fetch the bad ranges of a checkpoint again, and nothing else.

Each range is fetched aside, compared with the manifest, written over the bad
bytes and read back. A range that is good is never written. Without --bad the
whole checkpoint is verified first. A manifest of another checkpoint is refused.
Exits with 1 when something bad is left.";

pub(super) const REPAIR_EXAMPLES: &str = "\
Examples:
  Where the checkpoint was fetched from, as k3-fetch.json tells:
    k3 repair /disk1/k3

  Of a known list, from another machine that serves the same files:
    k3 verify /disk1/k3 --json > bad.json
    k3 repair /disk1/k3 --bad bad.json --from http://192.168.1.5:8000/k3

  Only tell what would be fetched:
    k3 repair /disk1/k3 --bad bad.json --dry-run

Environment: HF_ENDPOINT and HF_TOKEN, as for `k3 fetch`.";

/// A download.
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Repository of the hub, OWNER/NAME [default: moonshotai/Kimi-K3]
    #[arg(value_name = "REPO")]
    pub repo: Option<String>,

    /// Directory to fetch into; made if it is not there
    #[arg(value_name = "DIR", required = true)]
    pub directory: PathBuf,

    /// Branch, tag or commit [default: main]
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,

    /// Only files whose path matches (repeatable)
    ///
    /// As in a shell: * stands for anything, ? for one character, [1-3] for one
    /// of those.
    #[arg(long = "include", value_name = "PATTERN")]
    pub include: Vec<Pattern>,

    /// No files whose path matches (repeatable)
    #[arg(long = "exclude", value_name = "PATTERN")]
    pub exclude: Vec<Pattern>,

    /// Connections at once [default: 8]
    #[arg(long, value_name = "N", value_parser = values::count(1, 64), allow_negative_numbers = true)]
    pub parallel: Option<u64>,

    /// Hash files again that are recorded as complete
    #[arg(long)]
    pub recheck: bool,

    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// A check.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// The manifest [default: MODEL/k3-manifest.bin]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,

    /// Look at some of it: a share as in 5%, or a number of ranges
    #[arg(
        long,
        value_name = "AMOUNT",
        conflicts_with = "layer",
        allow_negative_numbers = true
    )]
    pub sample: Option<SampleAmount>,

    /// What a sample is drawn from [default: the clock]
    #[arg(
        long,
        value_name = "N",
        requires = "sample",
        allow_negative_numbers = true
    )]
    pub seed: Option<u64>,

    /// Look at one layer, counted from 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16), allow_negative_numbers = true)]
    pub layer: Option<u16>,

    /// Threads that hash [default: the CPUs available, at most 16]
    #[arg(long, value_name = "N", value_parser = values::count(1, 256), allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Print the findings as JSON, which `k3 repair --bad` takes
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// A repair.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// The manifest [default: MODEL/k3-manifest.bin]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,

    /// Address under which the files lie [default: as fetched]
    ///
    /// The name of a file is put after it. The server must answer requests for
    /// parts of files.
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,

    /// What `k3 verify --json` printed; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub bad: Option<PathBuf>,

    /// Only tell what would be fetched
    #[arg(long)]
    pub dry_run: bool,

    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}
