//! Settings: the file, the environment and the command line, in layers.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use k3_config::{ConfigError, SettingSources, SettingValues, Settings, SettingsFile};

use crate::error::CliError;
use crate::inputs::InputKind;

/// Environment variable that names the settings file.
const SETTINGS_VARIABLE: &str = "K3_SETTINGS";
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
    let settings = Settings::resolve(SettingSources {
        file: file.map(|(path, text)| SettingsFile { path, text }),
        environment: std::env::vars_os().collect(),
        flags,
    })
    .map_err(ConfigError::from)?;
    Ok(settings)
}

/// Checks that the directories and the vocabulary that settings name are there.
///
/// # Errors
///
/// The first that is not, with what names it.
pub(crate) fn check_places(settings: &Settings) -> Result<(), CliError> {
    let bad = |path: &Path, reason, named| {
        let path = path.to_owned();
        CliError::BadPath {
            path,
            reason,
            named,
        }
    };
    if let Some(roots) = &settings.root {
        let missing = roots.value.0.iter().find(|root| !root.is_dir());
        if let Some(root) = missing {
            let reason = if root.exists() {
                "is not a directory"
            } else {
                "no such directory"
            };
            return Err(bad(root, reason, roots.origin.spelled("root")));
        }
    }
    match &settings.tokenizer {
        Some(place) if !place.value.exists() => {
            let named = place.origin.spelled("tokenizer");
            Err(bad(&place.value, "no such file or directory", named))
        }
        _ => Ok(()),
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
    let bytes = InputKind::SETTINGS.read(path, file)?;
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
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
