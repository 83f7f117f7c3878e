//! Downloads that go as they should, stop, and go on.

use std::fs;

use k3_integrity::IntegrityError;
use k3_integrity::http::Token;
use k3_integrity::record::FetchRecord;
use k3_testkit::hub::{HUB_COMMIT, Hub};

use crate::support::{
    Notes, PART_BYTES, contents, hub, largest, model, published, run, run_with, settings,
};

#[test]
fn a_snapshot_comes_whole_and_only_once() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/model");
    let (summary, notes) = run(&settings(&hub, &out));
    let summary = summary.unwrap();
    assert_eq!(contents(&out), published());
    let total: u64 = model().iter().map(|file| file.bytes.len() as u64).sum();
    assert_eq!((summary.file_count, summary.kept_count), (model().len(), 0));
    assert_eq!((summary.total_bytes, summary.fetched_bytes), (total, total));
    assert_eq!(summary.commit, HUB_COMMIT);
    assert_eq!(notes.text(), "[checking]\n[fetching]");
    assert_eq!(notes.done(), total);
    assert_eq!(hub.sent_bytes(), total);
    // Every request for a file names the commit, not the branch.
    let log = hub.log();
    assert!(
        log.iter()
            .any(|exchange| exchange.target.contains("/revision/main"))
    );
    let of_files = log
        .iter()
        .filter(|exchange| exchange.target.contains("/resolve/"));
    assert!(of_files.clone().count() > model().len());
    assert!(
        of_files
            .clone()
            .all(|exchange| exchange.target.contains(HUB_COMMIT))
    );
    let longest = of_files
        .filter_map(|exchange| exchange.range)
        .map(|(first, last)| last - first + 1);
    assert_eq!(longest.max(), Some(PART_BYTES));
    let record = FetchRecord::read(&out).unwrap().unwrap();
    assert_eq!(
        (record.commit.as_str(), record.revision.as_str()),
        (HUB_COMMIT, "main")
    );
    assert_eq!(record.files.len(), model().len());
    // Again: nothing is left to do.
    hub.clear_log();
    let (summary, _) = run(&settings(&hub, &out));
    let summary = summary.unwrap();
    assert_eq!(
        (summary.kept_count, summary.fetched_bytes),
        (model().len(), 0)
    );
    assert_eq!(hub.sent_bytes(), 0);
    let text = fs::read_to_string(out.join("k3-fetch.json")).unwrap();
    assert!(text.contains(HUB_COMMIT) && text.contains(&hub.endpoint()));
}

#[test]
fn patterns_choose_files() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.include = vec!["*.json".parse().unwrap(), "*.model".parse().unwrap()];
    settings.exclude = vec!["*index*".parse().unwrap()];
    run(&settings).0.unwrap();
    let names: Vec<String> = contents(dir.path()).into_keys().collect();
    assert_eq!(names, ["config.json", "tiktoken.model"]);
    settings.include = vec!["*.gguf".parse().unwrap()];
    let error = run(&settings).0.unwrap_err();
    assert!(
        matches!(error, IntegrityError::NothingSelected { .. }),
        "{error}"
    );
    // All the rest, what is here being kept.
    (settings.include, settings.exclude) = (Vec::new(), Vec::new());
    assert_eq!(run(&settings).0.unwrap().kept_count, 2);
    assert_eq!(contents(dir.path()), published());
}

#[test]
fn what_was_interrupted_goes_on() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&hub, dir.path());
    let total: u64 = model().iter().map(|file| file.bytes.len() as u64).sum();
    let mut rounds = 0;
    loop {
        let notes = Notes {
            stop_after: Some(i64::try_from(total / 3).unwrap()),
            ..Notes::default()
        };
        match run_with(&settings, notes).0 {
            Ok(_) => break,
            Err(IntegrityError::Interrupted) => {
                rounds += 1;
                // The progress of a round counts what was there before.
                assert!(rounds < 60);
                let names = contents(dir.path());
                let complete = names.keys().filter(|name| !name.starts_with(".k3-fetch/"));
                for name in complete {
                    assert_eq!(names[name], published()[name], "{name}");
                }
            }
            Err(error) => panic!("{error}"),
        }
        if rounds == 1 {
            // Bytes of a part under way come again at most.
            assert!(hub.sent_bytes() >= total / 3);
        }
        if rounds >= 3 {
            run(&settings).0.unwrap();
            break;
        }
    }
    assert!(rounds > 0);
    assert_eq!(contents(dir.path()), published());
    let sent = hub.sent_bytes();
    assert!(
        sent < total + total / 2 + 20 * PART_BYTES,
        "{sent} of {total}"
    );
}

#[test]
fn a_journal_names_what_is_missing_and_only_that_comes() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    let (name, bytes) = largest();
    settings.include = vec![name.parse().unwrap()];
    settings.parallel = 1;
    settings.retry.tries = 1;
    // Two parts, then the network is gone.
    hub.misbehave(&name, 2, usize::MAX, k3_testkit::hub::HubFault::Silence);
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(error.contains("without progress"), "{error}");
    assert_eq!(hub.sent_bytes(), 2 * PART_BYTES);
    drop(hub);
    let hub = self::hub();
    settings.endpoint = hub.endpoint();
    let (summary, notes) = run(&settings);
    assert_eq!(
        summary.unwrap().fetched_bytes,
        bytes.len() as u64 - 2 * PART_BYTES
    );
    assert_eq!(hub.sent_bytes(), bytes.len() as u64 - 2 * PART_BYTES);
    assert_eq!(notes.done(), bytes.len() as u64);
    assert_eq!(contents(dir.path())[&name], bytes);
    assert_eq!(contents(dir.path()).len(), 1, "nothing unfinished stays");
}

/// What a kill leaves between giving a file its name and the end of its download.
#[test]
fn what_was_unfinished_of_a_file_that_is_here_goes() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&hub, dir.path());
    run(&settings).0.unwrap();
    for leftover in ["part.journal", "part"] {
        let parts = dir.path().join(".k3-fetch");
        std::fs::create_dir(&parts).unwrap();
        let (name, _) = largest();
        std::fs::write(parts.join(format!("{name}.{leftover}")), "rest").unwrap();
        assert_eq!(run(&settings).0.unwrap().fetched_bytes, 0);
        assert_eq!(contents(dir.path()), published(), "{leftover}");
        assert!(!parts.exists(), "{leftover}");
    }
}

#[test]
fn another_version_of_an_unfinished_file_begins_anew() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    let (name, mut bytes) = largest();
    settings.include = vec![name.parse().unwrap()];
    settings.parallel = 1;
    settings.retry.tries = 1;
    hub.misbehave(&name, 2, 1, k3_testkit::hub::HubFault::Silence);
    run(&settings).0.unwrap_err();
    bytes[5] ^= 1;
    hub.publish(&name, &bytes);
    let (summary, notes) = run(&settings);
    assert_eq!(summary.unwrap().fetched_bytes, bytes.len() as u64);
    assert!(
        notes
            .text()
            .contains("another version of it was being fetched"),
        "{}",
        notes.text()
    );
    assert_eq!(contents(dir.path())[&name], bytes);
    // And so does a complete one, while the former stays until then.
    bytes[6] ^= 1;
    hub.publish(&name, &bytes);
    let (summary, notes) = run(&settings);
    assert_eq!(summary.unwrap().fetched_bytes, bytes.len() as u64);
    assert!(
        notes.text().contains("not what was published"),
        "{}",
        notes.text()
    );
    assert_eq!(contents(dir.path())[&name], bytes);
}

#[test]
fn files_that_are_here_are_taken_for_what_their_hash_says() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let (name, bytes) = largest();
    fs::write(dir.path().join(&name), &bytes).unwrap();
    fs::write(dir.path().join("config.json"), &published()["config.json"]).unwrap();
    let wrong = vec![7; published()["tiktoken.model"].len()];
    fs::write(dir.path().join("tiktoken.model"), wrong).unwrap();
    let (summary, notes) = run(&settings(&hub, dir.path()));
    assert_eq!(summary.unwrap().kept_count, 2);
    assert!(
        notes.text().contains("tiktoken.model: what is here"),
        "{}",
        notes.text()
    );
    assert_eq!(contents(dir.path()), published());
    // Damage behind the record's back is found when asked for.
    crate::support::flip(&dir.path().join(&name), 12_345);
    assert_eq!(run(&settings(&hub, dir.path())).0.unwrap().fetched_bytes, 0);
    let mut settings = settings(&hub, dir.path());
    settings.recheck = true;
    assert_eq!(run(&settings).0.unwrap().fetched_bytes, bytes.len() as u64);
    assert_eq!(contents(dir.path()), published());
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let (hub, store) = (hub(), hub());
    hub.redirect_to(&store);
    hub.require_token("hf_secret");
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(
        error.contains("401") && error.contains("HF_TOKEN"),
        "{error}"
    );
    settings.token = Token::new("hf_wrong");
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(!error.contains("hf_wrong"), "{error}");
    settings.token = Token::new("hf_secret");
    let (summary, notes) = run(&settings);
    summary.unwrap();
    assert_eq!(contents(dir.path()), published());
    let theirs = store.log();
    assert!(theirs.len() > 5, "large files come from there");
    assert!(
        theirs
            .iter()
            .all(|exchange| exchange.authorization.is_none())
    );
    assert!(
        theirs
            .iter()
            .all(|exchange| exchange.target.ends_with("?signature=secret"))
    );
    let asked = hub.log();
    let ours = asked
        .iter()
        .filter(|exchange| exchange.status == 200 || exchange.status == 302);
    assert!(ours.clone().count() > 5);
    assert!(
        ours.clone()
            .all(|exchange| exchange.authorization.as_deref() == Some("Bearer hf_secret"))
    );
    // Where a file was redirected to is asked again without a detour.
    let redirects = asked
        .iter()
        .filter(|exchange| exchange.status == 302)
        .count();
    assert!(
        redirects < theirs.len(),
        "{redirects} redirects, {} parts",
        theirs.len()
    );
    for bytes in contents(dir.path()).values() {
        assert!(!bytes.windows(9).any(|part| part == b"hf_secret"));
    }
    let record = fs::read_to_string(dir.path().join("k3-fetch.json")).unwrap();
    assert!(!record.contains("secret") && !notes.text().contains("secret"));
}

#[test]
fn a_directory_is_one_download_s_and_one_repository_s() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".k3-fetch")).unwrap();
    let lock = fs::File::create(dir.path().join(".k3-fetch/lock")).unwrap();
    lock.try_lock().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err();
    assert!(matches!(error, IntegrityError::Busy { .. }), "{error}");
    drop(lock);
    FetchRecord::new("http://h", "other/model", "main", HUB_COMMIT)
        .write(dir.path())
        .unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err();
    assert!(matches!(error, IntegrityError::OtherRepo { .. }), "{error}");
}

#[test]
fn too_little_space_is_known_before_anything_comes() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.reserve_bytes = u64::MAX / 2;
    let error = run(&settings).0.unwrap_err();
    assert!(matches!(error, IntegrityError::NoSpace { .. }), "{error}");
    assert_eq!(hub.sent_bytes(), 0);
}

/// A hub can say anything of a length: nothing is reserved for it before it has
/// been compared with the disk.
#[test]
fn a_file_that_no_disk_holds_is_refused_at_once() {
    for bytes in [1 << 47, 1 << 55, u64::MAX / 2, (1 << 63) - 1] {
        let hub = hub();
        hub.claim("tiktoken.model", bytes);
        let dir = tempfile::tempdir().unwrap();
        let error = run(&settings(&hub, dir.path())).0.unwrap_err();
        let IntegrityError::NoSpace { needed_bytes, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(needed_bytes, bytes);
        assert_eq!(hub.sent_bytes(), 0);
    }
}

#[test]
fn what_is_no_hub_no_repository_or_no_revision_is_told() {
    let hub = hub();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.revision = "no-such".to_owned();
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(
        error.contains("404") && error.contains("no-such"),
        "{error}"
    );
    settings.revision = "main".to_owned();
    settings.repo = "other/repo".to_owned();
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(error.contains("404"), "{error}");
    settings.repo = "no-owner".to_owned();
    run(&settings).0.unwrap_err();
    settings.endpoint = "ftp://hub".to_owned();
    run(&settings).0.unwrap_err();
    assert!(
        dir.path().read_dir().unwrap().next().is_none(),
        "nothing is made"
    );
    let nobody = Hub::start(&[]).endpoint();
    let mut settings = self::settings(&hub, dir.path());
    settings.endpoint = nobody;
    let error = run(&settings).0.unwrap_err().to_string();
    assert!(error.contains("without progress"), "{error}");
}
