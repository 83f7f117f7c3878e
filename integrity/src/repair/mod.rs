//! Fetching bad ranges again.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | which ranges, and whether they are still bad |
//! | `origin` | where the files came from |
//! | `patch` | one range: fetched aside, compared, written, compared again |

mod origin;
mod patch;
mod plan;

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use crate::basis::Source;
use crate::check::{BadRange, Check, CheckReport, CheckSettings, Place, Selection};
use crate::error::IntegrityError;
use crate::http::{HttpSettings, RetrySettings, Token};
use crate::watch::Watch;
use origin::Origin;

/// What to repair, and how.
#[derive(Debug, Clone)]
pub struct RepairSettings {
    /// The checkpoint's directory.
    pub model: PathBuf,
    /// Further directories that hold shards.
    pub roots: Vec<PathBuf>,
    /// The manifest, if not the one in `model`.
    pub manifest: Option<PathBuf>,
    /// The address under which the files lie; else where they were fetched from.
    pub from: Option<String>,
    /// Address of the hub, which the token is for.
    pub endpoint: String,
    /// What proves who asks; goes to the hub alone.
    pub token: Option<Token>,
    /// What is bad, if it is known: else everything is checked first.
    pub bad: Option<BadList>,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// How long to wait.
    pub http: HttpSettings,
    /// How often to try.
    pub retry: RetrySettings,
}

/// What a check has found, and where that was read.
#[derive(Debug, Clone)]
pub struct BadList {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub report: CheckReport,
}

/// A range and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repaired {
    /// The range.
    pub bad: BadRange,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It has the right bytes now.
    Mended,
    /// It had the right bytes by the time it was looked at.
    Good,
    /// It would be fetched.
    Planned,
    /// It is as bad as it was.
    Left(String),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepairSummary {
    /// Where the bytes came from.
    pub from: String,
    /// Each range that was called bad.
    pub ranges: Vec<Repaired>,
    /// Bytes that came over the network.
    pub fetched_bytes: u64,
    /// Wall time, a check before it included.
    pub seconds: f64,
}

impl RepairSummary {
    /// Ranges that are still bad.
    pub fn left(&self) -> usize {
        let is_left = |range: &&Repaired| matches!(range.fate, Fate::Left(_));
        self.ranges.iter().filter(is_left).count()
    }
}

/// Fetches the bad ranges, and those only, and writes each over the bad bytes
/// when its hash is the manifest's. A range that is good is never written.
///
/// # Errors
///
/// No manifest or one of another checkpoint, a list of ranges that are not the
/// manifest's, nowhere to fetch from, an address that refuses, a file that
/// cannot be written, and [`IntegrityError::Interrupted`]: what is mended by
/// then stays so.
pub fn repair(
    settings: &RepairSettings,
    watch: &dyn Watch,
) -> Result<RepairSummary, IntegrityError> {
    let started = Instant::now();
    let check = Check::new(CheckSettings {
        model: settings.model.clone(),
        roots: settings.roots.clone(),
        manifest: settings.manifest.clone(),
        selection: Selection::All,
        threads: None,
    })?;
    if !matches!(check.basis().source, Source::Manifest { .. }) {
        return Err(IntegrityError::NoManifest {
            directory: settings.model.clone(),
        });
    }
    let origin = Origin::new(settings)?;
    if !settings.dry_run {
        for (file, place) in check.basis().files.iter().zip(check.places()) {
            match place {
                Place::File { path, .. } => patch::remove_leftovers(path),
                _ => patch::remove_leftovers(&settings.model.join(&file.name)),
            }
        }
    }
    let report = match &settings.bad {
        Some(list) => list.report.clone(),
        None => {
            watch.phase("checking", check.selected_bytes());
            let report = check.run(watch)?;
            if !report.complete {
                return Err(IntegrityError::Interrupted);
            }
            report
        }
    };
    let bad = plan::ranges(&check, &report).map_err(|reason| {
        // Only a list from outside can be of another manifest.
        let path = settings
            .bad
            .as_ref()
            .map_or(&settings.model, |list| &list.path);
        IntegrityError::Report {
            path: path.clone(),
            reason,
        }
    })?;
    watch.phase("repairing", bad.iter().map(|range| range.bytes).sum());
    let mut patcher = patch::Patcher::new(&check, settings, &origin, watch);
    let mut ranges = Vec::with_capacity(bad.len());
    for range in bad {
        if !watch.go_on() {
            return Err(IntegrityError::Interrupted);
        }
        let fate = patcher.mend(&range)?;
        ranges.push(Repaired {
            bad: range.bad,
            fate,
        });
    }
    Ok(RepairSummary {
        from: origin.shown(),
        ranges,
        fetched_bytes: patcher.fetched_bytes,
        seconds: started.elapsed().as_secs_f64(),
    })
}
