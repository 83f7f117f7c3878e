//! What a trunk says of the bytes it was packed from, and what it takes.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use k3_formats::ReadAt as _;
use k3_formats::manifest::MANIFEST_NAME;
use k3_pack::PackError;
use k3_pack::error::Exit;
use k3_pack::manifest::{ManifestJob, make};
use k3_pack::trunk::{Point, TrunkError, TrunkSource};

use crate::support::small_config;
use crate::trunk_support::{Model, all_files, open_trunk, pack_all, pack_with, trunk_settings};

fn make_manifest(model: &Path) {
    let job = ManifestJob::new(model, &[]).unwrap();
    let (out, cancel) = (model.join(MANIFEST_NAME), AtomicBool::new(false));
    make(job, &out, false, None, &cancel, &|_| ()).unwrap();
}

/// Changes one bit in the middle of block `index`.
fn damage(source: &TrunkSource, index: usize) {
    let block = &source.blocks()[index];
    let path = source.shard(block).label();
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(block.offset + block.bytes / 2).unwrap()] ^= 2;
    fs::write(path, bytes).unwrap();
}

#[test]
fn each_matrix_has_the_hash_that_a_manifest_has() {
    // Blocks of one row and blocks of whole matrices.
    for block_bytes in [1, 5_000, 64 << 20] {
        let model = Model::new(small_config(6, 8));
        let source = model.source().recut(block_bytes);
        make_manifest(&model.path());
        let files = crate::support::files(&model.path()).into_iter();
        let shards = files.filter(|(name, _)| name.ends_with(".safetensors"));
        let shards: Vec<Vec<u8>> = shards.map(|(_, bytes)| bytes).collect();
        for stripes in [1, 3] {
            let outs = model.outs("out", stripes);
            let mut settings = trunk_settings(&outs, 2);
            settings.record.bytes = 40_000;
            let summary = pack_all(&source, &settings).unwrap();
            let matrices = source.blocks().iter().filter(|block| block.row_start == 0);
            assert_eq!(summary.manifest_matrices, Some(matrices.count() as u64));
            let trunk = open_trunk(&source, &outs).unwrap();
            for block in trunk.blocks() {
                let bytes = &shards[usize::from(block.shard)];
                let start = usize::try_from(block.matrix_offset().unwrap()).unwrap();
                let length = usize::try_from(block.matrix_bytes()).unwrap();
                let hash = blake3::hash(&bytes[start..start + length]);
                assert_eq!(block.matrix_hash, *hash.as_bytes());
            }
            outs.iter().for_each(|out| fs::remove_dir_all(out).unwrap());
        }
    }
}

#[test]
fn a_damaged_shard_is_not_packed_where_a_manifest_tells() {
    let model = Model::wide(2);
    let source = model.source();
    make_manifest(&model.path());
    let last = source.blocks().len() - 1;
    for index in [0, last / 2, last] {
        let outs = model.outs("out", 2);
        let settings = trunk_settings(&outs, 2);
        damage(&source, index);
        let error = pack_all(&source, &settings).unwrap_err();
        assert_eq!(error.exit(), Exit::Failed);
        let PackError::Trunk(TrunkError::OtherWeights { shard, .. }) = &error else {
            panic!("{error}");
        };
        let path = source.shard(&source.blocks()[index]).label();
        assert_eq!(path.file_name().unwrap().to_str(), Some(shard.as_str()));
        let text = error.to_string();
        assert!(
            text.contains("k3 repair") && text.contains("tensor "),
            "{text}"
        );
        open_trunk(&source, &outs).unwrap_err();
        // Mended: what was written is of no use, and the message says so.
        damage(&source, index);
        pack_all(&source, &settings).unwrap_err();
        let mut anew = settings.clone();
        anew.restart = true;
        assert!(
            pack_all(&source, &anew)
                .unwrap()
                .manifest_matrices
                .is_some()
        );
        outs.iter().for_each(|out| fs::remove_dir_all(out).unwrap());
    }
}

/// The trunk has a part of before and one of after the repair, also within a matrix.
#[test]
fn a_shard_that_was_mended_while_a_run_was_stopped_is_noticed() {
    let model = Model::wide(2);
    let source = model.source();
    make_manifest(&model.path());
    let outs = model.outs("out", 1);
    let mut settings = trunk_settings(&outs, 1);
    settings.record.bytes = 1;
    damage(&source, 0);
    let stop = |point: Point| match point {
        Point::Recorded(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    pack_with(&source, &settings, &stop).unwrap_err();
    damage(&source, 0);
    let error = pack_all(&source, &settings).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::OtherWeights { .. })),
        "{error}"
    );
}

#[test]
fn a_manifest_that_is_of_no_use_is_refused_before_the_work() {
    let model = Model::new(small_config(4, 4));
    let outs = model.outs("out", 1);
    fs::write(model.path().join(MANIFEST_NAME), "none").unwrap();
    let error = pack_all(&model.source(), &trunk_settings(&outs, 1)).unwrap_err();
    assert!(error.to_string().contains(MANIFEST_NAME), "{error}");
    let begun = outs[0].read_dir().into_iter().flatten().count();
    assert_eq!(begun, 0);
    fs::remove_file(model.path().join(MANIFEST_NAME)).unwrap();
    let summary = pack_all(&model.source(), &trunk_settings(&outs, 1)).unwrap();
    assert_eq!(summary.manifest_matrices, None);
}

#[test]
fn a_trunk_that_grows_says_so_and_what_to_do() {
    let model = Model::wide(2);
    let small = model.source().recut(1);
    let outs = model.outs("small", 1);
    let summary = pack_all(&small, &trunk_settings(&outs, 2)).unwrap();
    assert!(summary.extent_bytes > summary.raw_bytes);
    assert!(summary.stored_bytes <= summary.raw_bytes);
    assert!(summary.notes[0].contains("--block-bytes"), "{summary}");
    // What is said is how long the files are: headers and table beside it.
    let files: u64 = summary.stripes.iter().map(|stripe| stripe.file_bytes).sum();
    assert!(files > summary.extent_bytes);
    let outs = model.outs("large", 1);
    let summary = pack_all(&model.source(), &trunk_settings(&outs, 2)).unwrap();
    assert!(summary.extent_bytes < summary.raw_bytes && summary.notes.is_empty());
    assert_eq!(all_files(&outs).len(), 1);
}
