//! What a snapshot carries, and what its reader refuses.

use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;
use crate::error::FormatError;
use crate::memory_file::MemoryFile;

const BINDING: SnapshotBinding = SnapshotBinding {
    identity: Identity::from_bytes([7; 32]),
    numerics_version: 1,
    form: StateForm::Latent,
    layer_count: 3,
};

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| u8::try_from(index % 253).unwrap())
        .collect()
}

fn written(tokens: &[u32], payload: &[u8]) -> Vec<u8> {
    let header = SnapshotHeader::new(BINDING, tokens.len(), payload.len() as u64).unwrap();
    let mut writer = SnapshotWriter::new(Vec::new(), header, tokens).unwrap();
    writer.write_all(payload).unwrap();
    let bytes = writer.finish().unwrap();
    assert_eq!(bytes.len() as u64, header.file_bytes());
    bytes
}

/// Ids and state of a file, or its first fault; what was handed over before a
/// fault is a prefix of `payload`.
fn read(bytes: Vec<u8>, payload: &[u8]) -> Result<Vec<u32>, FormatError> {
    let file = MemoryFile::new("s/a.k3state", bytes);
    let (snapshot, tokens) = Snapshot::open(&file, &BINDING)?;
    let mut reader = snapshot.payload(&file);
    let mut found = Vec::new();
    let result = reader.read_to_end(&mut found);
    assert!(payload.starts_with(&found), "only what was written is seen");
    let taken = reader.finish()?;
    result.unwrap();
    assert_eq!(taken, found.len() as u64);
    assert_eq!(found, payload);
    Ok(tokens)
}

fn fault_of(bytes: Vec<u8>, payload: &[u8]) -> (u64, SnapshotFault) {
    match read(bytes, payload) {
        Err(FormatError::Snapshot {
            path,
            offset,
            fault,
        }) => {
            assert_eq!(path.to_str(), Some("s/a.k3state"));
            (offset, fault)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_read() {
    let chunk = SNAPSHOT_CHUNK_BYTES;
    for bytes in [1, 100, chunk - 1, chunk, chunk + 1, 3 * chunk] {
        let payload = payload(bytes);
        let tokens = [5, 0, u32::MAX];
        assert_eq!(read(written(&tokens, &payload), &payload).unwrap(), tokens);
    }
    for count in [IDS_AT_ONCE - 1, IDS_AT_ONCE, IDS_AT_ONCE + 1] {
        let tokens: Vec<u32> = (0..u32::try_from(count).unwrap()).collect();
        assert_eq!(read(written(&tokens, b"x"), b"x").unwrap(), tokens);
    }
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let mut expected = b"k3-snaps".to_vec();
    expected.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    expected.extend([7; 32]);
    expected.extend([0, 0, 0, 0, 3, 0, 0, 0]);
    expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([0; 24]);
    let ids = [1, 0, 0, 0, 0x0a, 0x80, 2, 0];
    let hashed = [b"k3 sequence snapshot 1\0", &expected[..], &ids].concat();
    let key = *blake3::hash(&hashed).as_bytes();
    expected.extend(key);
    expected.extend(ids);
    expected.extend(b"state");
    let chunk = [&[0; 8][..], b"state"].concat();
    expected.extend(&blake3::keyed_hash(&key, &chunk).as_bytes()[..16]);
    expected.extend(b"k3-s-end");
    expected.extend([173, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(expected.len(), 173);
    assert_eq!(written(&[1, 0x2_800a], b"state"), expected);
}

/// A conversation of 3 ids: the state has consumed 2, the last 2 are an answer.
fn conversation() -> Vec<u8> {
    let header = SnapshotHeader::new(BINDING, 2, 5).unwrap();
    let header = header.of_conversation(1, 2).unwrap();
    let mut writer = SnapshotWriter::new(Vec::new(), header, &[4, 5, 6]).unwrap();
    writer.write_all(b"state").unwrap();
    writer.finish().unwrap()
}

#[test]
fn a_conversation_has_ids_beyond_its_state() {
    let bytes = conversation();
    assert_eq!(read(bytes.clone(), b"state").unwrap(), [4, 5, 6]);
    assert_eq!(bytes[8], 2);
    assert_eq!(bytes[56], 2);
    assert_eq!(bytes[72..96], [&[1][..], &[0; 7], &[2], &[0; 15]].concat());
    assert_eq!(bytes.len(), 144 + 4 * 3 + 5 + 16);
    let file = MemoryFile::new("s", bytes.clone());
    let (snapshot, _) = Snapshot::open(&file, &BINDING).unwrap();
    let header = snapshot.header();
    let counts = (header.position(), header.id_count(), header.answer_len());
    assert_eq!(counts, (2, 3, 2));
    // No prefix of anything.
    let error = Snapshot::open_of(&file, &BINDING, &[4, 5, 6]).unwrap_err();
    let says = error.to_string();
    assert!(
        says.contains("offset 8: a saved conversation, with 1 ids beyond"),
        "{says}"
    );
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fault_of(flipped, b"state");
        fault_of(bytes[..at].to_vec(), b"state");
    }
    let check = |at: usize, value: &[u8], place: u64, says: &str| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        let (offset, fault) = fault_of(bytes, b"state");
        assert!(fault.to_string().contains(says), "{says}: {fault}");
        assert_eq!(offset, place, "{says}");
    };
    check(72, &[0xff; 8], 72, "18446744073709551615 ids beyond");
    check(80, &[4], 72, "an answer of 4 ids");
    check(88, &[1], 88, "reserved");
    check(72, &[2], 56, "describes a file");
    let plain = SnapshotHeader::new(BINDING, SNAPSHOT_POSITIONS_MAX, 5).unwrap();
    plain.of_conversation(1, 0).unwrap_err();
    plain
        .of_conversation(0, SNAPSHOT_POSITIONS_MAX + 1)
        .unwrap_err();
}

#[test]
fn every_flipped_byte_every_length_and_an_appended_byte_are_refused() {
    let payload = payload(200);
    let bytes = written(&[1, 2, 3], &payload);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fault_of(flipped, &payload);
        }
    }
    for length in 0..bytes.len() {
        let (offset, fault) = fault_of(bytes[..length].to_vec(), &payload);
        let (place, says) = match length {
            0 => (0, "not a sequence snapshot"),
            1..144 => (0, "where the shortest sequence snapshot has 144"),
            _ => (56, "the header describes a file of"),
        };
        assert!(fault.to_string().contains(says), "{length}: {fault}");
        assert_eq!(offset, place, "{length}");
    }
    let mut longer = bytes;
    longer.push(0);
    fault_of(longer, &payload);
}

#[test]
fn each_fault_has_its_place() {
    let bytes = written(&[1, 2, 3], b"state");
    let check = |at: usize, value: &[u8], place: u64, says: &str| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        let (offset, fault) = fault_of(bytes, b"state");
        assert!(fault.to_string().contains(says), "{says}: {fault}");
        assert_eq!(offset, place, "{says}");
    };
    check(0, b"k3-mnfst", 0, "not a sequence snapshot");
    check(
        8,
        &[3],
        8,
        "version 3, but this program reads versions up to 2",
    );
    check(8, &[2], 72, "0 ids beyond a position of 3");
    check(12, &[2], 96, "hash of header and token ids");
    check(48, &[2], 48, "form of attention 2");
    check(56, &[0], 56, "position 0");
    check(56, &[0xff; 8], 56, "position 18446744073709551615");
    check(56, &[4], 56, "describes a file");
    check(64, &[0xff; 8], 64, "18446744073709551615 bytes of state");
    check(80, &[1], 72, "reserved");
    check(HEADER_BYTES + 4, &[9], 96, "hash of header and token ids");
    check(HEADER_BYTES + 12, b"S", 140, "chunk 0 of the state");
    let end = bytes.len() - END_BYTES;
    check(end, b"K", end as u64, "not written to its end");
}

#[test]
fn another_binding_is_refused_by_name() {
    let file = MemoryFile::new("s", written(&[1, 2], b"state"));
    let other = |change: fn(&mut SnapshotBinding)| {
        let mut binding = BINDING;
        change(&mut binding);
        Snapshot::open(&file, &binding).unwrap_err().to_string()
    };
    let says = other(|binding| binding.identity = Identity::from_bytes([8; 32]));
    assert!(
        says.contains("offset 16: it was made with checkpoint 0707"),
        "{says}"
    );
    let says = other(|binding| binding.numerics_version = 2);
    assert!(
        says.contains("numerics version 1, but this run has 2"),
        "{says}"
    );
    let says = other(|binding| binding.form = StateForm::Expanded);
    assert!(
        says.contains("form latent, but this run has expanded"),
        "{says}"
    );
    let says = other(|binding| binding.layer_count = 4);
    assert!(says.contains("layer count 3, but this run has 4"), "{says}");
    assert!(
        says.contains("with this checkpoint and these settings"),
        "{says}"
    );
}

#[test]
fn other_ids_are_refused_by_place() {
    let file = MemoryFile::new("s", written(&[1, 2, 3], b"state"));
    Snapshot::open_of(&file, &BINDING, &[1, 2, 3]).unwrap();
    let says = |tokens: &[u32]| {
        let error = Snapshot::open_of(&file, &BINDING, tokens).unwrap_err();
        error.to_string()
    };
    assert!(says(&[1, 9, 8]).contains("offset 132: token id 1 is 2, where 9"));
    assert!(says(&[1, 2]).contains("consumed 3 token ids, where 2"));
    assert!(says(&[1, 2, 3, 4]).contains("consumed 3 token ids, where 4"));
    assert!(says(&[]).contains("consumed 3 token ids, where 0"));
}

#[test]
fn a_chunk_of_another_snapshot_or_place_does_not_pass() {
    let chunk = SNAPSHOT_CHUNK_BYTES + CHUNK_HASH_BYTES;
    let payload = vec![1; 2 * SNAPSHOT_CHUNK_BYTES];
    let one = written(&[1], &payload);
    let start = HEADER_BYTES + 4;
    let mut mixed = written(&[2], &payload);
    mixed[start..start + chunk].copy_from_slice(&one[start..start + chunk]);
    assert_eq!(fault_of(mixed, &payload).0, start as u64);
    let mut moved = one.clone();
    moved[start + chunk..start + 2 * chunk].copy_from_slice(&one[start..start + chunk]);
    assert_eq!(fault_of(moved, &payload).0, (start + chunk) as u64);
}

#[test]
fn a_state_of_another_length_than_announced_is_refused() {
    let header = SnapshotHeader::new(BINDING, 1, 4).unwrap();
    let mut writer = SnapshotWriter::new(Vec::new(), header, &[1]).unwrap();
    writer.write_all(b"abc").unwrap();
    let error = writer.write_all(b"de").unwrap_err();
    assert!(
        error.to_string().contains("where 4 were announced"),
        "{error}"
    );
    let error = writer.finish().unwrap_err();
    assert!(error.to_string().contains("a state of 3 bytes"), "{error}");
    for (position, bytes) in [
        (0, 1),
        (SNAPSHOT_POSITIONS_MAX + 1, 1),
        (1, 0),
        (1, u64::MAX),
    ] {
        SnapshotHeader::new(BINDING, position, bytes).unwrap_err();
    }
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_and_nothing_else(
        tokens in prop::collection::vec(any::<u32>(), 1..50),
        payload in prop::collection::vec(any::<u8>(), 1..500),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut bytes = written(&tokens, &payload);
        prop_assert_eq!(read(bytes.clone(), &payload).unwrap(), tokens);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fault_of(bytes, &payload);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut framed = SNAPSHOT_MAGIC.to_vec();
        framed.extend_from_slice(&VERSION.to_le_bytes());
        framed.extend_from_slice(&bytes);
        for bytes in [bytes, framed] {
            Snapshot::open(&MemoryFile::new("s", bytes), &BINDING).unwrap_err();
        }
    }
}
