//! The arguments of `k3 demo`.

use clap::{Args, Subcommand};

use super::args::POSITIONS_MAX;
use super::{help, values};

/// What to do with the built-in model.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// What.
    #[command(subcommand)]
    pub what: DemoCommand,
}

/// What there is to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Run it in more and more memory and compare
    #[command(long_about = help::DEMO_LADDER_ABOUT, after_help = help::DEMO_LADDER_EXAMPLES)]
    Ladder(DemoLadderArgs),
    /// Unpack it and print its directory
    #[command(long_about = help::DEMO_PATH_ABOUT, after_help = help::DEMO_PATH_EXAMPLES)]
    Path,
}

/// A ladder of the built-in model.
#[derive(Debug, Args)]
pub(crate) struct DemoLadderArgs {
    /// Text to continue [default: the one that `k3` alone continues]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    /// Tokens to generate [default: 96]
    #[arg(short = 'n', long = "gen", value_name = "N", value_parser = values::count(1, POSITIONS_MAX),
        allow_negative_numbers = true)]
    pub gen_count: Option<u64>,

    /// Key of the random numbers [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}
