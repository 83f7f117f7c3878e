//! The built-in model as the default MODEL.
//!
//! A run without MODEL and `K3_MODEL` is a run of the demo model: it is unpacked
//! into the user's cache, and what the command line leaves open is filled in
//! here, before anything else looks at it. The report names the directory and
//! says that it is the built-in model.

mod scratch;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use k3_config::SETTING_KEYS;
use k3_demo::DemoError;
use k3_pack::PackError;
use k3_terminal::COLUMNS;

use crate::cli::args::{GenerateArgs, GenerationArgs, PromptArgs, SamplingArgs};
use crate::commands::named_model;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render;
use crate::settings::variable;
use crate::typed;
pub(crate) use scratch::Scratch;

/// What is continued when nothing is given.
pub(crate) const PROMPT: &str = "Fellow citizens of the Senate";
/// Tokens that are then generated.
pub(crate) const GEN_COUNT: u64 = 96;
/// How they are chosen: greedy text of a small model goes in circles.
pub(crate) const TEMPERATURE: f32 = 0.8;
/// The same.
pub(crate) const TOP_P: f64 = 0.95;

const WRITE: &str = "writing to a string cannot fail";
/// Columns of what is to be typed next, and before it.
const NEXT_COLUMNS: usize = 22;
const NEXT_INDENT: usize = 2;

/// Why the built-in model cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuiltInError {
    /// No place for what can be made again.
    #[error(
        "no place for the built-in model: none of K3_CACHE_DIR, XDG_CACHE_HOME and HOME is set"
    )]
    NoCache,
    /// It cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] DemoError),
    /// Neither below the cache nor where temporary files go is there a place.
    #[error(
        "{}: no place for a packed trunk, which goes afterwards: it {unfit}; {cache}",
        path.display()
    )]
    Scratch {
        /// Where temporary files go.
        path: PathBuf,
        /// What is against it.
        unfit: String,
        /// The cache, and what is against that.
        cache: String,
    },
    /// Its trunk cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl BuiltInError {
    /// What the user can do, where the message does not say so itself.
    pub(crate) fn way_out(&self) -> Option<&'static str> {
        match self {
            Self::NoCache => Some("set K3_CACHE_DIR to a directory, or name a checkpoint as MODEL"),
            Self::Unpack(error) => Some(unpack_way_out(error.io_kind())),
            Self::Scratch { .. } => {
                Some("set K3_CACHE_DIR or TMPDIR to a directory that can be written and has room")
            }
            Self::Pack(_) => None,
        }
    }

    /// The exit code that goes with it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoCache => Exit::Refused,
            Self::Unpack(_) | Self::Scratch { .. } => Exit::NotWritable,
            Self::Pack(_) => Exit::Failed,
        }
    }
}

/// What helps where the model could not be unpacked for `kind`.
fn unpack_way_out(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind;
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space there, set K3_CACHE_DIR to another directory, or name a checkpoint \
             as MODEL"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "that file system is read-only: set K3_CACHE_DIR to a directory on another one, or \
             name a checkpoint as MODEL"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file is where a directory should be: set K3_CACHE_DIR to a directory, or name a \
             checkpoint as MODEL"
        }
        ErrorKind::PermissionDenied => {
            "you may not write there: set K3_CACHE_DIR to a directory of your own, or name a \
             checkpoint as MODEL"
        }
        _ => "set K3_CACHE_DIR to another directory, or name a checkpoint as MODEL",
    }
}

/// Where what can be made again is kept: `K3_CACHE_DIR`, else the user's cache as
/// the XDG base directory specification has it.
///
/// # Errors
///
/// No variable says where that is.
pub(crate) fn cache_dir() -> Result<PathBuf, BuiltInError> {
    if let Some(own) = variable("K3_CACHE_DIR") {
        return Ok(own.into());
    }
    let base = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(variable("HOME")?).join(".cache"));
    let base = base.or_else(home).ok_or(BuiltInError::NoCache)?;
    Ok(base.join("k3"))
}

/// The checkpoint's directory, with everything in it.
///
/// # Errors
///
/// No place for it, or one that cannot be written.
pub(crate) fn model_dir() -> Result<PathBuf, BuiltInError> {
    model_dir_of(false)
}

/// The same; a run that is `quiet` waits in silence while another one unpacks.
///
/// # Errors
///
/// As [`model_dir`].
pub(crate) fn model_dir_of(quiet: bool) -> Result<PathBuf, BuiltInError> {
    let cache = cache_dir()?;
    let on_wait = || {
        let place = cache.display();
        let note = format!("{place}: another program unpacks the built-in model; waiting for it");
        if !quiet {
            render::report::print_note(&note);
        }
    };
    Ok(k3_demo::unpack_telling(&cache, on_wait)?)
}

/// A message of `k3 demo`, which has no options for settings, with the variables that it
/// heeds in their place.
pub(crate) fn spelled_as_variables(text: &str) -> String {
    let mut spelled = text.to_owned();
    // The longer names first: some begin with others.
    let mut keys: Vec<_> = SETTING_KEYS.iter().collect();
    keys.sort_by_key(|key| std::cmp::Reverse(key.name().len()));
    for key in keys {
        spelled = spelled.replace(&key.flag(), &key.variable());
    }
    spelled
}

/// Whether `model` is where the built-in model lies.
pub(crate) fn is_demo(model: &Path) -> bool {
    cache_dir().is_ok_and(|cache| model == cache.join(k3_demo::directory_name()))
}

/// `args` as a run takes them: without any MODEL that of the demo, and with it
/// what was left open.
///
/// # Errors
///
/// As [`model_dir`].
pub(crate) fn with_defaults(args: &GenerateArgs) -> Result<GenerateArgs, CliError> {
    let mut args = args.clone();
    if named_model(args.model.model.as_deref()).is_none() {
        args.model.model = Some(model_dir_of(args.output.quiet)?);
        let given = args.prompt.clone();
        fill(&mut args.prompt, &mut args.generation);
        if args.answer.load_state.is_some() {
            // A conversation goes on with what was said, or without a word.
            args.prompt = given;
        }
    }
    Ok(args)
}

/// A prompt where there is none, and the demo's way of choosing tokens where no
/// option says anything about it.
pub(crate) fn fill(prompt: &mut PromptArgs, generation: &mut GenerationArgs) {
    if is_open(prompt) {
        prompt.prompt = Some(PROMPT.to_owned());
    }
    if generation.tf_check {
        return;
    }
    generation.gen_count.get_or_insert(GEN_COUNT);
    let SamplingArgs {
        temperature,
        top_k,
        top_p,
        min_p,
        ..
    } = &mut generation.sampling;
    if temperature.is_none() && top_k.is_none() && top_p.is_none() && min_p.is_none() {
        *temperature = Some(TEMPERATURE);
        *top_p = Some(TOP_P);
    }
}

/// Whether nothing was said about what to run and what to continue.
pub(crate) fn is_first_run(given: &GenerateArgs) -> bool {
    let is_new = given.answer.load_state.is_none();
    named_model(given.model.model.as_deref()).is_none() && is_open(&given.prompt) && is_new
}

fn is_open(prompt: &PromptArgs) -> bool {
    let PromptArgs {
        prompt,
        prompt_file,
        ids,
        ids_file,
    } = prompt;
    prompt.is_none() && prompt_file.is_none() && ids.is_none() && ids_file.is_none()
}

/// What to do after a first run.
pub(crate) fn next_steps() -> String {
    next_steps_of(&typed::this_program())
}

/// The same, for a program that is started by typing `k3`.
fn next_steps_of(k3: &str) -> String {
    let steps = [
        ("demo ladder", "the same text in more and more memory"),
        (
            "--prompt 'It was'",
            "another beginning; --seed 2, another end",
        ),
        ("plan", "what a run reserves and reads, before it does"),
        ("doctor", "what this machine can do"),
        ("fetch --help", "Kimi K3 itself, 1.56 TB; then k3 DIRECTORY"),
    ];
    let commands = steps.map(|(arguments, _)| format!("{k3} {arguments}"));
    let width = commands.iter().map(|one| columns(one)).max().unwrap_or(0);
    let width = width.max(NEXT_COLUMNS);
    let is_beside = |what: &str| NEXT_INDENT + width + 1 + what.len() <= COLUMNS;
    let is_beside = steps.iter().all(|(_, what)| is_beside(what));
    let mut text = String::from("next\n");
    for (command, (_, what)) in commands.iter().zip(steps) {
        if is_beside {
            let gap = " ".repeat(width - columns(command));
            writeln!(text, "  {command}{gap} {what}").expect(WRITE);
        } else {
            writeln!(text, "  {command}\n      {what}").expect(WRITE);
        }
    }
    text
}

/// Columns of a command, whose letters take one each but for rare ones.
fn columns(command: &str) -> usize {
    command.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_next_fits_however_the_program_is_called() {
        for k3 in [
            "k3",
            "target/release/k3",
            "'/a long way/to/target/release/k3'",
        ] {
            let text = next_steps_of(k3);
            assert!(text.contains(&format!("  {k3} demo ladder")), "{text}");
            assert!(text.lines().all(|line| columns(line) <= COLUMNS), "{text}");
        }
        assert!(next_steps_of("k3").contains("\n  k3 demo ladder         the same"));
    }

    #[test]
    fn space_is_to_be_freed_only_where_there_is_none() {
        for (kind, word) in [
            (io::ErrorKind::StorageFull, "free some space"),
            (io::ErrorKind::QuotaExceeded, "free some space"),
            (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
            (io::ErrorKind::NotADirectory, "a file is where"),
            (io::ErrorKind::PermissionDenied, "may not write"),
            (io::ErrorKind::Other, "another directory"),
        ] {
            let said = unpack_way_out(kind);
            assert!(
                said.contains(word) && said.contains("K3_CACHE_DIR"),
                "{said}"
            );
            assert_eq!(said.contains("space"), word.contains("space"), "{said}");
        }
    }

    #[test]
    fn options_become_the_variables_that_are_heeded() {
        let text = "raise --context to 5007, --trunk-gb or --trunk, or lower --gen";
        assert_eq!(
            spelled_as_variables(text),
            "raise K3_CONTEXT to 5007, K3_TRUNK_GB or K3_TRUNK, or lower --gen"
        );
    }
}
