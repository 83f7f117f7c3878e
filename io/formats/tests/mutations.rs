//! Broken input of any kind: no reader panics, and none allocates more than a
//! small multiple of what it was given.
//!
//! A process-wide allocator counts, so this file holds a single test.

#![allow(
    unsafe_code,
    reason = "a counting allocator cannot be written without; it forwards every call"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use k3_formats::replica::{ReplicaShard, released_config, shards};
use k3_formats::safetensors::ShardHeader;
use k3_formats::safetensors::writer::write_index;
use k3_formats::trunk::{Codec, PackedBlock, StripeHeader, checksum, encode_table, table_hash};
use k3_formats::{
    ConfigForm, Dtype, ExpertTrace, ForeignTrunk, Identity, KimiK3Config, MemoryFile, PackedTrunk,
    RankFile, ReadAt, ShardIndex, ShardList, write_ranks,
};

struct Counting;

static CURRENT_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator with its arguments unchanged,
// so its guarantees are the system allocator's; the counters touch no memory of
// the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = CURRENT_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, hence
        // from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a reader may take beyond a multiple of its input: the window of the
/// index reader and small tables.
const FIXED_BYTES: usize = 320 << 10;
/// A JSON list of one-digit numbers becomes a tree of 32 bytes an item, in a
/// vector that doubles: the largest growth of any reader.
const BYTES_PER_INPUT_BYTE: usize = 64;

/// Runs a reader and checks what it took at its height.
fn bounded(input_bytes: usize, read: impl FnOnce()) {
    let before = CURRENT_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(before, Ordering::Relaxed);
    read();
    let taken = PEAK_BYTES.load(Ordering::Relaxed) - before;
    let limit = FIXED_BYTES + BYTES_PER_INPUT_BYTE * input_bytes;
    assert!(
        taken <= limit,
        "{taken} bytes for an input of {input_bytes}"
    );
}

/// A change of a file: where, relative to its length, and what.
#[derive(Debug, Clone)]
enum Edit {
    Byte(f64, u8),
    Cut(f64),
    /// Text of the kind that breaks readers, inserted.
    Insert(f64, usize),
    /// The number at or after a place, replaced.
    Number(f64, usize),
    /// A piece of the file, copied elsewhere.
    Copy(f64, f64, usize),
}

const PIECES: [&str; 9] = ["{", "}", "[", "\"", "\\", "\\u12", ",", "null", "\u{0}"];
const NUMBERS: [&str; 9] = [
    "0",
    "-1",
    "1",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "0.5",
];

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = 0.0..1.0_f64;
    let edit = prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        place.clone().prop_map(Edit::Cut),
        (place.clone(), 0..PIECES.len()).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (place.clone(), 0..NUMBERS.len()).prop_map(|(at, number)| Edit::Number(at, number)),
        (place.clone(), place, 1_usize..200)
            .prop_map(|(from, to, length)| Edit::Copy(from, to, length)),
    ];
    prop::collection::vec(edit, 1..4)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a length is a length"
)]
fn place(bytes: &[u8], fraction: f64) -> usize {
    (bytes.len() as f64 * fraction) as usize
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    match *edit {
        Edit::Byte(at, byte) => {
            let at = place(bytes, at);
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }
        Edit::Cut(at) => bytes.truncate(place(bytes, at)),
        Edit::Insert(at, piece) => {
            let at = place(bytes, at);
            bytes.splice(at..at, PIECES[piece].bytes());
        }
        Edit::Number(at, number) => {
            let at = place(bytes, at);
            let start = bytes[at..]
                .iter()
                .position(u8::is_ascii_digit)
                .map(|step| at + step);
            if let Some(start) = start {
                let digits = bytes[start..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                bytes.splice(start..start + digits, NUMBERS[number].bytes());
            }
        }
        Edit::Copy(from, to, length) => {
            let (from, to) = (place(bytes, from), place(bytes, to));
            let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
            bytes.splice(to..to, piece);
        }
    }
}

fn small_config() -> KimiK3Config {
    let mut config = released_config();
    config.num_hidden_layers = 2;
    config.mla_layers = vec![0];
    config.num_experts = 3;
    config
}

/// A layer with experts as a file, its header's length kept true or not.
fn shard_file(shard: &ReplicaShard) -> Vec<u8> {
    shard.header()
}

struct Inputs {
    shard: Vec<u8>,
    other_shard: MemoryFile,
    index: Vec<u8>,
    configs: [Vec<u8>; 2],
    ranks: Vec<u8>,
    trace: Vec<u8>,
    trunk: Vec<u8>,
    foreign: Vec<u8>,
}

const IDENTITY: Identity = Identity::from_bytes([3; 32]);

/// A trunk of one stripe.
fn packed_trunk() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let blocks: Vec<PackedBlock> = (0..4)
        .map(|index| {
            let extent = vec![1; 4096];
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(&extent);
            PackedBlock {
                shard: 0,
                source_offset: u64::from(index) * 4096,
                row_start: index * 4,
                row_count: 4,
                row_total: 16,
                cols: 512,
                dtype: Dtype::Bf16,
                codec: Codec::Raw,
                stripe: 0,
                offset,
                stored_bytes: 4096,
                raw_bytes: 4096,
                checksum: checksum(index, &extent),
                matrix_hash: [9; 32],
            }
        })
        .collect();
    let table = encode_table(&blocks);
    let header = StripeHeader {
        identity: IDENTITY,
        set_id: [5; 32],
        index: 0,
        count: 1,
        stripe_blocks: 4,
        block_bytes: 4096,
        block_count: 4,
        table_offset: bytes.len() as u64,
        table_hash: table_hash(&table),
        file_bytes: (bytes.len() + table.len()) as u64,
    };
    bytes.extend_from_slice(&table);
    bytes[..4096].copy_from_slice(&header.encode());
    bytes
}

/// As somebody would who means harm: every checksum is right.
fn with_true_checksums(bytes: &mut [u8]) {
    if bytes.len() < 24_576 {
        return;
    }
    let hash = table_hash(&bytes[20_480..24_576]);
    bytes[120..152].copy_from_slice(&hash);
    let hash = blake3::hash(&bytes[..4064]);
    bytes[4064..4096].copy_from_slice(hash.as_bytes());
}

const FOREIGN: &str = r#"{"n_layers": 1, "align": 4096, "layers": [{"layer": 0, "shard": "s",
 "run_start": 9, "nbytes": 4096, "file_off": 0, "tensors": {
 "a": {"off": 0, "nbytes": 12, "dtype": "BF16", "shape": [2, 3]},
 "b": {"off": 12, "nbytes": 4, "dtype": "F32", "shape": [1]}}}]}"#;

fn inputs() -> Inputs {
    let config = small_config();
    let shard = shards(&config).nth(1).unwrap();
    let small = MemoryFile::new("small.safetensors", {
        let json = b"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
        [&(json.len() as u64).to_le_bytes()[..], json, &[1, 2]].concat()
    });
    let mut index = Vec::new();
    let names = shard
        .tensors
        .iter()
        .map(|tensor| (tensor.name.as_str(), shard.name.as_str()));
    write_index(
        &mut index,
        shard.data_bytes() + 2,
        names.chain([("a", "small.safetensors")]),
    )
    .unwrap();
    let mut ranks = Vec::new();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    write_ranks(&mut ranks, bytes.chunks(1).chain([&b"ab"[..], b"cd"])).unwrap();
    let forms = [ConfigForm::Nested, ConfigForm::Flat];
    let pairs = (0_i32..64).flat_map(|number| [1 + number % 3, number]);
    Inputs {
        shard: shard_file(&shard),
        other_shard: small,
        index,
        configs: forms.map(|form| config.to_json(form).into_bytes()),
        ranks,
        trace: pairs.flat_map(i32::to_le_bytes).collect(),
        trunk: packed_trunk(),
        foreign: FOREIGN.as_bytes().to_vec(),
    }
}

fn read_all_kinds(inputs: &Inputs, edits: &[Edit]) {
    let mutate = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        edits.iter().for_each(|edit| apply(&mut bytes, edit));
        bytes
    };
    let mut shard = mutate(&inputs.shard);
    for keep_length_true in [false, true] {
        if keep_length_true && shard.len() >= 8 {
            let length = (shard.len() - 8) as u64;
            shard[..8].copy_from_slice(&length.to_le_bytes());
        }
        let file = MemoryFile::new("mutated.safetensors", shard.clone());
        bounded(shard.len(), || drop(ShardHeader::read(&file)));
        let views: [&dyn ReadAt; 2] = [&file, &inputs.other_shard];
        bounded(shard.len(), || drop(ShardIndex::build(&views, None)));
    }
    let index = MemoryFile::new("index.json", mutate(&inputs.index));
    bounded(index.bytes().len(), || drop(ShardList::read(&index)));
    let views: [&dyn ReadAt; 1] = [&inputs.other_shard];
    bounded(index.bytes().len(), || {
        drop(ShardIndex::build(&views, Some(&index)))
    });
    for config in &inputs.configs {
        let text = mutate(config);
        bounded(text.len(), || {
            drop(KimiK3Config::parse(Path::new("c"), &text))
        });
    }
    let ranks = mutate(&inputs.ranks);
    bounded(ranks.len(), || {
        drop(RankFile::parse(Path::new("r"), &ranks))
    });
    let trace = mutate(&inputs.trace);
    bounded(trace.len(), || {
        if let Ok(trace) = ExpertTrace::parse(Path::new("t"), &trace) {
            drop(trace.check(Path::new("t"), 1..4, 64, 2));
        }
    });
    let mut trunk = mutate(&inputs.trunk);
    for keep_checksums_true in [false, true] {
        if keep_checksums_true {
            with_true_checksums(&mut trunk);
        }
        let file = MemoryFile::new("trunk", trunk.clone());
        bounded(trunk.len(), || drop(PackedTrunk::open(&[&file], &IDENTITY)));
    }
    let foreign = MemoryFile::new("trunk.json", mutate(&inputs.foreign));
    let bin = MemoryFile::new("trunk.bin", vec![0; 4096]);
    bounded(foreign.bytes().len(), || {
        drop(ForeignTrunk::open(&foreign, &bin));
    });
}

/// Inputs built to make a reader allocate.
fn hostile() {
    // A table of 300 MB by a header with a true checksum, in a file of 24 kB.
    let mut trunk = packed_trunk();
    for (at, value) in [
        (96, (1_u64 << 22) - 1),
        (112, 301_993_984),
        (152, 302_014_464),
    ] {
        trunk[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    with_true_checksums(&mut trunk);
    let file = MemoryFile::new("f", trunk.clone());
    bounded(trunk.len(), || {
        assert!(PackedTrunk::open(&[&file], &IDENTITY).is_err());
    });
    for length in [u64::MAX, 1 << 63, 99_999_999, 100_000_001] {
        let file = MemoryFile::new("f", [&length.to_le_bytes()[..], b"{}"].concat());
        bounded(0, || assert!(ShardHeader::read(&file).is_err()));
    }
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(500_000));
    bounded(many.len(), || {
        assert!(KimiK3Config::parse(Path::new("c"), many.as_bytes()).is_err());
    });
    let entry = "\"model.layers.65535.block_sparse_moe.experts.65535.w1.weight_packed\":\
                 {\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[0,1]}";
    let json = format!("{{{entry}}}");
    let bytes = [
        &(json.len() as u64).to_le_bytes()[..],
        json.as_bytes(),
        &[0],
    ]
    .concat();
    let file = MemoryFile::new("f", bytes);
    bounded(json.len(), || {
        assert!(ShardIndex::build(&[&file], None).is_err())
    });
}

#[test]
fn mutated_files_never_panic_nor_take_more_than_they_should() {
    hostile();
    let inputs = inputs();
    let cases = if k3_formats::gates::slow() {
        20_000
    } else {
        1500
    };
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&edits(), |edits| {
            read_all_kinds(&inputs, &edits);
            Ok(())
        })
        .unwrap();
}
