//! Several stores on one directory.

use std::sync::atomic::{AtomicU64, Ordering};

use k3_formats::gates;

use super::*;

#[test]
fn many_stores_hammer_one_directory_with_little_room() {
    let directory = tempfile::tempdir().unwrap();
    let limit_bytes = 4 * entry_bytes(6);
    let rounds = if gates::slow() { 2000 } else { 60 };
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (directory, hits) = (directory.path(), &hits);
            scope.spawn(move || {
                let store = open(directory, limit_bytes);
                for round in 0..rounds {
                    let length = (round * 7 + thread * 3) % 6 + 1;
                    let talk = (round / 5 + thread) % 2;
                    let tokens: Vec<u32> = (0..length).map(|index| talk * 50 + index).collect();
                    found(&store, &tokens, tokens.len());
                    save(&store, &tokens).unwrap();
                }
                hits.fetch_add(store.statistics().hits, Ordering::Relaxed);
                assert_eq!(store.statistics().damaged, 0);
                assert!(store.take_warnings().is_empty());
            });
        }
    });
    let names = names(directory.path());
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    let held_bytes: u64 = names
        .iter()
        .map(|name| fs::metadata(directory.path().join(name)).unwrap().len())
        .sum();
    assert!(held_bytes <= limit_bytes, "{held_bytes} of {limit_bytes}");
    assert!(hits.into_inner() > 0);
}

#[test]
fn two_writers_of_one_entry_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (
        open(directory.path(), PLENTY_BYTES),
        open(directory.path(), PLENTY_BYTES),
    );
    let bytes = state(&[4, 5]);
    let saved = one.save(&[4, 5], bytes.len() as u64, |out| {
        out.write_all(&bytes[..100])?;
        // Unfinished, it is not found, and a store that opens leaves it alone.
        assert!(two.find(&[4, 5], 2).is_none());
        let third = open(directory.path(), PLENTY_BYTES);
        assert!(matches!(save(&third, &[4, 5]), Ok(Saved::Stored { .. })));
        assert_eq!(found(&two, &[4, 5], 2), Some(2));
        out.write_all(&bytes[100..])
    });
    assert!(matches!(saved, Ok(Saved::Stored { .. })), "{saved:?}");
    assert_eq!(found(&two, &[4, 5], 2), Some(2));
    assert_eq!(names(directory.path()).len(), 1);
}

#[test]
fn what_others_are_writing_counts_for_the_limit_and_nothing_goes_in_vain() {
    let directory = tempfile::tempdir().unwrap();
    let limit_bytes = 3 * entry_bytes(1);
    let (one, two) = (
        open(directory.path(), limit_bytes),
        open(directory.path(), limit_bytes),
    );
    save(&one, &[1]).unwrap();
    let bytes = vec![1; 1600];
    let saved = one.save(&[2], 1600, |out| {
        // Two thirds are being written: one more fits in the place of the old one.
        let many: Vec<u32> = (0..300).collect();
        assert!(matches!(save(&two, &many), Ok(Saved::NoRoom { .. })));
        assert_eq!(found(&two, &[1], 1), Some(1));
        assert!(matches!(save(&two, &[3]), Ok(Saved::Stored { .. })));
        assert_eq!(found(&two, &[1], 1), None);
        out.write_all(&bytes)
    });
    assert!(matches!(saved, Ok(Saved::Stored { .. })), "{saved:?}");
    assert_eq!(names(directory.path()).len(), 2);
}

#[test]
fn files_of_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), entry_bytes(1));
    let entry = {
        save(&store, &[1]).unwrap();
        names(directory.path())[0].clone()
    };
    let foreign = [
        "notes.txt",
        ".notes.txt.1-0.partial",
        "a-b-c.k3prefix",
        ".x.partial",
    ];
    for name in foreign {
        fs::write(directory.path().join(name), vec![0; 5000]).unwrap();
    }
    let left = format!(".{entry}.1-0.partial");
    fs::write(directory.path().join(&left), b"x").unwrap();
    let _ = open(directory.path(), entry_bytes(1));
    save(&store, &[2]).unwrap();
    assert_eq!(found(&store, &[2], 1), Some(1));
    let names = names(directory.path());
    assert!(
        foreign
            .iter()
            .all(|name| names.iter().any(|found| found == name))
    );
    assert!(!names.contains(&left));
    assert_eq!(names.len(), foreign.len() + 1);
}
