//! What the disks give: as the user says, or as a short probe finds.

use std::path::PathBuf;
use std::sync::Arc;

use k3_io::{DirectPolicy, DiskProfile, EnginePreference, FileTable, ProbeBounds};
use k3_runtime::Checkpoint;
use k3_runtime::report::ReadCeiling;

use crate::cli::memory::ReadingArgs;
use crate::planning::{LARGE_TRUNK_BYTES, Reading};

/// Rounds of a probe; the median counts.
const ROUNDS: usize = 3;
/// Longest time for a round on one device, and for all of them.
const ROUND_SECONDS: f64 = 0.15;
const TOTAL_SECONDS: f64 = 1.0;
/// Most bytes read in a round.
const ROUND_BYTES: u64 = 256 << 20;

/// What a run's reading is compared with, or one sentence on why it is not
/// known though it was asked for. A trunk that is read in a moment is not worth
/// a probe.
pub(crate) fn find(
    args: &ReadingArgs,
    checkpoint: &Checkpoint,
    trunk_bytes: u64,
    reading: &Reading,
    engine: EnginePreference,
) -> Result<Option<ReadCeiling>, String> {
    if let Some(rate) = args.disk_gbps {
        return Ok(Some(ReadCeiling::Given(rate * 1e9)));
    }
    if args.no_disk_probe || trunk_bytes < LARGE_TRUNK_BYTES {
        return Ok(None);
    }
    let paths: Vec<PathBuf> = checkpoint.shard_paths().map(ToOwned::to_owned).collect();
    let config = &reading.engine;
    let bounds = ProbeBounds {
        rounds: ROUNDS,
        cell_bytes: ROUND_BYTES,
        cell_seconds: ROUND_SECONDS,
        ..ProbeBounds::only(config.piece_bytes, config.in_flight_bytes)
    };
    probe(&paths, bounds, engine).map(Some)
}

/// Measures every device the way the run will read it. Its memory is given back
/// before the run reserves its own.
fn probe(
    paths: &[PathBuf],
    mut bounds: ProbeBounds,
    engine: EnginePreference,
) -> Result<ReadCeiling, String> {
    let unknown = |reason: &dyn std::fmt::Display| {
        format!("what the disk gives is not known (--disk-gbps says it): {reason}")
    };
    let table = FileTable::open(paths, DirectPolicy::Probe);
    let table = Arc::new(table.map_err(|error| unknown(&error))?);
    let devices = table.devices().len();
    #[allow(clippy::cast_precision_loss, reason = "a handful of devices")]
    let share = TOTAL_SECONDS / devices.max(1) as f64;
    bounds.total_seconds = share;
    let mut rates = Vec::with_capacity(devices);
    for device in 0..devices {
        let profile = DiskProfile::measure(&table, device, engine, &bounds);
        let profile = profile.map_err(|error| unknown(&error))?;
        if !profile.direct {
            return Err(unknown(
                &"its file system has no direct reads, and the page cache would be measured",
            ));
        }
        let best = profile.best().map_or(0.0, |cell| cell.bytes_per_second());
        if best > 0.0 {
            rates.push((profile.device, best));
        }
    }
    Ok(ReadCeiling::Probed(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_takes_what_it_measures_or_says_why_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shard");
        std::fs::write(&path, vec![1_u8; 4 << 20]).unwrap();
        let bounds = ProbeBounds {
            cell_bytes: 4 << 20,
            ..ProbeBounds::only(64 << 10, 512 << 10)
        };
        let paths = [path.clone()];
        match probe(&paths, bounds.clone(), EnginePreference::Pread) {
            Ok(ReadCeiling::Probed(rates)) => {
                assert!(rates.len() == 1 && rates[0].1 > 0.0, "{rates:?}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(reason) => assert!(reason.contains("direct"), "{reason}"),
        }
        std::fs::File::create(&path)
            .unwrap()
            .set_len(4 << 20)
            .unwrap();
        let reason = probe(&paths, bounds, EnginePreference::Pread).unwrap_err();
        assert!(
            reason.contains("--disk-gbps") && reason.contains("holes"),
            "{reason}"
        );
    }
}
