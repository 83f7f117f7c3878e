//! The command line: what is accepted, and what each command does with it.

pub mod synth;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  k3-pack synth /data/k3synth --layers 8 --experts 32
  k3-pack synth /data/k3shape --sparse

Exit codes:
  0    done
  1    the run failed
  2    refused: usage, configuration, or not enough free space
  3    the output cannot be written
  130  interrupted, nothing kept";

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
