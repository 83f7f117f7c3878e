//! Processes that are killed: at each step by a shim, and for real.

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k3_formats::gates;

use super::super::steps::STEPS_LEFT;
use super::*;

/// A process being started has for a moment the files of all threads, and their locks:
/// no thread may play a killed process meanwhile.
fn no_other_starts() -> MutexGuard<'static, ()> {
    static STARTS: Mutex<()> = Mutex::new(());
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small steps of a generator, so that a failure can be repeated.
fn random(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// One of a few conversations, some of them prefixes of others.
fn conversation(seed: &mut u64) -> Vec<u32> {
    let (talk, length) = (random(seed) % 3, random(seed) % 8 + 1);
    let talk = u32::try_from(talk).unwrap();
    (0..u32::try_from(length).unwrap())
        .map(|index| talk * 100 + index)
        .collect()
}

/// Saves and loads as long as nothing fails; whether nothing did.
fn work(directory: &Path, seed: &mut u64, rounds: u64) -> bool {
    let Ok(store) = PrefixStore::open(directory, 5 * entry_bytes(8), BINDING) else {
        return false;
    };
    for _ in 0..rounds {
        let tokens = conversation(seed);
        if let Some(hit) = store.find(&tokens, tokens.len()) {
            let expected = state(&tokens[..hit.position()]);
            match load(&store, hit) {
                Ok(found) => assert_eq!(found, expected),
                Err(_) => return false,
            }
        }
        if save(&store, &tokens).is_err() {
            return false;
        }
    }
    true
}

/// Opens what a killed process left: all that is found is whole, nothing half made
/// stays, and saving goes on.
fn check(directory: &Path) {
    let store = open(directory, 5 * entry_bytes(8));
    for talk in 0..3 {
        for length in 1..=8 {
            let tokens: Vec<u32> = (0..length).map(|index| talk * 100 + index).collect();
            found(&store, &tokens, tokens.len());
        }
    }
    assert_eq!(store.statistics().damaged, 0, "{:?}", store.take_warnings());
    let names = names(directory);
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    assert!(names.len() <= 5 + 1, "{names:?}");
}

#[test]
fn a_process_killed_at_any_step_leaves_whole_entries() {
    let directory = tempfile::tempdir().unwrap();
    let mut seed = 1;
    let kills = if gates::slow() { 2000 } else { 120 };
    let mut killed = 0;
    for _ in 0..kills {
        let _alone = no_other_starts();
        STEPS_LEFT.set(Some(random(&mut seed) % 60));
        killed += u64::from(!work(directory.path(), &mut seed, 4));
        STEPS_LEFT.set(None);
        check(directory.path());
    }
    assert!(killed > kills / 3, "{killed} of {kills}");
}

#[test]
fn every_step_of_one_save_can_be_the_last() {
    let _alone = no_other_starts();
    for steps in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 2 * entry_bytes(2));
        save(&store, &[1, 1]).unwrap();
        save(&store, &[2, 2]).unwrap();
        STEPS_LEFT.set(Some(steps));
        let saved = save(&store, &[3, 3]);
        let is_alive = STEPS_LEFT.replace(None) != Some(0);
        drop(store);
        let store = open(directory.path(), 2 * entry_bytes(2));
        // At most the entry whose place was wanted is gone.
        assert_eq!(found(&store, &[2, 2], 2), Some(2), "{steps}");
        let both = [found(&store, &[1, 1], 2), found(&store, &[3, 3], 2)];
        assert!(both != [Some(2), Some(2)], "{steps}");
        assert_eq!(store.statistics().damaged, 0);
        assert!(
            names(directory.path())
                .iter()
                .all(|name| !name.starts_with('.'))
        );
        if is_alive {
            assert!(matches!(saved, Ok(Saved::Stored { .. })));
            assert_eq!(both, [None, Some(2)]);
            assert!(steps > 10, "{steps}");
            return;
        }
    }
}

/// Not a test of its own: what the next one starts and kills.
#[test]
fn child_that_saves_until_killed() {
    let Some(directory) = std::env::var_os("K3_TEST_PREFIX_DIRECTORY") else {
        return;
    };
    let mut seed = u64::from(std::process::id());
    while work(Path::new(&directory), &mut seed, 1000) {}
    panic!("a round failed");
}

#[test]
fn a_process_killed_for_real_leaves_whole_entries() {
    let directory = tempfile::tempdir().unwrap();
    let kills = if gates::slow() { 1000 } else { 50 };
    let mut seed = 3;
    for _ in 0..kills {
        let alone = no_other_starts();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "prefix::tests::crash::child_that_saves_until_killed",
            ])
            .env("K3_TEST_PREFIX_DIRECTORY", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(alone);
        std::thread::sleep(Duration::from_micros(2000 + random(&mut seed) % 40_000));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended by itself: {ended:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        check(directory.path());
    }
    assert!(!names(directory.path()).is_empty());
}
