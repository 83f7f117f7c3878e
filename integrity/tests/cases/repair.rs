//! Repairs that fetch what is bad, and nothing else.

use std::fs;

use k3_formats::manifest::{MANIFEST_NAME, RangeContent};
use k3_integrity::check::CheckReport;
use k3_integrity::repair::{BadList, Fate, repair};
use k3_integrity::{IntegrityError, Silent};
use k3_testkit::hub::HubFault;

use crate::support::{
    Notes, check, checkpoint, contents, flip, hub, make_manifest, repair_settings, run, settings,
    shard,
};

#[test]
fn only_the_bad_ranges_come_and_the_bytes_are_the_old_ones() {
    let (hub, dir) = (hub(), checkpoint());
    let good = contents(dir.path());
    let manifest = make_manifest(dir.path());
    let is_expert = |range: &&k3_formats::manifest::ManifestRange| {
        matches!(range.content, RangeContent::Expert { .. })
    };
    let expert = manifest.ranges().iter().filter(is_expert).nth(7).unwrap();
    let header = &manifest.ranges()[0];
    let name = |file: usize| dir.path().join(&manifest.files()[file].name);
    flip(&name(expert.file), expert.offset + 9);
    flip(&name(header.file), 30);
    flip(&dir.path().join("tiktoken.model"), 3);
    let summary = repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
    assert_eq!((summary.ranges.len(), summary.left()), (3, 0));
    assert!(
        summary
            .ranges
            .iter()
            .all(|range| range.fate == Fate::Mended)
    );
    let wanted = expert.bytes + header.bytes + good["tiktoken.model"].len() as u64;
    assert_eq!((summary.fetched_bytes, hub.sent_bytes()), (wanted, wanted));
    assert!(hub.log().iter().all(|exchange| exchange.status == 206));
    assert!(contents(dir.path()) == good);
    assert!(check(dir.path()).is_good());
    // And again there is nothing to do.
    let summary = repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
    assert!(summary.ranges.is_empty() && hub.sent_bytes() == wanted);
}

#[test]
fn a_known_list_is_looked_at_again_before_anything_is_written() {
    let (hub, dir) = (hub(), checkpoint());
    let good = contents(dir.path());
    flip(&shard(dir.path(), 1), 40_000);
    flip(&shard(dir.path(), 3), 40_000);
    let report = check(dir.path());
    // One of them is good by now.
    flip(&shard(dir.path(), 3), 40_000);
    let mut settings = repair_settings(&hub, dir.path());
    settings.bad = Some(listed(report.clone()));
    settings.dry_run = true;
    let summary = repair(&settings, &Silent).unwrap();
    let fates: Vec<_> = summary
        .ranges
        .iter()
        .map(|range| range.fate.clone())
        .collect();
    assert_eq!(fates, [Fate::Planned, Fate::Good]);
    assert_eq!(hub.sent_bytes(), 0);
    settings.dry_run = false;
    let summary = repair(&settings, &Silent).unwrap();
    let fates: Vec<_> = summary
        .ranges
        .iter()
        .map(|range| range.fate.clone())
        .collect();
    assert_eq!(fates, [Fate::Mended, Fate::Good]);
    assert_eq!(hub.sent_bytes(), report.bad[0].bytes);
    assert!(contents(dir.path()) == good);
    // Ranges that are not the manifest's are no ranges.
    for change in [0, 1, 2] {
        let mut wrong = report.clone();
        match change {
            0 => wrong.bad[0].offset += 1,
            1 => wrong.bad[0].file = "../../etc/passwd".to_owned(),
            _ => wrong.version = 9,
        }
        settings.bad = Some(listed(wrong));
        let error = repair(&settings, &Silent).unwrap_err();
        assert!(matches!(error, IntegrityError::Report { .. }), "{error}");
        assert!(error.to_string().contains("found.json"), "{error}");
    }
}

/// A list that was read from a file.
fn listed(report: CheckReport) -> BadList {
    BadList {
        path: "found.json".into(),
        report,
    }
}

#[test]
fn missing_short_and_long_files_become_whole() {
    let (hub, dir) = (hub(), checkpoint());
    let good = contents(dir.path());
    fs::remove_file(shard(dir.path(), 2)).unwrap();
    let path = shard(dir.path(), 4);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let path = dir.path().join("config.json");
    fs::write(&path, [fs::read(&path).unwrap(), b"more".to_vec()].concat()).unwrap();
    let summary = repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
    assert_eq!(summary.left(), 0, "{summary:?}");
    assert!(contents(dir.path()) == good);
    let missing = good["model-00002-of-00004.safetensors"].len();
    assert!(hub.sent_bytes() < (missing + bytes.len() / 2) as u64);
}

#[test]
fn what_is_served_wrong_is_never_written() {
    let dir = checkpoint();
    let path = shard(dir.path(), 1);
    flip(&path, 40_000);
    let before = contents(dir.path());
    for fault in [
        HubFault::FlipByte,
        HubFault::IgnoreRange,
        HubFault::WrongRange(1),
        HubFault::Status(404, None),
        HubFault::LongLength(1),
        HubFault::ShortLength(1),
    ] {
        let hub = hub();
        hub.misbehave("safetensors", 0, usize::MAX, fault.clone());
        let summary = repair(&repair_settings(&hub, dir.path()), &Silent);
        let summary = summary.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(summary.left(), 1, "{fault:?}: {summary:?}");
        assert!(contents(dir.path()) == before, "{fault:?}");
    }
    let hub = hub();
    hub.misbehave("safetensors", 0, usize::MAX, HubFault::Status(403, None));
    repair(&repair_settings(&hub, dir.path()), &Silent).unwrap_err();
    assert!(contents(dir.path()) == before);
}

#[test]
fn breaks_on_the_way_are_gone_on_with() {
    for fault in [
        HubFault::Truncate(100),
        HubFault::Reset(100),
        HubFault::Silence,
        HubFault::Status(503, None),
        HubFault::FlipByte,
        HubFault::WrongRange(2),
    ] {
        let (hub, dir) = (hub(), checkpoint());
        let good = contents(dir.path());
        flip(&shard(dir.path(), 1), 40_000);
        hub.misbehave("safetensors", 0, 1, fault.clone());
        let summary = repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
        assert_eq!(summary.left(), 0, "{fault:?}: {summary:?}");
        assert!(contents(dir.path()) == good, "{fault:?}");
    }
}

#[test]
fn an_address_with_a_query_is_no_place_of_files() {
    let (hub, dir) = (hub(), checkpoint());
    for more in ["?signature=secret", "#secret"] {
        let mut settings = repair_settings(&hub, dir.path());
        settings.from = Some(hub.files_address() + more);
        let said = repair(&settings, &Silent).unwrap_err().to_string();
        assert!(
            said.contains("any ? or #") && !said.contains("secret"),
            "{said}"
        );
    }
    let mut of_hub = settings(&hub, dir.path());
    of_hub.endpoint += "/?a=b";
    let said = run(&of_hub).0.unwrap_err().to_string();
    assert!(said.contains("any ? or #"), "{said}");
    assert!(hub.log().is_empty());
}

#[test]
fn an_interruption_leaves_good_ranges_good() {
    let (hub, dir) = (hub(), checkpoint());
    let good = contents(dir.path());
    fs::remove_file(shard(dir.path(), 2)).unwrap();
    let mut settings = repair_settings(&hub, dir.path());
    settings.bad = Some(listed(check(dir.path())));
    let notes = Notes {
        stop_after: Some(50_000),
        ..Notes::default()
    };
    let error = repair(&settings, &notes).unwrap_err();
    assert!(matches!(error, IntegrityError::Interrupted), "{error}");
    // What is there of the file is right, and its end is where that ends.
    let part = fs::read(shard(dir.path(), 2)).unwrap();
    let whole = &good["model-00002-of-00004.safetensors"];
    assert!(
        part.len() < whole.len() && whole.starts_with(&part),
        "{}",
        part.len()
    );
    let hidden = contents(dir.path())
        .into_keys()
        .filter(|name| name.ends_with(".repair"));
    assert_eq!(hidden.count(), 0);
    repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
    assert!(contents(dir.path()) == good);
}

#[test]
fn a_manifest_of_another_checkpoint_repairs_nothing() {
    let (hub, dir) = (hub(), checkpoint());
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
    let before = contents(other.path());
    let error = repair(&repair_settings(&hub, other.path()), &Silent).unwrap_err();
    assert!(
        matches!(error, IntegrityError::OtherIdentity { .. }),
        "{error}"
    );
    assert!(contents(other.path()) == before && hub.sent_bytes() == 0);
}

/// A killed repair leaves the range it was fetching; by the next time that range
/// may be good.
#[test]
fn what_killed_repairs_left_goes_and_what_another_fetches_stays() {
    let (hub, dir) = (hub(), checkpoint());
    make_manifest(dir.path());
    let shard = shard(dir.path(), 1);
    let name = shard.file_name().unwrap().to_str().unwrap();
    let aside = |digits: &str| dir.path().join(format!(".{name}.{digits}.repair"));
    let others = [
        dir.path().join(format!(".{name}.x.repair")),
        dir.path().join("12.repair"),
    ];
    for path in [&aside("4096"), &aside("8192")].into_iter().chain(&others) {
        fs::write(path, "half").unwrap();
    }
    let held = fs::File::open(aside("8192")).unwrap();
    held.try_lock().unwrap();
    let summary = repair(&repair_settings(&hub, dir.path()), &Silent).unwrap();
    assert!(summary.ranges.is_empty());
    assert!(!aside("4096").exists() && aside("8192").exists());
    assert!(others.iter().all(|path| path.exists()));
}

#[test]
fn what_was_fetched_is_repaired_from_where_it_came() {
    let (hub, store) = (hub(), hub());
    hub.redirect_to(&store);
    let dir = tempfile::tempdir().unwrap();
    run(&settings(&hub, dir.path())).0.unwrap();
    let mut from_record = repair_settings(&hub, dir.path());
    from_record.from = None;
    let error = repair(&from_record, &Silent).unwrap_err();
    assert!(
        matches!(error, IntegrityError::NoManifest { .. }),
        "{error}"
    );
    make_manifest(dir.path());
    let good = contents(dir.path());
    flip(&shard(dir.path(), 1), 40_000);
    store.clear_log();
    let summary = repair(&from_record, &Silent).unwrap();
    assert_eq!(summary.left(), 0);
    assert_eq!(store.sent_bytes(), summary.fetched_bytes);
    assert!(contents(dir.path()) == good);
    fs::remove_file(dir.path().join("k3-fetch.json")).unwrap();
    let error = repair(&from_record, &Silent).unwrap_err();
    assert!(matches!(error, IntegrityError::NoOrigin { .. }), "{error}");
}
