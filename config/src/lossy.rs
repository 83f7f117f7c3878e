//! Paths in data that has to be Unicode.
//!
//! A path is a sequence of bytes, JSON is Unicode: serde refuses a path that is
//! not, and with it the whole report that names it. A report shows a path, as
//! a message does, so it is written the same way, with U+FFFD for what is no
//! character.

use std::path::{Path, PathBuf};

use serde::Serializer;

/// Serialises `path` as it is displayed, which always works.
///
/// # Errors
///
/// Those of `serializer`.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// As [`path()`], for each of `paths`.
///
/// # Errors
///
/// Those of `serializer`.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::{CgroupLimit, CgroupVersion, HostProblem, Origin, PathList, ProblemArea};

    fn odd() -> PathBuf {
        OsStr::from_bytes(b"a\xff/b").into()
    }

    #[test]
    fn every_path_in_data_is_written_whatever_its_bytes() {
        let limit = CgroupLimit {
            path: odd(),
            bytes: crate::Bytes(1),
            held: None,
            version: CgroupVersion::V2,
        };
        let problem = HostProblem {
            path: odd(),
            reason: String::new(),
            area: ProblemArea::Other,
        };
        let origin = Origin::File {
            path: odd(),
            line: 3,
        };
        let list = PathList(vec![odd(), "c".into()]);
        for json in [
            serde_json::to_string(&limit),
            serde_json::to_string(&problem),
            serde_json::to_string(&origin),
            serde_json::to_string(&list),
        ] {
            let json = json.unwrap();
            assert!(json.contains("\"a\u{fffd}/b\""), "{json}");
        }
        // Others are what they always were.
        let plain = serde_json::to_string(&PathList(vec!["c".into(), "d e".into()]));
        assert_eq!(plain.unwrap(), r#"["c","d e"]"#);
    }
}
