//! One process: what is found, what goes, what is refused.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|index| index * 7).collect()
}

#[test]
fn the_longest_prefix_is_found_at_every_border() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), PLENTY_BYTES);
    let tokens = ids(100);
    assert_eq!(found(&store, &tokens, 100), None);
    for position in [1, 9, 10, 40] {
        let saved = save(&store, &tokens[..position]).unwrap();
        let file_bytes = entry_bytes(position);
        assert_eq!(saved, Saved::Stored { file_bytes });
    }
    let pairs = [(0, None), (1, Some(1)), (8, Some(1)), (9, Some(9))];
    let more = [
        (10, Some(10)),
        (11, Some(10)),
        (39, Some(10)),
        (40, Some(40)),
    ];
    let last = [(41, Some(40)), (99, Some(40)), (usize::MAX, Some(40))];
    for (at_most, position) in pairs.into_iter().chain(more).chain(last) {
        assert_eq!(found(&store, &tokens, at_most), position, "{at_most}");
    }
    // Prompts that end at, before and behind what is stored, and wholly cached ones.
    for (length, position) in [(39, 10), (40, 40), (41, 40)] {
        assert_eq!(found(&store, &tokens[..length], length), Some(position));
    }
    assert_eq!(found(&store, &tokens[..40], 39), Some(10));
    assert_eq!(found(&store, &tokens[..1], 0), None);
    assert_eq!(found(&store, &[], 0), None);
    // Another id at the border, or within.
    let mut other = tokens.clone();
    other[39] += 1;
    assert_eq!(found(&store, &other, 100), Some(10));
    other[0] += 1;
    assert_eq!(found(&store, &other, 100), None);
    assert_eq!(save(&store, &tokens[..40]).unwrap(), Saved::Present);
    let statistics = store.statistics();
    assert_eq!((statistics.hits, statistics.misses), (15, 5));
    assert_eq!(statistics.damaged + statistics.evictions, 0);
    assert!(statistics.read_bytes > 15 * 800 && statistics.written_bytes > 4 * 800);
    assert!(store.take_warnings().is_empty());
}

#[test]
fn a_shared_beginning_serves_two_users() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), PLENTY_BYTES);
    let system = ids(50);
    save(&store, &system).unwrap();
    for user in [1000, 2000] {
        let mut tokens = system.clone();
        tokens.extend([user, user + 1]);
        assert_eq!(found(&store, &tokens, tokens.len() - 1), Some(50));
        save(&store, &tokens).unwrap();
        tokens.push(3);
        assert_eq!(found(&store, &tokens, tokens.len() - 1), Some(52));
    }
}

#[test]
fn an_entry_of_another_binding_never_hits_and_counts_for_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = ids(10);
    save(&open(directory.path(), PLENTY_BYTES), &tokens).unwrap();
    let changes: [fn(&mut Binding); 4] = [
        |binding| binding.identity = Identity::from_bytes([8; 32]),
        |binding| binding.numerics_version = 2,
        |binding| binding.form = StateForm::Expanded,
        |binding| binding.layer_count = 4,
    ];
    for change in changes {
        let mut binding = BINDING;
        change(&mut binding);
        let store = PrefixStore::open(directory.path(), PLENTY_BYTES, binding).unwrap();
        assert!(store.find(&tokens, 10).is_none());
        save(&store, &tokens).unwrap();
        assert!(store.find(&tokens, 10).is_some());
        // A file under a name that is not its own does not hit either.
        let all = names(directory.path());
        let tag = crate::prefix::names::binding_tag(&binding);
        let own = |name: &&String| name.starts_with(&tag);
        assert_eq!(all.iter().filter(own).count(), 1, "{tag}");
        let mine = directory.path().join(all.iter().find(own).unwrap());
        let other = directory
            .path()
            .join(all.iter().find(|name| !own(name)).unwrap());
        fs::copy(&other, &mine).unwrap();
        assert!(store.find(&tokens, 10).is_none());
        assert!(store.take_warnings()[0].contains("but this run has"));
        assert!(!mine.exists() && other.exists());
        save(&store, &tokens).unwrap();
    }
    assert_eq!(names(directory.path()).len(), 5);
    // Whoever opens with less room trims all of them.
    let store = open(directory.path(), 2 * entry_bytes(10));
    assert_eq!(names(directory.path()).len(), 2);
    assert_eq!(store.statistics().evictions, 3);
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let directory = tempfile::tempdir().unwrap();
    let limit_bytes = 3 * entry_bytes(3);
    let store = open(directory.path(), limit_bytes);
    let (unrelated, short) = ([9, 9], [1, 2]);
    save(&store, &short).unwrap();
    save(&store, &unrelated).unwrap();
    // The short one is used, so that the longer one takes the place of the other.
    assert_eq!(found(&store, &[1, 2, 3], 2), Some(2));
    save(&store, &[1, 2, 3]).unwrap();
    assert_eq!(store.statistics().evictions, 0);
    save(&store, &[1, 2, 4]).unwrap();
    assert_eq!(found(&store, &unrelated, 2), None);
    assert_eq!(found(&store, &[1, 2, 8], 2), Some(2));
    assert_eq!(found(&store, &[1, 2, 4], 3), Some(3));
    // Too large for the directory: told, and nothing goes.
    let before = names(directory.path());
    let many = ids(1000);
    let file_bytes = entry_bytes(1000);
    let expected = Saved::NoRoom {
        file_bytes,
        limit_bytes,
    };
    assert_eq!(save(&store, &many).unwrap(), expected);
    let huge = store.save(&[5], 1 << 40, |_| panic!("not asked"));
    assert!(matches!(huge, Ok(Saved::NoRoom { .. })));
    assert_eq!(names(directory.path()), before);
}

#[test]
fn a_full_disk_is_told_before_anything_goes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), u64::MAX);
    save(&store, &[1]).unwrap();
    let error = store
        .save(&[2], 1 << 47, |_| panic!("not asked"))
        .unwrap_err();
    assert!(matches!(error, PrefixError::DiskFull { .. }), "{error}");
    assert!(
        error.to_string().contains("choose another directory"),
        "{error}"
    );
    assert_eq!(found(&store, &[1], 1), Some(1));
    assert_eq!(names(directory.path()).len(), 1);
}

#[test]
fn a_damaged_entry_is_taken_away_and_a_shorter_one_serves() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), PLENTY_BYTES);
    let tokens = ids(10);
    // The tests of the format flip every byte of a file.
    let places = (0..usize::try_from(entry_bytes(10)).unwrap()).step_by(9);
    for (number, at) in places.enumerate() {
        save(&store, &tokens[..5]).unwrap();
        save(&store, &tokens).unwrap();
        let name = names(directory.path()).into_iter();
        let name = name.max_by_key(|name| name.contains("-00000010-")).unwrap();
        let path = directory.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        if let Some(hit) = store.find(&tokens, 10).filter(|hit| hit.position() == 10) {
            let error = load(&store, hit).unwrap_err();
            assert!(matches!(error, PrefixError::Damaged(_)), "{error}");
        }
        assert!(!path.exists(), "byte {at}");
        assert_eq!(found(&store, &tokens, 10), Some(5));
        assert_eq!(store.statistics().damaged, number as u64 + 1);
    }
}

#[test]
fn who_fails_leaves_nothing_and_the_entry_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), PLENTY_BYTES);
    let failed = store.save(&[1], 10, |_| Err(io::Error::other("cancelled")));
    assert!(failed.unwrap_err().to_string().contains("saved: cancelled"));
    for bytes in [9, 11] {
        let error = store.save(&[1], 10, |out| out.write_all(&vec![0; bytes]));
        assert!(matches!(error, Err(PrefixError::State { .. })), "{error:?}");
    }
    assert!(matches!(
        store.save(&[], 10, |_| Ok(())),
        Err(PrefixError::Refused(_))
    ));
    assert!(names(directory.path()).is_empty());
    save(&store, &[1]).unwrap();
    let hit = store.find(&[1], 1).unwrap();
    assert_eq!(hit.payload_bytes(), 800);
    let error = store
        .load(hit, |_| Err(io::Error::other("no room")))
        .unwrap_err();
    assert!(error.to_string().contains("restored: no room"), "{error}");
    let hit = store.find(&[1], 1).unwrap();
    let error = store
        .load(hit, |from| from.read_exact(&mut [0; 799]))
        .unwrap_err();
    assert!(error.to_string().contains("799 of 800 bytes"), "{error}");
    let hit = store.find(&[1], 1).unwrap();
    let error = store
        .load(hit, |from| from.read_exact(&mut [0; 801]))
        .unwrap_err();
    assert!(matches!(error, PrefixError::State { .. }), "{error}");
    // An entry that another process takes away still loads for whoever has it open.
    let hit = store.find(&[1], 1).unwrap();
    fs::remove_file(directory.path().join(&names(directory.path())[0])).unwrap();
    assert_eq!(load(&store, hit).unwrap(), state(&[1]));
    assert_eq!(found(&store, &[1], 1), None);
    assert_eq!(store.statistics().damaged, 0);
}

#[test]
fn a_directory_that_cannot_be_is_an_error_and_files_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let error = PrefixStore::open(&file.join("below"), 1, BINDING).unwrap_err();
    assert!(
        error.to_string().contains("cannot make the directory"),
        "{error}"
    );
    let below = directory.path().join("a/b");
    let store = open(&below, PLENTY_BYTES);
    save(&store, &[1]).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&below), 0o700);
    assert_eq!(mode(&below.join(&names(&below)[0])), 0o600);
    fs::remove_dir_all(&below).unwrap();
    let error = save(&store, &[1, 2]).unwrap_err();
    assert!(matches!(error, PrefixError::System { .. }), "{error}");
    assert!(store.find(&[1], 1).is_none());
    assert!(store.take_warnings()[0].contains("cannot list"));
}

/// Saves a conversation whose last id is its answer.
fn save_to(
    path: &Path,
    tokens: &[u32],
    position: usize,
    bytes: u64,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<u64, PrefixError> {
    let ids = ConversationIds {
        tokens,
        position,
        answer_len: 1,
    };
    SnapshotFile::create(path)?.save(&BINDING, ids, bytes, write)
}

#[test]
fn one_conversation_goes_to_a_path_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("talk.k3state");
    // What a killed process left.
    fs::write(directory.path().join(".talk.k3state.1-0.partial"), b"x").unwrap();
    let payload = vec![3; (2 << 20) + 5];
    for tokens in [&[1, 2, 3][..], &[1, 2, 3, 4]] {
        let bytes = payload.len() as u64;
        let write = |out: &mut dyn io::Write| out.write_all(&payload);
        let file_bytes = save_to(&path, tokens, tokens.len() - 1, bytes, write).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), file_bytes);
        assert_eq!(names(directory.path()), ["talk.k3state"]);
        let file = SnapshotFile::open(&path, &BINDING).unwrap();
        assert_eq!((file.tokens(), file.payload_bytes()), (tokens, bytes));
        assert_eq!((file.position(), file.answer_len()), (tokens.len() - 1, 1));
        let mut found = Vec::new();
        let read = |from: &mut dyn io::Read| from.read_to_end(&mut found).map(|_| ());
        file.load(read).unwrap();
        assert_eq!(found, payload);
    }
    // A failure keeps the former one, damage is told and keeps the file.
    let failed = |_: &mut dyn io::Write| Err(io::Error::other("no"));
    save_to(&path, &[9, 9], 1, 5, failed).unwrap_err();
    assert_eq!(names(directory.path()), ["talk.k3state"]);
    assert_eq!(
        SnapshotFile::open(&path, &BINDING).unwrap().tokens(),
        [1, 2, 3, 4]
    );
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 << 20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let file = SnapshotFile::open(&path, &BINDING).unwrap();
    let mut seen = Vec::new();
    let error = file.load(|from| from.read_to_end(&mut seen).map(|_| ()));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("talk.k3state: offset ") && error.contains("chunk 1"),
        "{error}"
    );
    assert_eq!(seen.len(), 1 << 20, "no byte of the damaged piece");
    let other = Binding {
        layer_count: 9,
        ..BINDING
    };
    assert!(matches!(
        SnapshotFile::open(&path, &other),
        Err(PrefixError::File(_))
    ));
    assert!(SnapshotFile::open(&directory.path().join("none"), &BINDING).is_err());
}

/// What is none, whatever it is called, and what cannot be removed: others go.
#[test]
fn a_directory_with_the_name_of_an_entry_is_in_nobody_s_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), 2 * entry_bytes(3));
    save(&store, &[1, 2, 3]).unwrap();
    let first = directory.path().join(&names(directory.path())[0]);
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    fs::write(first.join("file"), [0; 100]).unwrap();
    for last in 4..9 {
        save(&store, &[1, 2, last]).unwrap();
        assert_eq!(found(&store, &[1, 2, last], 3), Some(3), "{last}");
    }
    assert!(first.is_dir());
    assert_eq!(store.statistics().evictions, 3);
}
