//! The built-in model as the default MODEL.
//!
//! A run without MODEL and `K3_MODEL` is a run of the demo model: it is unpacked
//! into the user's cache, and what the command line leaves open is filled in
//! here, before anything else looks at it. The report names the directory and
//! says that it is the built-in model.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use k3_config::SETTING_KEYS;
use k3_demo::DemoError;
use k3_pack::PackError;
use tempfile::TempDir;

use crate::cli::args::{GenerateArgs, GenerationArgs, PromptArgs, SamplingArgs};
use crate::commands::named_model;
use crate::error::CliError;
use crate::exit::Exit;
use crate::settings::variable;

/// What is continued when nothing is given.
pub(crate) const PROMPT: &str = "Fellow citizens of the Senate";
/// Tokens that are then generated.
pub(crate) const GEN_COUNT: u64 = 96;
/// How they are chosen: greedy text of a small model goes in circles.
pub(crate) const TEMPERATURE: f32 = 0.8;
/// The same.
pub(crate) const TOP_P: f64 = 0.95;

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
    /// Neither below the cache nor where temporary files go can a directory be made.
    #[error("{}: no place for a packed trunk, which goes afterwards", path.display())]
    Scratch {
        /// The directory that was tried last.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
            Self::Unpack(_) => Some(
                "free some space there, set K3_CACHE_DIR to another directory, or name a \
                 checkpoint as MODEL",
            ),
            Self::Scratch { .. } => {
                Some("set K3_CACHE_DIR or TMPDIR to a directory that can be written")
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
    Ok(k3_demo::unpack(&cache_dir()?)?)
}

/// A directory that goes when it is dropped: below `cache`, or below `temporary` where
/// nothing can be written there, and then a sentence that says so.
///
/// # Errors
///
/// [`BuiltInError::Scratch`]: neither can be written.
pub(crate) fn scratch(
    cache: &Path,
    temporary: &Path,
) -> Result<(TempDir, Option<String>), BuiltInError> {
    let refused = match tempfile::tempdir_in(cache) {
        Ok(directory) => return Ok((directory, None)),
        Err(error) => error,
    };
    let directory = tempfile::tempdir_in(temporary).map_err(|source| BuiltInError::Scratch {
        path: temporary.to_owned(),
        source,
    })?;
    let note = format!(
        "{}: cannot be written ({}), so the packed trunk is made in {} and goes afterwards",
        cache.display(),
        refused.kind(),
        temporary.display()
    );
    Ok((directory, Some(note)))
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
        args.model.model = Some(model_dir()?);
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
    let steps = [
        ("k3 demo ladder", "the same text in more and more memory"),
        (
            "k3 --prompt 'It was'",
            "another beginning; --seed 2, another end",
        ),
        ("k3 plan", "what a run reserves and reads, before it does"),
        ("k3 doctor", "what this machine can do"),
        (
            "k3 fetch --help",
            "Kimi K3 itself, 1.56 TB; then k3 DIRECTORY",
        ),
    ];
    let mut text = String::from("next\n");
    for (command, what) in steps {
        writeln!(text, "  {command:<22} {what}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_cache_cannot_be_written_a_temporary_directory_serves_and_is_told() {
        let place = tempfile::tempdir().unwrap();
        let (kept, note) = scratch(place.path(), Path::new("/nowhere")).unwrap();
        assert!(kept.path().starts_with(place.path()) && note.is_none());
        // What is no directory cannot be written even by root.
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let (kept, note) = scratch(&file, temporary.path()).unwrap();
        assert!(kept.path().starts_with(temporary.path()));
        let note = note.unwrap();
        for path in [&file, temporary.path()] {
            assert!(note.contains(&path.display().to_string()), "{note}");
        }
        let error = scratch(&file, &file).unwrap_err();
        assert!(error.way_out().unwrap().contains("TMPDIR"), "{error}");
        assert!(error.to_string().contains(&file.display().to_string()));
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
