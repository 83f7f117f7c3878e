//! The layer of the settings file.

use std::ffi::OsString;

use toml::de::{DeTable, DeValue};

use crate::names::nearest;
use crate::origin::Origin;

use super::keys::{KEY_NAMES, Layer, is_path};
use super::{SettingProblem, SettingsFile};

/// Reads a TOML table of keys and values, without tables in it.
///
/// A number or a text is accepted for any key that can be written as one, so
/// that `memory = 8000000000` and `memory = "8G"` both work.
pub(super) fn read(file: SettingsFile<'_>, problems: &mut Vec<SettingProblem>) -> Layer {
    let origin = |offset: usize| Origin::File {
        path: file.path.to_owned(),
        line: line_of(file.text, offset),
    };
    let mut layer = Layer::default();
    let (table, errors) = DeTable::parse_recoverable(file.text);
    for error in &errors {
        problems.push(SettingProblem {
            origin: origin(error.span().map_or(0, |span| span.start)),
            reason: format!("this is not TOML: {}", error.message()),
        });
    }
    // Values of a text that is half understood mean little.
    if !errors.is_empty() {
        return layer;
    }
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let origin = origin(key.span().start);
        let set = if KEY_NAMES.contains(&name) {
            items_of(value.get_ref(), is_path(name))
                .and_then(|items| layer.set(name, &items, file.path.parent(), origin.clone()))
                .map_err(|reason| format!("{name}: {reason}"))
        } else {
            Err(unknown_key(name))
        };
        if let Err(reason) = set {
            problems.push(SettingProblem { origin, reason });
        }
    }
    layer
}

fn unknown_key(name: &str) -> String {
    match nearest(&name.replace('-', "_"), KEY_NAMES) {
        Some(known) => format!("`{name}` is not a setting; did you mean `{known}`?"),
        None => format!(
            "`{name}` is not a setting; the settings are {}",
            KEY_NAMES.join(", ")
        ),
    }
}

/// The line, from 1, that byte `offset` of `text` lies in.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The texts a value consists of; paths are not written as numbers.
fn items_of(value: &DeValue<'_>, is_path: bool) -> Result<Vec<OsString>, String> {
    let text_of = |value: &DeValue<'_>| match value {
        DeValue::String(_) => text_of(value),
        other if is_path => Err(format!(
            "a path is expected, in quotes, not a value of type {}",
            other.type_str()
        )),
        other => text_of(other),
    };
    if let DeValue::Array(values) = value {
        return values
            .iter()
            .map(|value| text_of(value.get_ref()))
            .collect();
    }
    text_of(value).map(|text| vec![text])
}

fn text_of(value: &DeValue<'_>) -> Result<OsString, String> {
    match value {
        DeValue::String(text) => Ok(text.as_ref().into()),
        DeValue::Integer(number) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            let whole = parsed.map_err(|_| format!("`{number}` is too large a number"))?;
            Ok(whole.to_string().into())
        }
        DeValue::Float(number) => Ok(number.as_str().into()),
        other => Err(format!(
            "a text or a number is expected, not a {}",
            other.type_str()
        )),
    }
}
