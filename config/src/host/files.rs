//! Small kernel files under a root, and what was wrong with them.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::{HostProblem, ProblemArea};

/// No kernel file read here is longer; a mount table can be large.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where to read, and the problems met on the way.
pub(crate) struct Report<'a> {
    root: &'a Path,
    problems: Vec<HostProblem>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Self {
            root,
            problems: Vec::new(),
        }
    }

    /// `relative`, an absolute path or one without its leading slash, under
    /// the root.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Adds a problem.
    pub(crate) fn note(&mut self, path: &Path, reason: &str, area: ProblemArea) {
        self.problems.push(HostProblem {
            path: path.to_owned(),
            reason: reason.to_owned(),
            area,
        });
    }

    /// The text of a file that ought to exist; its absence is a problem.
    pub(crate) fn read(&mut self, path: &Path, area: ProblemArea) -> Option<String> {
        match read_optional(path) {
            Ok(Some(text)) => Some(text),
            Ok(None) => {
                self.note(path, "the file is missing", area);
                None
            }
            Err(error) => {
                self.note(path, &error.to_string(), area);
                None
            }
        }
    }

    /// The text of a file that may be absent.
    pub(crate) fn read_if_present(&mut self, path: &Path, area: ProblemArea) -> Option<String> {
        read_optional(path).unwrap_or_else(|error| {
            self.note(path, &error.to_string(), area);
            None
        })
    }

    pub(crate) fn into_problems(self) -> Vec<HostProblem> {
        self.problems
    }
}

/// The text of a file; `None` if there is none.
pub(crate) fn read_optional(path: &Path) -> std::io::Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The first word of `text` as a number.
pub(crate) fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}
