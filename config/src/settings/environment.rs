//! The layer of environment variables.

use std::ffi::OsString;

use crate::names::nearest;
use crate::origin::Origin;

use super::SettingProblem;
use super::keys::{KEY_NAMES, Layer, SETTING_KEYS, split_variable};

const PREFIX: &str = "K3_";

/// Variables of this program that are no settings.
const OTHER_VARIABLES: [&str; 5] = [
    "K3_MODEL",
    "K3_SETTINGS",
    "K3_CACHE_DIR",
    "K3_SLOW",
    "K3_REFERENCE_DATA",
];

/// The layer, and a warning for each variable that looks like a mistyped
/// setting. An empty variable counts as unset.
pub(super) fn read(
    environment: Vec<(OsString, OsString)>,
    problems: &mut Vec<SettingProblem>,
) -> (Layer, Vec<String>) {
    let mut layer = Layer::default();
    let mut warnings = Vec::new();
    // In the order of the keys, not in the arbitrary one of the environment.
    for key in SETTING_KEYS {
        let variable = key.variable();
        let given = environment.iter().find(|(name, _)| *name == *variable);
        let Some((_, value)) = given.filter(|(_, value)| !value.is_empty()) else {
            continue;
        };
        let origin = Origin::Environment { variable };
        let items = split_variable(key.name(), value);
        if let Err(reason) = layer.set(key.name(), &items, None, origin.clone()) {
            problems.push(SettingProblem { origin, reason });
        }
    }
    let mut names: Vec<&str> = environment
        .iter()
        .filter_map(|(name, _)| name.to_str())
        .collect();
    names.sort_unstable();
    for variable in names {
        let Some(rest) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        let name = rest.to_ascii_lowercase();
        let is_known = KEY_NAMES.contains(&name.as_str()) || OTHER_VARIABLES.contains(&variable);
        // Other programs may use the prefix: only a likely slip is mentioned.
        if let Some(key) = nearest(&name, KEY_NAMES).filter(|_| !is_known) {
            let meant = format!("{PREFIX}{}", key.to_ascii_uppercase());
            warnings.push(format!(
                "{variable} is not a setting; did you mean {meant}?"
            ));
        }
    }
    (layer, warnings)
}
