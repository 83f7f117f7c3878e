//! Settings: the file, the environment and the command line, in layers.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use k3_config::{
    AttentionChoice, ConfigError, PathList, SETTING_KEYS, SettingSources, SettingValues, Settings,
    SettingsFile, Sourced,
};

use crate::cli;
use crate::error::CliError;
use crate::inputs::InputKind;

/// Environment variable that names the settings file.
const SETTINGS_VARIABLE: &str = "K3_SETTINGS";
/// Variables that are read and are no settings.
const READ_VARIABLES: [&str; 2] = [crate::commands::MODEL_VARIABLE, SETTINGS_VARIABLE];
/// The settings file within the user's configuration directory.
const USER_FILE: &str = "k3/settings.toml";

/// The settings in force: `flags` over the environment over the settings file,
/// which is `named`, else what `K3_SETTINGS` names, else the user's own, which
/// need not exist.
///
/// # Errors
///
/// A file that cannot be read, and every value that cannot be used.
pub(crate) fn resolve(flags: SettingValues, named: Option<&Path>) -> Result<Settings, CliError> {
    let found = named_file(named);
    let path = found.as_ref().map(|(path, _)| path.as_path());
    let text = found
        .as_ref()
        .map(|(path, by)| read(path, by))
        .transpose()?;
    let file = path.zip(text.as_deref());
    let mut settings = Settings::resolve(SettingSources {
        file: file.map(|(path, text)| SettingsFile { path, text }),
        environment: std::env::vars_os().collect(),
        flags,
    })
    .map_err(ConfigError::from)?;
    note_options(&mut settings.warnings);
    Ok(settings)
}

/// Adds a sentence for each variable that is called like an option which no
/// variable stands for.
fn note_options(warnings: &mut Vec<String>) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let settings: Vec<String> = SETTING_KEYS.iter().map(|key| key.variable()).collect();
    let mut idle: Vec<(String, String)> = names
        .filter(|name| !READ_VARIABLES.contains(&name.as_str()) && !settings.contains(name))
        .filter_map(|name| {
            let option = name.strip_prefix("K3_")?;
            Some((option.to_ascii_lowercase().replace('_', "-"), name))
        })
        .collect();
    if idle.is_empty() {
        return;
    }
    let command = cli::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let arguments = commands.flat_map(clap::Command::get_arguments);
    let options: Vec<&str> = arguments.filter_map(clap::Arg::get_long).collect();
    idle.retain(|(option, _)| options.contains(&option.as_str()));
    idle.sort_unstable();
    for (option, name) in idle {
        // Nothing is guessed about what is known.
        let guess = format!("{name} is not a setting");
        warnings.retain(|warning| !warning.starts_with(&guess));
        warnings.push(format!(
            "{guess} and not read: --{option} is an option only"
        ));
    }
}

/// Checks that the directories and the vocabulary that settings name are there.
///
/// # Errors
///
/// The first that is not, with what names it.
pub(crate) fn check_places(settings: &Settings) -> Result<(), CliError> {
    check_roots(settings)?;
    check_directories("trunk", settings.trunk.as_ref())?;
    if let Some(spill) = &settings.spill {
        let named = spill.origin.spelled("spill");
        if settings.attention.value == AttentionChoice::Expanded {
            let attention = settings.attention.origin.spelled("attention");
            return Err(CliError::SpillExpanded { named, attention });
        }
        if !spill.value.is_dir() {
            return Err(bad_path(&spill.value, "no such directory", named));
        }
    }
    match &settings.tokenizer {
        Some(place) if !place.value.exists() => {
            let named = place.origin.spelled("tokenizer");
            Err(bad_path(&place.value, "no such file or directory", named))
        }
        _ => Ok(()),
    }
}

/// Directories of a packed trunk that the settings name.
pub(crate) fn trunk(settings: &Settings) -> &[PathBuf] {
    let trunk = settings.trunk.as_ref();
    trunk.map_or(&[], |directories| directories.value.0.as_slice())
}

/// A sentence about a packed trunk that is named where only the checkpoint as it
/// is gets measured.
pub(crate) fn idle_trunk(settings: &Settings) -> Option<String> {
    let named = settings.trunk.as_ref()?.origin.spelled("trunk");
    Some(format!(
        "{named} names a packed trunk, which is not used here: the shards are measured as they are"
    ))
}

/// The same of the directories that hold shards.
///
/// # Errors
///
/// The first that is not there.
pub(crate) fn check_roots(settings: &Settings) -> Result<(), CliError> {
    check_directories("root", settings.root.as_ref())
}

fn check_directories(key: &str, named: Option<&Sourced<PathList>>) -> Result<(), CliError> {
    let missing = named.and_then(|named| {
        let path = named.value.0.iter().find(|path| !path.is_dir())?;
        Some((path, named.origin.spelled(key)))
    });
    let Some((path, named)) = missing else {
        return Ok(());
    };
    let reason = if path.exists() {
        "is not a directory"
    } else {
        "no such directory"
    };
    Err(bad_path(path, reason, named))
}

fn bad_path(path: &Path, reason: &'static str, named: String) -> CliError {
    CliError::BadPath {
        path: path.to_owned(),
        reason,
        named,
    }
}

/// The settings file in force, if there is one.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    named_file(named).map(|(path, _)| path)
}

/// The same, with what names it.
fn named_file(named: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    if let Some(path) = named {
        return Some((path.to_owned(), "--settings"));
    }
    if let Some(path) = variable(SETTINGS_VARIABLE) {
        return Some((path.into(), SETTINGS_VARIABLE));
    }
    let own = user_file().filter(|path| path.exists())?;
    Some((own, "the user's own"))
}

fn read(path: &Path, by: &'static str) -> Result<String, CliError> {
    let unreadable = |source| ConfigError::SettingsFile {
        path: path.to_owned(),
        named: by,
        source,
    };
    // A file that is called "-" is a file: settings are not given by pipe.
    let file = File::open(path).map_err(unreadable)?;
    let bytes = InputKind::SETTINGS
        .read(path, file)
        .map_err(|error| match error {
            CliError::Unreadable { source, .. } => unreadable(source).into(),
            other => other,
        })?;
    String::from_utf8(bytes).map_err(|error| CliError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// As the XDG base directory specification has it.
fn user_file() -> Option<PathBuf> {
    let base = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(variable("HOME")?).join(".config"));
    Some(base.or_else(home)?.join(USER_FILE))
}

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
