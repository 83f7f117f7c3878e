//! Where the files of a basis lie.

use std::path::{Path, PathBuf};

use crate::basis::Basis;

/// A file as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A regular file.
    File {
        /// Where.
        path: PathBuf,
        /// Its length now.
        bytes: u64,
    },
    /// In none of the directories.
    Missing,
    /// Something is there that is no file, or cannot be asked.
    Unusable {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Looks for each file of `basis` in `model`, then in `roots`.
pub fn locate(basis: &Basis, model: &Path, roots: &[PathBuf]) -> Vec<Place> {
    let directories: Vec<&Path> = std::iter::once(model)
        .chain(roots.iter().map(PathBuf::as_path))
        .collect();
    let place = |name: &str| {
        let paths = directories.iter().map(|directory| directory.join(name));
        for path in paths {
            match path.metadata() {
                Ok(found) if found.is_file() => {
                    let bytes = found.len();
                    return Place::File { path, bytes };
                }
                Ok(_) => {
                    let reason = "is not a regular file".to_owned();
                    return Place::Unusable { path, reason };
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    let reason = error.to_string();
                    return Place::Unusable { path, reason };
                }
            }
        }
        Place::Missing
    };
    basis.files.iter().map(|file| place(&file.name)).collect()
}
