//! What a person can type into a shell.

use std::env;
use std::path::{Path, PathBuf};

/// The name that this program has on PATH.
const NAME: &str = "k3";

/// What starts this program again from the current directory: its name where the shell
/// finds it by that, else its path.
pub(crate) fn this_program() -> String {
    let Ok(own) = env::current_exe() else {
        return NAME.to_owned();
    };
    if is_found(&own) {
        return NAME.to_owned();
    }
    let here = env::current_dir().ok();
    let below = here.and_then(|here| Some(own.strip_prefix(here).ok()?.to_owned()));
    quoted(&match below {
        // A bare name would be looked for on PATH.
        Some(name) if name.components().count() == 1 => Path::new(".").join(name),
        Some(below) => below,
        None => own,
    })
}

/// Whether the first program of that name on PATH is `own`.
fn is_found(own: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).map(|directory| directory.join(NAME));
    let found = places.find(|place| is_program(place));
    let same = |found: PathBuf| Some(found.canonicalize().ok()? == own.canonicalize().ok()?);
    found.and_then(same).unwrap_or(false)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = path.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_a_shell() {
        assert_eq!(quoted(Path::new("/disk1/Kimi-K3")), "/disk1/Kimi-K3");
        assert_eq!(quoted(Path::new("/a b/c")), "'/a b/c'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
