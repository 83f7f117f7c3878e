//! Which ranges.

use crate::check::{BadKind, BadRange, Check, CheckReport, REPORT_VERSION};

/// A range that was called bad.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) bad: BadRange,
    /// Its number in the manifest; none for bytes that should not be there.
    pub(super) number: Option<usize>,
    /// Number of its file.
    pub(super) file: usize,
    pub(super) bytes: u64,
}

/// The ranges of `report` as the manifest has them, in the order of the files: a
/// file that is missing is all of its ranges.
///
/// # Errors
///
/// Ranges that are not the manifest's.
pub(super) fn ranges(check: &Check, report: &CheckReport) -> Result<Vec<Wanted>, String> {
    if report.version != REPORT_VERSION {
        let reason = format!(
            "version {}, but this program reads {REPORT_VERSION}",
            report.version
        );
        return Err(reason);
    }
    let basis = check.basis();
    let mut wanted = Vec::new();
    for bad in &report.bad {
        let file = basis.files.iter().position(|file| file.name == bad.file);
        let file = file.ok_or_else(|| format!("the manifest has no file {:?}", bad.file))?;
        let numbers = basis.ranges_of(file);
        if bad.kind == BadKind::Long {
            wanted.push(Wanted {
                bad: bad.clone(),
                number: None,
                file,
                bytes: 0,
            });
            continue;
        }
        let is_whole = bad.kind == BadKind::Missing && bad.bytes == basis.files[file].bytes;
        let before = wanted.len();
        for number in numbers {
            let range = &basis.ranges[number];
            if is_whole || (range.offset, range.bytes) == (bad.offset, bad.bytes) {
                wanted.push(Wanted {
                    bad: BadRange {
                        offset: range.offset,
                        bytes: range.bytes,
                        content: range.content.to_string(),
                        ..bad.clone()
                    },
                    number: Some(number),
                    file,
                    bytes: range.bytes,
                });
            }
        }
        if wanted.len() == before && bad.bytes > 0 {
            let reason = format!(
                "the manifest has no range of {} bytes at {} of {}",
                bad.bytes, bad.offset, bad.file
            );
            return Err(reason);
        }
    }
    wanted.sort_by_key(|wanted| (wanted.file, wanted.bad.offset));
    wanted.dedup_by_key(|wanted| (wanted.file, wanted.bad.offset));
    Ok(wanted)
}
