//! The files of a checkpoint against what they should be.
//!
//! | module | holds |
//! |---|---|
//! | `places` | where the files lie |
//! | `select` | which ranges to look at |
//! | `hashes` | their hashes, as far as they can be read |
//! | `report` | what was found |

mod hashes;
mod places;
mod report;
mod select;

use std::path::{Path, PathBuf};

use k3_formats::manifest::{FileKind, ManifestRange, RangeContent, hex};
use k3_io::{CONFIG_NAME, HashKind};

pub use places::{Place, locate};
pub use report::{BadKind, BadRange, CheckReport, REPORT_VERSION};
pub use select::{SampleAmount, Selection};

use crate::basis::{Basis, Source};
use crate::error::IntegrityError;
use crate::watch::{Silent, Watch};
use hashes::Outcome;
pub(crate) use hashes::hashes;

/// What to check, and how.
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// The checkpoint's directory.
    pub model: PathBuf,
    /// Further directories that hold shards.
    pub roots: Vec<PathBuf>,
    /// The manifest, if not the one in `model`.
    pub manifest: Option<PathBuf>,
    /// Which ranges.
    pub selection: Selection,
    /// Threads that hash, if not the default.
    pub threads: Option<usize>,
}

/// A check that is ready to run.
#[derive(Debug)]
pub struct Check {
    settings: CheckSettings,
    basis: Basis,
    places: Vec<Place>,
    chosen: Vec<usize>,
}

impl Check {
    /// Finds what the files should be and where they are.
    ///
    /// # Errors
    ///
    /// Neither a manifest nor a record, none of the files, a manifest that is of
    /// another checkpoint, and a layer that is not there.
    pub fn new(settings: CheckSettings) -> Result<Self, IntegrityError> {
        let basis = Basis::find(&settings.model, settings.manifest.as_deref())?;
        let places = locate(&basis, &settings.model, &settings.roots);
        if !places
            .iter()
            .any(|place| matches!(place, Place::File { .. }))
        {
            return Err(IntegrityError::NoFiles {
                directory: settings.model,
                example: basis.files.first().map(|file| file.name.clone()),
            });
        }
        require_identity(&basis, &places)?;
        let chosen = settings.selection.of(&basis)?;
        Ok(Self {
            settings,
            basis,
            places,
            chosen,
        })
    }

    /// What the files should be.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// Where the files are, by number.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Bytes that will be read at most.
    pub fn selected_bytes(&self) -> u64 {
        let ranges = self.chosen.iter().map(|&range| &self.basis.ranges[range]);
        ranges.map(|range| range.bytes).sum()
    }

    /// Reads and compares. Stopped, it reports what it has.
    ///
    /// # Errors
    ///
    /// No memory to read into, or no way to read.
    pub fn run(&self, watch: &dyn Watch) -> Result<CheckReport, IntegrityError> {
        let mut report = self.empty_report();
        let mut readable = Vec::with_capacity(self.chosen.len());
        for &number in &self.chosen {
            match self.unreadable(number) {
                None => readable.push(number),
                Some(bad) => report.bad.push(bad),
            }
        }
        self.whole_files(&mut report);
        let hashed = hashes(
            &self.basis,
            &self.places,
            &readable,
            self.settings.threads,
            watch,
        )?;
        for (number, outcome) in readable.iter().zip(hashed.outcomes) {
            let range = &self.basis.ranges[*number];
            let bad = match outcome {
                Outcome::NotRead => continue,
                Outcome::Hash(hash) if hash == range.hash => None,
                Outcome::Hash(hash) => {
                    let mut bad = self.bad(range, BadKind::Mismatch);
                    bad.found = Some(hex(&hash));
                    Some(bad)
                }
                Outcome::Unreadable(reason) => {
                    let mut bad = self.bad(range, BadKind::Unreadable);
                    bad.detail = Some(reason);
                    Some(bad)
                }
            };
            report.checked_ranges += 1;
            report.bad.extend(bad);
        }
        report.bad.sort_by_key(|bad| {
            let file = self
                .basis
                .files
                .iter()
                .position(|file| file.name == bad.file);
            (file, bad.offset)
        });
        report.bad_bytes = report.bad.iter().map(|bad| bad.bytes).sum();
        report.checked_bytes = hashed.bytes;
        report.seconds = hashed.seconds;
        report.complete = hashed.is_complete;
        report.notes = hashed.notes;
        Ok(report)
    }

    fn empty_report(&self) -> CheckReport {
        let (source, identity, root) = match &self.basis.source {
            Source::Manifest {
                path,
                identity,
                root,
            } => (path, Some(identity.to_string()), Some(hex(root))),
            Source::Record { path, .. } => (path, None, None),
        };
        let (selection, seed, layer) = match self.settings.selection {
            Selection::All => ("all", None, None),
            Selection::Sample { seed, .. } => ("sample", Some(seed), None),
            Selection::Layer(layer) => ("layer", None, Some(layer)),
        };
        CheckReport {
            version: REPORT_VERSION,
            model: self.settings.model.display().to_string(),
            source: source.display().to_string(),
            hash: match self.basis.kind {
                HashKind::Blake3 => "blake3",
                HashKind::Sha256 => "sha256",
            }
            .to_owned(),
            identity,
            manifest_root: root,
            selection: selection.to_owned(),
            seed,
            layer,
            complete: false,
            file_count: self.basis.files.len() as u64,
            total_ranges: self.basis.ranges.len() as u64,
            total_bytes: self.basis.total_bytes(),
            checked_ranges: 0,
            checked_bytes: 0,
            seconds: 0.0,
            bad_bytes: 0,
            bad: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn bad(&self, range: &ManifestRange, kind: BadKind) -> BadRange {
        BadRange {
            file: self.basis.files[range.file].name.clone(),
            offset: range.offset,
            bytes: range.bytes,
            content: range.content.to_string(),
            kind,
            expected: Some(hex(&range.hash)),
            found: None,
            detail: None,
        }
    }

    /// What is wrong with a range whose bytes are not there at all. Files that
    /// are missing as a whole are told once, not here.
    fn unreadable(&self, number: usize) -> Option<BadRange> {
        let range = &self.basis.ranges[number];
        match &self.places[range.file] {
            Place::File { bytes, .. } if range.offset + range.bytes <= *bytes => None,
            Place::File { bytes, .. } => {
                let mut bad = self.bad(range, BadKind::Short);
                bad.detail = Some(format!("the file ends at {bytes}"));
                Some(bad)
            }
            Place::Missing => Some(self.bad(range, BadKind::Missing)),
            Place::Unusable { reason, .. } => {
                let mut bad = self.bad(range, BadKind::Unreadable);
                bad.detail = Some(reason.clone());
                Some(bad)
            }
        }
    }

    /// Files that are missing get one entry instead of one for each range; files
    /// that are too long get one for what is too much.
    fn whole_files(&self, report: &mut CheckReport) {
        let is_layer = matches!(self.settings.selection, Selection::Layer(_));
        for (number, (file, place)) in self.basis.files.iter().zip(&self.places).enumerate() {
            let is_concerned = self
                .chosen
                .iter()
                .any(|&range| self.basis.ranges[range].file == number);
            if is_layer && !is_concerned {
                continue;
            }
            let whole = |kind, offset, bytes, content: &str| BadRange {
                file: file.name.clone(),
                offset,
                bytes,
                content: content.to_owned(),
                kind,
                expected: None,
                found: None,
                detail: None,
            };
            match place {
                Place::Missing => {
                    report.bad.retain(|bad| bad.file != file.name);
                    let content = RangeContent::File.to_string();
                    report
                        .bad
                        .push(whole(BadKind::Missing, 0, file.bytes, &content));
                }
                Place::File { bytes, .. } if *bytes > file.bytes => {
                    let extra = bytes - file.bytes;
                    let content = "nothing: the file should end here";
                    report
                        .bad
                        .push(whole(BadKind::Long, file.bytes, extra, content));
                }
                _ => {}
            }
        }
    }
}

/// Refuses a manifest of another checkpoint. Damage may lie in a header or in
/// the configuration too, so what counts is whether most of them are right.
fn require_identity(basis: &Basis, places: &[Place]) -> Result<(), IntegrityError> {
    let Source::Manifest { path, identity, .. } = &basis.source else {
        return Ok(());
    };
    let tells = |range: &ManifestRange| {
        let file = &basis.files[range.file];
        let whole = matches!(&places[range.file], Place::File { bytes, .. } if *bytes >= range.offset + range.bytes);
        let is_config = file.kind == FileKind::Other && file.name == CONFIG_NAME;
        whole && (range.content == RangeContent::Header || is_config)
    };
    let telling: Vec<usize> = (0..basis.ranges.len())
        .filter(|&number| tells(&basis.ranges[number]))
        .collect();
    let hashed = hashes(basis, places, &telling, Some(1), &Silent)?;
    let right = telling
        .iter()
        .zip(&hashed.outcomes)
        .filter(|(number, outcome)| **outcome == Outcome::Hash(basis.ranges[**number].hash));
    let (right, all) = (right.count(), telling.len());
    if all > 0 && right * 2 <= all {
        return Err(IntegrityError::OtherIdentity {
            manifest: path.clone(),
            identity: identity.to_string(),
            right,
            all,
        });
    }
    Ok(())
}

/// The directory a path lies in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
