//! The command line: what is accepted, and what each command does with it.

pub mod manifest;
mod program;
pub mod synth;
pub mod trunk;

use std::num::NonZeroUsize;

use clap::{Parser, Subcommand};

pub use program::main;

const EXAMPLES: &str = "\
Examples:
  k3-pack synth /data/k3synth --layers 8 --experts 32
  k3-pack synth /data/k3shape --sparse
  k3-pack trunk /data/Kimi-K3 /fast/k3-trunk
  k3-pack manifest /data/k3

Exit codes:
  0    done
  1    the run failed, or a trunk differs from its checkpoint
  2    refused: usage, configuration, or not enough free space
  3    the output cannot be written
  130  interrupted: of a checkpoint nothing is kept, a trunk can be gone on with";

/// Makes and rewrites checkpoints, offline
#[derive(Debug, Parser)]
#[command(
    name = "k3-pack",
    version,
    max_term_width = 80,
    about,
    after_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a synthetic Kimi K3 checkpoint
    #[command(
        max_term_width = 80,
        long_about = synth::LONG_ABOUT,
        after_help = synth::EXAMPLES
    )]
    Synth(synth::SynthArgs),
    /// Pack a checkpoint's trunk into fewer bytes
    #[command(
        max_term_width = 80,
        long_about = trunk::LONG_ABOUT,
        after_help = trunk::EXAMPLES
    )]
    Trunk(trunk::TrunkArgs),
    /// Hash every byte of a checkpoint, to verify and repair it later
    #[command(
        max_term_width = 80,
        long_about = manifest::LONG_ABOUT,
        after_help = manifest::EXAMPLES
    )]
    Manifest(manifest::ManifestArgs),
}

/// Threads a machine is used with unless told otherwise.
const THREADS_MAX: usize = 64;

/// As many threads as were asked for, else one for each processor.
fn threads_or_default(asked: Option<u64>) -> NonZeroUsize {
    let asked = asked.and_then(|count| usize::try_from(count).ok());
    let most = NonZeroUsize::new(THREADS_MAX).unwrap_or(NonZeroUsize::MIN);
    asked.and_then(NonZeroUsize::new).unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(NonZeroUsize::MIN, |count| count.min(most))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent_and_explained() {
        let command = super::Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments() {
                assert!(arg.get_help().is_some(), "{} has no help", arg.get_id());
            }
        }
    }
}
