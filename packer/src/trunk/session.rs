//! The directories, journal and files of a run, found or made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use k3_formats::trunk::{MatrixHasher, PAGE_BYTES, extent_bytes, stripe_file_name, stripe_of_name};
use k3_io::PARTIAL_ENDING;

use super::encode::Entry;
use super::error::TrunkError;
use super::finish::Point;
use super::journal::{JOURNAL_NAME, Journal, Journalled};
use super::pipeline::Hooks;
use super::plan::TrunkPlan;
use super::source::{TrunkSource, matrix_span};
use super::stripe_file::StripeFile;
use crate::error::PackError;
use crate::synth::target::{lock, parent, sync_directory};

/// A packing: new, or taken up again.
#[derive(Debug)]
pub(super) struct Session {
    directories: Vec<PathBuf>,
    /// Held while this run lives, so that no other writes here.
    _locks: Vec<File>,
    pub(super) journal: Journal,
    /// Blocks that are on the disk by the journal.
    pub(super) entries: Vec<Entry>,
    /// The hash of the matrix in which they end.
    pub(super) hasher: MatrixHasher,
    /// `None` for one that already has its final name.
    pub(super) stripes: Vec<Option<StripeFile>>,
    /// Where the next block of each stripe goes.
    pub(super) ends: Vec<u64>,
}

impl Session {
    /// Finds what an earlier run of `plan` left, or begins.
    ///
    /// # Errors
    ///
    /// Everything that is in the way.
    pub(super) fn open(
        source: &TrunkSource,
        plan: &TrunkPlan,
        hooks: &Hooks<'_>,
    ) -> Result<Self, PackError> {
        let (directories, locks) = take(&plan.settings.outs)?;
        if plan.settings.restart {
            directories
                .iter()
                .try_for_each(|directory| clear(directory))?;
        }
        let options = options(source, plan, &directories);
        let found = match begun(&directories, &options)? {
            Some(found) => found,
            None => Journalled::new(Journal::create(&directories[0], &options)?),
        };
        hooks.at(Point::Begun)?;
        let ends = ends(source, plan, &found)?;
        let Journalled {
            journal,
            entries,
            hasher,
            ..
        } = found;
        let is_whole = entries.len() == source.blocks().len();
        let mut stripes = Vec::new();
        for (index, directory) in (0..plan.stripe_count()).zip(&directories) {
            let [partial, last] = names(directory, index, plan.stripe_count());
            // Renamed by a run that was ended right then.
            let is_renamed = is_whole && last.exists() && !partial.exists();
            stripes.push(match is_renamed {
                true => None,
                false => Some(stripe(
                    &partial,
                    ends[usize::from(index)],
                    entries.is_empty(),
                )?),
            });
            sync_directory(directory)
                .map_err(TrunkError::writing(directory, "write to the disk"))?;
        }
        Ok(Self {
            directories,
            _locks: locks,
            journal,
            entries,
            hasher,
            stripes,
            ends,
        })
    }

    /// Blocks that are on the disk.
    pub(super) fn done(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("block counts are capped")
    }

    /// Removes what was begun, if there is no block in it.
    pub(super) fn abandon_if_empty(&self, plan: &TrunkPlan) {
        if self.done() > 0 {
            return;
        }
        // What refuses to go is in the way of the next run, which says so.
        for (index, directory) in (0..plan.stripe_count()).zip(&self.directories) {
            let [partial, _] = names(directory, index, plan.stripe_count());
            let _ = std::fs::remove_file(partial);
        }
        let _ = std::fs::remove_file(self.directories[0].join(JOURNAL_NAME));
    }

    /// A directory for each stripe.
    pub(super) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Whether writes bypass the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.stripes.iter().flatten().all(StripeFile::is_direct)
    }
}

/// The unfinished and the final path of a stripe.
pub(super) fn names(directory: &Path, index: u16, count: u16) -> [PathBuf; 2] {
    let name = stripe_file_name(index, count);
    let partial = format!("{name}.{PARTIAL_ENDING}");
    [directory.join(partial), directory.join(name)]
}

/// The file of a stripe that has `end` bytes by the journal.
fn stripe(path: &Path, end: u64, is_new: bool) -> Result<StripeFile, TrunkError> {
    if !is_new && !path.exists() {
        return Err(TrunkError::Damaged {
            path: path.to_owned(),
            detail: "is not there, though the journal says it is".to_owned(),
        });
    }
    let kept_bytes = if is_new { 0 } else { end };
    let file = StripeFile::open(path, kept_bytes)?;
    // The header's page, a hole for now: no file begins as a trunk before the end.
    if is_new {
        file.write_small(&[0; PAGE_BYTES], 0)?;
    }
    Ok(file)
}

/// The directories, made where they are not there, locked and each another one.
fn take(outs: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<File>), PackError> {
    let mut directories: Vec<PathBuf> = Vec::new();
    let mut locks = Vec::new();
    for out in outs {
        if !out.exists() {
            let above = parent(out)?;
            if !above.is_dir() {
                return Err(PackError::NoParent { path: above });
            }
            fs::create_dir(out).map_err(TrunkError::writing(out, "create the directory"))?;
        }
        if !out.is_dir() {
            return Err(PackError::BadTarget { path: out.clone() });
        }
        let path = out
            .canonicalize()
            .map_err(TrunkError::writing(out, "find the directory"))?;
        if directories.contains(&path) {
            return Err(TrunkError::SameDirectory { path: out.clone() }.into());
        }
        locks.push(lock(&path)?);
        directories.push(path);
    }
    Ok((directories, locks))
}

/// What decides the output, a line each.
fn options(source: &TrunkSource, plan: &TrunkPlan, directories: &[PathBuf]) -> String {
    let weights: Vec<String> = plan.set.weights.iter().map(u32::to_string).collect();
    let mut lines = vec![
        format!("checkpoint: {}", plan.set.identity),
        format!("format: {}", k3_formats::trunk::TRUNK_VERSION),
        format!("--codec: {}", plan.set.codec),
        format!("--block-bytes: {}", plan.set.block_bytes),
        format!("blocks: {}", source.block_count()),
        format!("--stripe-weights: {}", weights.join(",")),
    ];
    for (index, directory) in directories.iter().enumerate() {
        lines.push(format!("OUT {}: {}", index + 1, directory.display()));
    }
    lines.join("\n")
}

/// The packing that was begun in `directories`, if it is this one.
fn begun(directories: &[PathBuf], options: &str) -> Result<Option<Journalled>, PackError> {
    let left = directories
        .iter()
        .map(|directory| leftovers(directory))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let Some(found) = Journal::open(&directories[0])? else {
        let whole = left.iter().find(|path| !is_partial(path));
        return match (whole, left.first()) {
            (Some(path), _) => Err(TrunkError::Exists { path: path.clone() }.into()),
            (None, Some(path)) => Err(TrunkError::Leftover {
                path: path.clone(),
                directory: directories[0].clone(),
            }
            .into()),
            (None, None) => Ok(None),
        };
    };
    let differences = differences(&found.options, options);
    if differences.is_empty() {
        return Ok(Some(found));
    }
    Err(TrunkError::OtherPacking {
        journal: found.journal.path().to_owned(),
        differences,
    }
    .into())
}

/// Each line that is not in both.
fn differences(then: &str, now: &str) -> Vec<String> {
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map_or("none".to_owned(), |value| {
            value.trim_start_matches(':').trim().to_owned()
        })
    };
    let mut keys: Vec<&str> = Vec::new();
    for line in then.lines().chain(now.lines()) {
        let key = line.split(':').next().unwrap_or(line);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|key| (key, value(then, key), value(now, key)))
        .filter(|(_, then, now)| then != now)
        .map(|(key, then, now)| format!("{key}: {then} then, {now} now"))
        .collect()
}

/// Where the blocks of each stripe end, by what the journal says of them.
fn ends(
    source: &TrunkSource,
    plan: &TrunkPlan,
    found: &Journalled,
) -> Result<Vec<u64>, TrunkError> {
    let mut ends = vec![PAGE_BYTES as u64; plan.set.weights.len()];
    let blocks = source.blocks();
    let fits = |index: usize, entry: &Entry| {
        let raw = blocks.get(index).map_or(0, |block| block.bytes);
        (1..=raw).contains(&entry.stored_bytes)
    };
    let damaged = |detail| TrunkError::Damaged {
        path: found.journal.path().to_owned(),
        detail,
    };
    for (index, entry) in found.entries.iter().enumerate() {
        if !fits(index, entry) {
            let bytes = entry.stored_bytes;
            return Err(damaged(format!("block {index} cannot have {bytes} bytes")));
        }
        ends[usize::from(plan.stripes[index])] += extent_bytes(entry.stored_bytes);
    }
    let next = blocks.get(found.entries.len()).map(matrix_span);
    if next.is_some_and(|(start, total)| !found.hasher.expects(start, total)) {
        return Err(damaged(
            "its hash is not of the matrix it ends in".to_owned(),
        ));
    }
    Ok(ends)
}

/// Stripe files of a directory, finished or not.
fn leftovers(directory: &Path) -> Result<Vec<PathBuf>, TrunkError> {
    let fail = |source| TrunkError::writing(directory, "list")(source);
    let mut found = Vec::new();
    for entry in directory.read_dir().map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(&format!(".{PARTIAL_ENDING}"));
        if stripe_of_name(stem.unwrap_or(&name)).is_some() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_partial(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == PARTIAL_ENDING)
}

/// Removes what any packing left in a directory, the journal last: without it
/// nobody could go on with the rest.
fn clear(directory: &Path) -> Result<(), TrunkError> {
    let mut paths = leftovers(directory)?;
    let journal = directory.join(JOURNAL_NAME);
    if journal.exists() {
        paths.push(journal);
    }
    for path in paths {
        fs::remove_file(&path).map_err(TrunkError::writing(&path, "remove"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_with_both_values() {
        let then = "checkpoint: ab\n--codec: auto\nOUT 1: /a\nOUT 2: /b";
        assert!(differences(then, then).is_empty());
        let now = "checkpoint: ab\n--codec: raw\nOUT 1: /a";
        let expected = ["--codec: auto then, raw now", "OUT 2: /b then, none now"];
        assert_eq!(differences(then, now), expected);
    }
}
