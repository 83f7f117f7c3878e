//! What the commands do.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod detokenize;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod integrity;
pub(crate) mod ladder;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod presets;
pub(crate) mod replay;
pub(crate) mod running;
pub(crate) mod tokenize;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use k3_config::{PathList, SettingValues};

use crate::error::CliError;
use crate::settings;

/// Environment variable that names the checkpoint.
pub(crate) const MODEL_VARIABLE: &str = "K3_MODEL";
/// Commands whose name may be mistyped into MODEL.
const COMMAND_NAMES: [&str; 18] = [
    "batch",
    "plan",
    "demo",
    "doctor",
    "presets",
    "inspect",
    "fetch",
    "verify",
    "repair",
    "replay",
    "ladder",
    "bench",
    "tokenize",
    "detokenize",
    "compare",
    "completions",
    "man",
    "help",
];
/// Wrong letters up to which a name counts as mistyped.
const TYPOS_MAX: usize = 2;

/// The checkpoint directory: the argument, else `K3_MODEL`, which counts as
/// unset when empty, else that of the built-in model.
///
/// # Errors
///
/// What is given is no directory, or the built-in model cannot be unpacked.
pub(crate) fn model_path(argument: Option<&Path>) -> Result<PathBuf, CliError> {
    match named_model(argument) {
        Some(_) => named_model_path(argument),
        None => Ok(crate::demo::model_dir()?),
    }
}

/// As [`model_path`] where the built-in model will not do.
///
/// # Errors
///
/// Neither is given, or what is given is no directory.
pub(crate) fn named_model_path(argument: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = named_path(argument)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(CliError::IsAFile {
            path,
            named: variable(argument),
        })
    }
}

/// The same where a file will do.
///
/// # Errors
///
/// Neither is given, or what is given is not there.
pub(crate) fn named_path(argument: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = named_model(argument).ok_or(CliError::NoModel)?;
    if path.exists() {
        return Ok(path);
    }
    let similar_command = path.to_str().and_then(similar_command);
    Err(CliError::NotADirectory {
        path,
        named: variable(argument),
        similar_command,
    })
}

/// The folders beside MODEL: those given, else those of the variable or the
/// settings file.
///
/// # Errors
///
/// Settings that cannot be used, and folders that are not there.
pub(crate) fn roots(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let flags = SettingValues {
        root: (!given.is_empty()).then(|| PathList(given.to_vec())),
        ..SettingValues::default()
    };
    let settings = settings::resolve(flags, None)?;
    settings::check_roots(&settings)?;
    Ok(settings.root.map_or_else(Vec::new, |roots| roots.value.0))
}

/// The variable that names MODEL where no argument does.
pub(crate) fn variable(argument: Option<&Path>) -> Option<&'static str> {
    argument.is_none().then_some(MODEL_VARIABLE)
}

/// What is given as MODEL, whatever it is.
pub(crate) fn named_model(argument: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(MODEL_VARIABLE).filter(|value| !value.is_empty());
    argument
        .map(Path::to_owned)
        .or_else(|| variable().map(PathBuf::from))
}

/// Why reading `path`, which is no directory and was given as `argument` or by
/// the variable, would measure no disk; `None` if it would.
pub(crate) fn not_measured(path: &Path, argument: Option<&Path>) -> Option<CliError> {
    let named = variable(argument);
    let Ok(metadata) = path.metadata() else {
        return Some(CliError::NotADirectory {
            path: path.to_owned(),
            named,
            similar_command: None,
        });
    };
    let file = metadata.file_type();
    let kind = if file.is_char_device() {
        "a character device"
    } else if file.is_block_device() {
        "a block device, not a file on one"
    } else if file.is_fifo() {
        "a pipe"
    } else if file.is_socket() {
        "a socket"
    } else if metadata.len() == 0 {
        "an empty file"
    } else {
        return None;
    };
    Some(CliError::NotMeasured {
        path: path.to_owned(),
        kind,
        named,
    })
}

fn similar_command(name: &str) -> Option<&'static str> {
    COMMAND_NAMES
        .into_iter()
        .find(|command| edit_distance(name, command) <= TYPOS_MAX)
}

/// Letters to insert, remove or replace to turn one word into the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (done, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (index, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_commands_are_recognised() {
        assert_eq!(similar_command("tokenzie"), Some("tokenize"));
        assert_eq!(similar_command("detokenise"), Some("detokenize"));
        assert_eq!(similar_command("compar"), Some("compare"));
        assert_eq!(similar_command("k3-weights"), None);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn every_command_is_in_the_list() {
        let command = crate::cli::command();
        let names = command.get_subcommands().map(clap::Command::get_name);
        for name in names {
            assert!(COMMAND_NAMES.contains(&name), "{name}");
        }
    }
}
