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
    let path = file(named);
    let text = path.as_deref().map(read).transpose()?;
    let file = path.as_deref().zip(text.as_deref());
    let settings = Settings::resolve(SettingSources {
        file: file.map(|(path, text)| SettingsFile { path, text }),
        environment: std::env::vars_os().collect(),
        flags,
    })
    .map_err(ConfigError::from)?;
    Ok(settings)
}

/// The settings file in force, if there is one.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(path) => Some(path.to_owned()),
        None => variable(SETTINGS_VARIABLE)
            .map(PathBuf::from)
            .or_else(|| user_file().filter(|path| path.exists())),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    let unreadable = |source| ConfigError::SettingsFile {
        path: path.to_owned(),
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
