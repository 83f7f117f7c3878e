//! What a manifest covers, and what its reader refuses.

#![allow(clippy::print_stdout, reason = "tests tell what they measured")]

use super::write::root_of;
use super::*;
use crate::config::KimiK3Config;
use crate::error::FormatError;
use crate::experts::ExpertPart;
use crate::memory_file::MemoryFile;
use crate::read_at::ReadAt;
use crate::safetensors::ShardIndex;
use crate::safetensors::writer::{HeaderBuilder, HeaderPadding};
use crate::synth::{Resizing, released_config};
use crate::{Dtype, replica};

fn small_config() -> KimiK3Config {
    let resizing = Resizing {
        layer_count: Some(3),
        expert_count: Some(4),
    };
    resizing.apply(&released_config()).unwrap()
}

fn index_of(config: &KimiK3Config) -> ShardIndex {
    let shards: Vec<_> = replica::shards(config).map(|shard| shard.open()).collect();
    let views: Vec<&dyn ReadAt> = shards.iter().map(|shard| shard as &dyn ReadAt).collect();
    ShardIndex::build(&views, None).unwrap()
}

fn others() -> Vec<(String, u64)> {
    [("tiktoken.model", 70), ("config.json", 7), ("empty.txt", 0)]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .to_vec()
}

/// A manifest of a small model; the n-th hash is n in every byte.
fn small() -> Manifest {
    let plan = ManifestPlan::new(&index_of(&small_config()), others());
    let hashes: Vec<[u8; 32]> = (0..plan.ranges().len())
        .map(|number| [u8::try_from(number % 251).unwrap(); 32])
        .collect();
    plan.finish(Identity::from_bytes([9; 32]), &hashes)
}

fn read(bytes: Vec<u8>) -> Result<Manifest, FormatError> {
    Manifest::read(&MemoryFile::new("m/k3-manifest.bin", bytes))
}

fn fault_of(bytes: Vec<u8>) -> (u64, ManifestFault) {
    match read(bytes) {
        Err(FormatError::Manifest {
            path,
            offset,
            fault,
        }) => {
            assert_eq!(path.to_str(), Some("m/k3-manifest.bin"));
            (offset, fault)
        }
        other => panic!("{other:?}"),
    }
}

/// The root made to agree again, so that what is behind it is looked at.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let root = root_of(&bytes);
    bytes[ROOT_OFFSET..HEADER_BYTES].copy_from_slice(&root);
    bytes
}

#[test]
fn every_byte_of_every_file_has_its_range() {
    let config = small_config();
    let index = index_of(&config);
    let manifest = small();
    for file in manifest.files() {
        let mut end = 0;
        for range in manifest.ranges_of(file) {
            assert_eq!(range.offset, end, "{}", file.name);
            assert!(range.bytes > 0);
            end += range.bytes;
        }
        assert_eq!(end, file.bytes, "{}", file.name);
    }
    for shard in index.shards() {
        let file = manifest.files().iter().find(|file| file.name == shard.name);
        assert_eq!(file.unwrap().bytes, shard.file_bytes);
    }
    let whole = |range: &&ManifestRange| {
        matches!(range.content, RangeContent::Expert { part_count: 6, .. })
    };
    let experts = manifest.ranges().iter().filter(whole).count();
    assert_eq!(experts, index.experts().expert_count());
    assert_eq!(experts, 2 * 4, "two layers with experts");
    let named: Vec<String> = manifest
        .ranges()
        .iter()
        .map(|range| range.content.to_string())
        .collect();
    for name in ["header", "whole file", "layer 2 expert 3"] {
        assert!(named.iter().any(|found| found == name), "{name}");
    }
    assert!(named.iter().any(|name| name.ends_with("lm_head.weight")));
    let of_layer = |layer| {
        manifest
            .ranges()
            .iter()
            .filter(|range| range.content.layer() == Some(layer))
            .count()
    };
    assert!(of_layer(0) > 5 && of_layer(1) > of_layer(0) && of_layer(3) == 0);
}

#[test]
fn tensors_of_an_expert_that_lie_apart_have_their_own_ranges() {
    let name = |part: ExpertPart| {
        format!(
            "model.layers.1.block_sparse_moe.experts.0.{}",
            part.suffix()
        )
    };
    let mut header = HeaderBuilder::new();
    // Three neighbours, another tensor, two in the wrong order, one more.
    let order = [
        ExpertPart::W1Packed,
        ExpertPart::W1Scale,
        ExpertPart::W2Packed,
        ExpertPart::W3Packed,
        ExpertPart::W2Scale,
        ExpertPart::W3Scale,
    ];
    for (position, part) in order.into_iter().enumerate() {
        if position == 3 {
            header.tensor("model.norm.weight", Dtype::U8, &[5]);
        }
        header.tensor(name(part), Dtype::U8, &[2, 3]);
    }
    header.tensor("model.nothing", Dtype::U8, &[0]);
    let file = header.build_file(HeaderPadding::Spaces(3), &[1; 41]);
    let file_bytes = file.len() as u64;
    let shard = MemoryFile::new("one.safetensors", file);
    let index = ShardIndex::build(&[&shard], None).unwrap();
    let plan = ManifestPlan::new(&index, Vec::new());
    let found: Vec<_> = plan.ranges()[1..]
        .iter()
        .map(|range| (range.content.to_string(), range.bytes))
        .collect();
    let text = |text: &str, bytes| (text.to_owned(), bytes);
    assert_eq!(
        found,
        [
            text("layer 1 expert 0 (tensors 1 to 3 of 6)", 18),
            text("tensor model.norm.weight", 5),
            text("layer 1 expert 0 (tensors 5 to 5 of 6)", 6),
            text("layer 1 expert 0 (tensors 4 to 4 of 6)", 6),
            text("layer 1 expert 0 (tensors 6 to 6 of 6)", 6),
        ]
    );
    assert_eq!(plan.total_bytes(), file_bytes);
}

#[test]
fn what_is_written_is_read() {
    let manifest = small();
    let bytes = manifest.to_bytes();
    let again = read(bytes.clone()).unwrap();
    assert_eq!(again, manifest);
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!(manifest.root(), root_of(&bytes));
    assert_eq!(hex(&manifest.root()).len(), 64);
}

#[test]
fn every_flipped_byte_and_every_length_is_refused() {
    let bytes = small().to_bytes();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fault_of(flipped);
    }
    for length in (0..bytes.len()).step_by(7) {
        fault_of(bytes[..length].to_vec());
    }
    let mut longer = bytes;
    longer.push(0);
    fault_of(longer);
}

#[test]
fn each_fault_has_its_place() {
    let manifest = small();
    let bytes = manifest.to_bytes();
    let files = HEADER_BYTES;
    let ranges = files + manifest.files().len() * FILE_BYTES;
    let names = bytes.len()
        - usize::try_from(u64::from_le_bytes(bytes[24..32].try_into().unwrap())).unwrap();
    let expert = manifest
        .ranges()
        .iter()
        .position(|range| matches!(range.content, RangeContent::Expert { .. }));
    let expert = ranges + expert.unwrap() * RANGE_BYTES;
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        fault_of(sealed(bytes))
    };
    let check = |at: usize, value: &[u8], place: usize, says: &str| {
        let (offset, fault) = changed(at, value);
        assert!(fault.to_string().contains(says), "{says}: {fault}");
        assert_eq!(offset, place as u64, "{says}");
    };
    check(0, b"GGUF", 0, "not an integrity manifest");
    check(8, &[2], 8, "version 2");
    check(12, &[0xff; 4], 12, "its tables take");
    check(16, &[0xff; 8], 12, "its tables take");
    check(24, &[0xff; 8], 12, "its tables take");
    check(32, &[0xff; 8], 32, "bytes of all files");
    check(63, &[1], 40, "reserved");
    check(files, &[1], files, "bytes of a file's ranges");
    check(
        files + 8,
        &[0xff; 4],
        files + 8,
        "ranges of a file and those before it",
    );
    check(files + 12, &[1], files + 12, "should follow");
    check(files + 18, &[7], files + 18, "kind 7");
    check(files + 20, &[1], files + 19, "reserved");
    check(names, b"/", files + 12, "plain file name");
    check(names, b"~", files + FILE_BYTES, "out of order");
    check(names, &[0xff], files + 12, "should follow");
    check(
        ranges,
        &[9, 0, 0, 0, 0, 0, 0, 0],
        ranges,
        "a range of 9 bytes, at least 10",
    );
    check(ranges + 8, &[3], ranges + 8, "kind 3");
    check(ranges + 9, &[1], ranges + 9, "reserved");
    check(expert + 9, &[0x16], expert + 9, "tensors 1 to 7");
    check(expert + 9, &[0], expert + 9, "tensors 0 to 0");
    check(expert + 14, &[1], expert + 9, "reserved");
    check(expert, &[0; 8], expert, "a range of 0 bytes");
}

#[test]
fn a_released_checkpoint_takes_little_more_than_its_hashes() {
    let index = index_of(&released_config());
    let plan = ManifestPlan::new(&index, others());
    assert_eq!(index.tensor_count(), replica::RELEASED_TENSOR_COUNT);
    let hashes = vec![[7; 32]; plan.ranges().len()];
    let manifest = plan.finish(Identity::from_bytes([1; 32]), &hashes);
    let bytes = manifest.to_bytes();
    println!("{} ranges, {} bytes", manifest.ranges().len(), bytes.len());
    assert!(bytes.len() < 4_500_000, "{}", bytes.len());
    assert_eq!(read(bytes).unwrap(), manifest);
}
