//! Checks that find what is wrong, and nothing else.

use std::fs;

use k3_formats::manifest::{MANIFEST_NAME, RangeContent, hex};
use k3_integrity::check::{BadKind, Check, SampleAmount, Selection};
use k3_integrity::record::{FetchRecord, RecordedFile};
use k3_integrity::{IntegrityError, Silent};
use k3_io::{Digest, HashKind};

use crate::support::{check, check_settings, checkpoint, flip, make_manifest, model, shard};

#[test]
fn a_good_checkpoint_is_good() {
    let dir = checkpoint();
    let report = check(dir.path());
    assert!(report.is_good(), "{report:?}");
    assert_eq!(report.checked_ranges, report.total_ranges);
    assert_eq!(report.checked_bytes, report.total_bytes);
    assert_eq!(
        (report.hash.as_str(), report.selection.as_str()),
        ("blake3", "all")
    );
}

#[test]
fn every_flipped_byte_is_found_in_its_range() {
    let dir = checkpoint();
    let manifest = make_manifest(dir.path());
    let ranges = manifest.ranges();
    for (number, range) in ranges.iter().enumerate().step_by(ranges.len() / 40) {
        let file = &manifest.files()[range.file];
        let path = dir.path().join(&file.name);
        for offset in [range.offset, range.offset + range.bytes - 1] {
            let good = fs::read(&path).unwrap();
            flip(&path, offset);
            let report = check(dir.path());
            assert_eq!(report.bad.len(), 1, "{number}: {report:?}");
            let bad = &report.bad[0];
            assert_eq!(
                (&bad.file, bad.offset, bad.bytes),
                (&file.name, range.offset, range.bytes)
            );
            assert_eq!(
                (bad.content.clone(), bad.kind),
                (range.content.to_string(), BadKind::Mismatch)
            );
            assert_eq!(bad.expected, Some(hex(&range.hash)));
            assert_ne!(bad.found, bad.expected);
            assert!(report.complete && report.bad_bytes == range.bytes);
            fs::write(&path, good).unwrap();
        }
    }
}

#[test]
fn files_that_are_missing_short_or_long_are_told_as_such() {
    let dir = checkpoint();
    let manifest = make_manifest(dir.path());
    fs::remove_file(shard(dir.path(), 1)).unwrap();
    let path = shard(dir.path(), 2);
    let bytes = fs::read(&path).unwrap();
    let file = manifest
        .files()
        .iter()
        .position(|file| path.ends_with(&file.name))
        .unwrap();
    let ranges = manifest.ranges_of(&manifest.files()[file]);
    let cut = &ranges[ranges.len() - 2];
    fs::write(&path, &bytes[..usize::try_from(cut.offset).unwrap() + 1]).unwrap();
    let path = dir.path().join("config.json");
    let mut longer = fs::read(&path).unwrap();
    longer.extend_from_slice(b"  \n");
    fs::write(&path, longer).unwrap();
    let report = check(dir.path());
    let found: Vec<_> = report
        .bad
        .iter()
        .map(|bad| (bad.kind, bad.offset, bad.bytes))
        .collect();
    let first = &manifest.files()[0];
    let last = ranges.last().unwrap();
    let config = manifest
        .files()
        .iter()
        .find(|file| file.name == "config.json")
        .unwrap();
    assert_eq!(
        found,
        [
            (BadKind::Missing, 0, first.bytes),
            (BadKind::Short, cut.offset, cut.bytes),
            (BadKind::Short, last.offset, last.bytes),
            (BadKind::Long, config.bytes, 3),
        ]
    );
}

#[test]
fn a_sample_is_drawn_from_its_seed() {
    let dir = checkpoint();
    let run = |amount, seed| {
        let selection = Selection::Sample { amount, seed };
        Check::new(check_settings(dir.path(), selection))
            .unwrap()
            .run(&Silent)
            .unwrap()
    };
    let third = run(SampleAmount::Share(0.3), 7);
    assert!(third.is_good() && third.seed == Some(7));
    let share = third.checked_bytes as f64 / third.total_bytes as f64;
    assert!((0.3..0.6).contains(&share), "{share}");
    assert_eq!(
        run(SampleAmount::Share(0.3), 7).checked_bytes,
        third.checked_bytes
    );
    let others: Vec<u64> = (0..5)
        .map(|seed| run(SampleAmount::Count(6), seed).checked_bytes)
        .collect();
    assert!(others.iter().any(|bytes| *bytes != others[0]), "{others:?}");
    assert_eq!(run(SampleAmount::Count(6), 1).checked_ranges, 6);
    let all = run(SampleAmount::Count(u64::MAX), 1);
    assert_eq!(all.checked_bytes, all.total_bytes);
    assert_eq!(
        run(SampleAmount::Share(1.0), 3).checked_bytes,
        all.total_bytes
    );
}

#[test]
fn a_layer_is_looked_at_alone() {
    let dir = checkpoint();
    let manifest = make_manifest(dir.path());
    let of = |layer: u16| {
        let ranges = manifest.ranges().iter();
        ranges.filter(move |range| range.content.layer() == Some(layer))
    };
    let expert = of(3)
        .find(|range| matches!(range.content, RangeContent::Expert { .. }))
        .unwrap();
    let file = &manifest.files()[expert.file];
    flip(&dir.path().join(&file.name), expert.offset + 5);
    let run = |layer| {
        Check::new(check_settings(dir.path(), Selection::Layer(layer)))
            .and_then(|check| check.run(&Silent))
    };
    let report = run(3).unwrap();
    assert_eq!(
        report.checked_bytes,
        of(3).map(|range| range.bytes).sum::<u64>()
    );
    assert_eq!(report.bad.len(), 1);
    assert!(
        report.bad[0].content.starts_with("layer 3 expert "),
        "{report:?}"
    );
    assert!(run(4).unwrap().is_good());
    let error = run(7).unwrap_err().to_string();
    assert!(error.contains("layers 0 to 6"), "{error}");
}

#[test]
fn shards_are_found_on_their_roots() {
    let dir = checkpoint();
    let root = tempfile::tempdir().unwrap();
    for number in [2, 4] {
        fs::rename(shard(dir.path(), number), shard(root.path(), number)).unwrap();
    }
    let mut settings = check_settings(dir.path(), Selection::All);
    settings.roots = vec![root.path().to_owned()];
    assert!(
        Check::new(settings.clone())
            .unwrap()
            .run(&Silent)
            .unwrap()
            .is_good()
    );
    flip(&shard(root.path(), 4), 5000);
    let report = Check::new(settings).unwrap().run(&Silent).unwrap();
    assert_eq!(report.bad.len(), 1);
}

#[test]
fn a_manifest_of_another_checkpoint_is_refused_and_damage_is_not_one() {
    let dir = checkpoint();
    let other = tempfile::tempdir().unwrap();
    k3_testkit::TinySpec::small(5)
        .shards(4)
        .experts(9, 2)
        .write_to(other.path())
        .unwrap();
    fs::copy(
        dir.path().join(MANIFEST_NAME),
        other.path().join(MANIFEST_NAME),
    )
    .unwrap();
    let error = Check::new(check_settings(other.path(), Selection::All)).unwrap_err();
    assert!(
        matches!(error, IntegrityError::OtherIdentity { .. }),
        "{error}"
    );
    // A damaged header, or configuration, is found instead.
    flip(&shard(dir.path(), 1), 20);
    flip(&dir.path().join("config.json"), 5);
    let bad: Vec<_> = check(dir.path())
        .bad
        .into_iter()
        .map(|bad| bad.content)
        .collect();
    assert_eq!(bad, ["header", "whole file"]);
}

#[test]
fn nothing_to_compare_with_and_nothing_to_compare_are_told() {
    let dir = checkpoint();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut settings = check_settings(elsewhere.path(), Selection::All);
    let error = Check::new(settings.clone()).unwrap_err();
    assert!(matches!(error, IntegrityError::NoBasis { .. }), "{error}");
    settings.manifest = Some(dir.path().join(MANIFEST_NAME));
    let error = Check::new(settings.clone()).unwrap_err();
    assert!(matches!(error, IntegrityError::NoFiles { .. }), "{error}");
    flip(&dir.path().join(MANIFEST_NAME), 300);
    settings.model = dir.path().to_owned();
    let error = Check::new(settings).unwrap_err().to_string();
    assert!(
        error.contains("root hash") && error.contains(MANIFEST_NAME),
        "{error}"
    );
}

#[test]
fn without_a_manifest_the_hashes_of_the_download_count() {
    let dir = checkpoint();
    fs::remove_file(dir.path().join(MANIFEST_NAME)).unwrap();
    let mut record = FetchRecord::new("http://hub", "a/b", "main", "c0ffee");
    for file in model().iter().filter(|file| !file.name.contains('/')) {
        let mut digest = Digest::new(HashKind::Sha256);
        digest.update(&file.bytes);
        record.put(RecordedFile {
            path: file.name.clone(),
            bytes: file.bytes.len() as u64,
            sha256: hex(&digest.finish()),
            oid: String::new(),
        });
    }
    record.write(dir.path()).unwrap();
    let report = check(dir.path());
    assert!(report.is_good() && report.hash == "sha256", "{report:?}");
    flip(&shard(dir.path(), 3), 4000);
    let report = check(dir.path());
    assert_eq!(report.bad.len(), 1);
    assert_eq!(report.bad[0].content, "whole file");
    let layer = Check::new(check_settings(dir.path(), Selection::Layer(1))).unwrap_err();
    assert!(matches!(layer, IntegrityError::LayersUnknown), "{layer}");
}

#[test]
fn a_report_survives_its_json() {
    let dir = checkpoint();
    flip(&shard(dir.path(), 3), 4000);
    let report = check(dir.path());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<k3_integrity::check::CheckReport>(&text).unwrap(),
        report
    );
}
