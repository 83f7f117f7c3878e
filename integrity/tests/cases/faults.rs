//! Downloads from a hub that misbehaves.

use std::time::{Duration, Instant};

use k3_integrity::IntegrityError;
use k3_testkit::hub::{Hub, HubFault};

use crate::support::{
    Notes, PART_BYTES, contents, hub, largest, published, run, run_with, settings,
};

/// Fetches through `fault`, which must do no harm; what was told.
#[track_caller]
fn survives(after: usize, times: usize, fault: HubFault) -> String {
    let hub = hub();
    let (name, _) = largest();
    hub.misbehave(&name, after, times, fault.clone());
    let dir = tempfile::tempdir().unwrap();
    let (summary, notes) = run(&settings(&hub, dir.path()));
    let summary = summary.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    assert!(hub.all_faults_done(), "{fault:?} was not asked for");
    assert!(contents(dir.path()) == published(), "{fault:?}");
    let done = notes.done();
    assert_eq!(done, summary.total_bytes, "{fault:?}: the progress adds up");
    notes.text()
}

#[test]
fn connections_that_end_early_are_gone_on_with() {
    for fault in [
        HubFault::Truncate(0),
        HubFault::Truncate(7_777),
        HubFault::Reset(0),
        HubFault::Reset(9_999),
        HubFault::Silence,
    ] {
        for (after, times) in [(0, 3), (2, 1)] {
            let told = survives(after, times, fault.clone());
            assert!(told.contains("trying again"), "{fault:?}: {told}");
        }
    }
}

#[test]
fn what_came_before_a_break_does_not_come_again() {
    let hub = hub();
    let (name, bytes) = largest();
    hub.misbehave(&name, 1, 1, HubFault::Truncate(PART_BYTES - 10));
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.include = vec![name.parse().unwrap()];
    settings.parallel = 1;
    run(&settings).0.unwrap();
    assert_eq!(hub.sent_bytes(), bytes.len() as u64);
    let ranges: Vec<_> = hub
        .log()
        .iter()
        .filter_map(|exchange| exchange.range)
        .collect();
    assert!(
        ranges.contains(&(2 * PART_BYTES - 10, 2 * PART_BYTES - 1)),
        "{ranges:?}"
    );
}

#[test]
fn wrong_lengths_and_places_are_not_believed() {
    for fault in [
        HubFault::LongLength(5),
        HubFault::ShortLength(5),
        HubFault::WrongRange(1),
    ] {
        let told = survives(1, 2, fault.clone());
        assert!(told.contains("trying again"), "{fault:?}: {told}");
    }
    // The whole of a small file as well.
    for fault in [
        HubFault::LongLength(5),
        HubFault::ShortLength(1),
        HubFault::Truncate(3),
        HubFault::Unstated(4),
    ] {
        let hub = hub();
        hub.misbehave("config.json", 0, 1, fault.clone());
        let dir = tempfile::tempdir().unwrap();
        run(&settings(&hub, dir.path())).0.unwrap();
        assert!(contents(dir.path()) == published(), "{fault:?}");
    }
    survives(1, 1, HubFault::Unstated(0));
    survives(1, 1, HubFault::Unstated(9));
}

#[test]
fn a_server_that_always_lies_is_given_up_and_named() {
    let hub = hub();
    let (name, _) = largest();
    hub.misbehave(&name, 0, usize::MAX, HubFault::WrongRange(3));
    let dir = tempfile::tempdir().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err();
    let IntegrityError::Incomplete { failures, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0].starts_with(&name) && failures[0].contains("answers with \"bytes "),
        "{error}"
    );
    // The others are here all the same.
    let mut wanted = published();
    wanted.remove(&name);
    let mut found = contents(dir.path());
    found.retain(|name, _| !name.starts_with(".k3-fetch/"));
    assert!(found == wanted);
}

#[test]
fn a_server_without_ranges_gives_whole_files() {
    for (after, fault_times) in [(0, usize::MAX), (1, usize::MAX), (3, 2)] {
        let hub = hub();
        let (name, _) = largest();
        hub.misbehave(&name, after, fault_times, HubFault::IgnoreRange);
        let dir = tempfile::tempdir().unwrap();
        let (summary, notes) = run(&settings(&hub, dir.path()));
        let summary = summary.unwrap();
        assert!(contents(dir.path()) == published());
        assert!(notes.text().contains("gives no parts"), "{}", notes.text());
        let done = notes.done();
        assert_eq!(done, summary.total_bytes);
    }
}

#[test]
fn refusals_that_pass_are_waited_for() {
    for status in [408, 429, 500, 502, 503, 504] {
        survives(1, 2, HubFault::Status(status, None));
    }
    let started = Instant::now();
    let told = survives(1, 1, HubFault::Status(429, Some("1".to_owned())));
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert!(told.contains("429") && told.contains("1.0 s"), "{told}");
    survives(
        1,
        1,
        HubFault::Status(503, Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned())),
    );
    // Longer than anybody waits.
    let hub = hub();
    hub.misbehave(
        "config.json",
        0,
        1,
        HubFault::Status(429, Some("86400".to_owned())),
    );
    let dir = tempfile::tempdir().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err().to_string();
    assert!(error.contains("86400 s"), "{error}");
}

#[test]
fn refusals_that_stay_end_the_file_or_everything() {
    for (status, everything) in [(404, false), (410, false), (401, true), (403, true)] {
        let hub = hub();
        hub.misbehave("config.json", 0, usize::MAX, HubFault::Status(status, None));
        let dir = tempfile::tempdir().unwrap();
        let error = run(&settings(&hub, dir.path())).0.unwrap_err();
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        let is_one = matches!(error, IntegrityError::Incomplete { .. });
        assert_eq!(is_one, !everything, "{error}");
        let asked = hub
            .log()
            .iter()
            .filter(|exchange| exchange.status == status)
            .count();
        assert_eq!(asked, 1, "{status} is not asked again");
    }
    // A network that is gone ends everything after a bounded number of tries.
    let hub = hub();
    hub.misbehave("", 0, usize::MAX, HubFault::Silence);
    let dir = tempfile::tempdir().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err().to_string();
    assert!(error.contains("after 5 tries"), "{error}");
    let silent = hub
        .log()
        .iter()
        .filter(|exchange| exchange.status == 0)
        .count();
    assert!(silent <= 15 + 3, "{silent} requests");
}

#[test]
fn a_file_that_is_shorter_on_the_server_is_told() {
    let hub = hub();
    let (name, bytes) = largest();
    hub.change(&name, bytes[..bytes.len() / 2].to_vec());
    let dir = tempfile::tempdir().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
    assert!(!dir.path().join(&name).exists());
}

#[test]
fn redirects_are_followed_and_bounded() {
    let (hub, other) = (hub(), hub());
    let (name, _) = largest();
    let there = format!("{}/{name}", other.files_address());
    hub.misbehave(&name, 0, 1, HubFault::Redirect(there));
    let relative = format!("{name}?again");
    hub.misbehave(&name, 0, 1, HubFault::Redirect(relative));
    let dir = tempfile::tempdir().unwrap();
    run(&settings(&hub, dir.path())).0.unwrap();
    assert!(contents(dir.path()) == published());
    assert!(other.sent_bytes() > 0);
    for to in ["config.json", "ftp://elsewhere/x"] {
        let hub = self::hub();
        hub.misbehave(
            "config.json",
            0,
            usize::MAX,
            HubFault::Redirect(to.to_owned()),
        );
        let dir = tempfile::tempdir().unwrap();
        let error = run(&settings(&hub, dir.path())).0.unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
        assert!(hub.log().len() < 60);
    }
}

#[test]
fn an_expired_redirect_is_asked_for_again() {
    let (hub, store) = (hub(), hub());
    hub.redirect_to(&store);
    let (name, _) = largest();
    store.misbehave(&name, 2, 1, HubFault::Status(403, None));
    let dir = tempfile::tempdir().unwrap();
    let (summary, notes) = run(&settings(&hub, dir.path()));
    summary.unwrap();
    assert!(contents(dir.path()) == published());
    assert!(
        notes.text().contains("where the hub redirected to"),
        "{}",
        notes.text()
    );
    assert!(!notes.text().contains("signature"), "{}", notes.text());
}

#[test]
fn a_refusal_where_the_hub_redirected_to_is_not_for_a_token_to_mend() {
    let (hub, store) = (hub(), hub());
    hub.redirect_to(&store);
    let (name, _) = largest();
    store.misbehave(&name, 0, 1000, HubFault::Status(403, None));
    let dir = tempfile::tempdir().unwrap();
    let (summary, _) = run(&settings(&hub, dir.path()));
    let said = summary.unwrap_err().to_string();
    assert!(
        said.contains("403") && said.contains("redirected there"),
        "{said}"
    );
    assert!(!said.contains("HF_TOKEN"), "{said}");
    assert!(said.contains(&hub.endpoint()), "{said}");
}

#[test]
fn a_file_that_changes_in_the_middle_begins_anew() {
    for after in [0, 2] {
        let hub = hub();
        let (name, _) = largest();
        hub.misbehave(&name, after, 1, HubFault::Change);
        let dir = tempfile::tempdir().unwrap();
        let (summary, notes) = run(&settings(&hub, dir.path()));
        let summary = summary.unwrap();
        assert!(contents(dir.path()) == published());
        assert!(
            notes.text().contains("changed on the server"),
            "{}",
            notes.text()
        );
        let done = notes.done();
        assert_eq!(done, summary.total_bytes);
    }
    // Other content than published never gets the name.
    let hub = hub();
    let (name, mut bytes) = largest();
    bytes[100] ^= 1;
    hub.change(&name, bytes);
    let dir = tempfile::tempdir().unwrap();
    let error = run(&settings(&hub, dir.path())).0.unwrap_err().to_string();
    assert!(
        error.contains(&name) && error.contains("new beginnings"),
        "{error}"
    );
    assert!(!dir.path().join(&name).exists());
}

#[test]
fn a_wrong_byte_on_the_way_is_found_before_the_file_gets_its_name() {
    let told = survives(1, 1, HubFault::FlipByte);
    assert!(told.contains("its hash is"), "{told}");
    let hub = hub();
    hub.misbehave("config.json", 0, 1, HubFault::FlipByte);
    let dir = tempfile::tempdir().unwrap();
    let (summary, notes) = run(&settings(&hub, dir.path()));
    summary.unwrap();
    assert!(
        notes.text().contains("config.json: its hash is"),
        "{}",
        notes.text()
    );
    assert!(contents(dir.path()) == published());
}

#[test]
fn silence_in_the_middle_has_an_end() {
    let hub = hub();
    let (name, _) = largest();
    hub.misbehave(&name, 1, 1, HubFault::Stall(5_000, 4_000));
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.http.stall = Duration::from_millis(300);
    let started = Instant::now();
    let (summary, notes) = run(&settings);
    summary.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert!(notes.text().contains("trying again"), "{}", notes.text());
    assert!(contents(dir.path()) == published());
}

#[test]
fn who_stops_does_not_wait_for_a_silent_server() {
    let hub: Hub = hub();
    let (name, bytes) = largest();
    hub.misbehave(&name, 1, 1, HubFault::Stall(5_000, 20_000));
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&hub, dir.path());
    settings.include = vec![name.parse().unwrap()];
    let notes = Notes {
        stop_after: Some(i64::try_from(bytes.len()).unwrap() - 15_000),
        ..Notes::default()
    };
    let started = Instant::now();
    let (result, _) = run_with(&settings, notes);
    assert!(
        matches!(result, Err(IntegrityError::Interrupted)),
        "{result:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}
