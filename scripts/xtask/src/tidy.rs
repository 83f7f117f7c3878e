//! Runs every check over the tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{graph, text};

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("xtask lies two levels below the root")
        .to_owned()
}

/// Faults of the tree, one line each.
pub(crate) fn run() -> Result<Vec<String>> {
    let root = root();
    let files = tracked_files(&root)?;
    if files.is_empty() {
        bail!("no files found below {}", root.display());
    }
    let mut faults = graph::check(&root)?;
    for file in &files {
        let Ok(content) = std::fs::read_to_string(root.join(file)) else {
            continue; // binary, or deleted and not yet committed
        };
        text::check(file, &content, &mut faults);
    }
    Ok(faults)
}

/// Files git knows, and new ones it does not ignore. Without git (a source
/// archive) every file outside `target` counts.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let list = String::from_utf8(output.stdout).context("file names are UTF-8")?;
            Ok(list.lines().map(str::to_owned).collect())
        }
        _ => {
            let mut files = Vec::new();
            walk(root, root, &mut files)?;
            Ok(files)
        }
    }
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, files)?;
            }
        } else {
            let relative = path.strip_prefix(root).expect("below the root");
            files.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let faults = super::run().unwrap();
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }
}
