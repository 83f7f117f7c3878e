//! Full disks, damaged trunks, changed checkpoints.

use std::fs::{File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_formats::ReadAt as _;
use k3_formats::trunk::{Codec, CodecChoice};
use k3_pack::PackError;
use k3_pack::error::Exit;
use k3_pack::trunk::{Hooks, Point, TrunkError, TrunkPlan, pack};

use crate::faults::SmallDisk;
use crate::support::small_config;
use crate::trunk_support::{
    Model, all_files, open_trunk, pack_all, pack_with, stripe_paths, trunk_settings, verify,
};

#[test]
fn a_disk_that_fills_up_is_gone_on_with() {
    let Some(disk) = SmallDisk::mount("48m") else {
        return;
    };
    let model = Model::wide(4);
    let source = model.source();
    let whole = model.outs("whole", 1);
    pack_all(&source, &trunk_settings(&whole, 2)).unwrap();
    let out = [disk.path().join("trunk")];
    let settings = trunk_settings(&out, 2);
    let filler = disk.path().join("filler");
    // Somebody else takes all there is once something is recorded.
    let fill = |point: Point| {
        if matches!(point, Point::Recorded(_)) && !filler.exists() {
            let mut file = File::create(&filler).unwrap();
            std::io::copy(&mut std::io::repeat(1), &mut file).unwrap_err();
        }
        ControlFlow::Continue(())
    };
    let error = pack_with(&source, &settings, &fill).unwrap_err();
    let PackError::Trunk(TrunkError::DiskFull { done, total, .. }) = &error else {
        panic!("{error}");
    };
    assert!(0 < *done && done < total, "{done} of {total}");
    assert_eq!(error.exit(), Exit::NotWritable);
    assert!(error.to_string().contains("same command"), "{error}");
    open_trunk(&source, &out).unwrap_err();
    // Still full: refused before anything is written.
    let error = pack_all(&source, &settings).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::NoSpace { .. })),
        "{error}"
    );
    std::fs::remove_file(&filler).unwrap();
    let summary = pack_all(&source, &settings).unwrap();
    assert!(summary.resumed_blocks >= *done);
    assert!(all_files(&out) == all_files(&whole));
}

#[test]
fn space_is_counted_as_packed_and_by_disk() {
    let model = Model::wide(6);
    let source = model.source();
    let raw_bytes = source.raw_bytes_of(0..source.block_count());
    let Some(disk) = SmallDisk::mount(&(raw_bytes * 78 / 100).to_string()) else {
        return;
    };
    let outs: Vec<PathBuf> = ["a", "b"].map(|name| disk.path().join(name)).to_vec();
    let mut settings = trunk_settings(&outs, 2);
    settings.codec = CodecChoice::Raw;
    let error = pack_all(&source, &settings).unwrap_err();
    let PackError::Trunk(TrunkError::NoSpace {
        needed_bytes,
        is_estimate: false,
        ..
    }) = &error
    else {
        panic!("{error}");
    };
    // Both stripes lie on this disk.
    assert!(*needed_bytes >= raw_bytes, "{error}");
    assert_eq!(error.exit(), Exit::Refused);
    // Nothing is left that other options would have to be the same as.
    for out in &outs {
        let left = std::fs::read_dir(out).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "trunk.k3lock"), "{left:?}");
    }
    settings.codec = CodecChoice::Auto;
    settings.reserve_bytes = u64::MAX;
    // It would fit, but a tenth is to stay free.
    let error = pack_all(&source, &settings).unwrap_err().to_string();
    assert!(error.contains("needed by a sample"), "{error}");
    settings.reserve_bytes = 0;
    pack_all(&source, &settings).unwrap();
    verify(&model.path(), &outs).unwrap();
}

/// Flips a bit of a file.
fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

#[test]
fn every_difference_is_counted_and_the_first_is_placed() {
    let model = Model::wide(2);
    let source = model.source();
    let outs = model.outs("out", 2);
    pack_all(&source, &trunk_settings(&outs, 2)).unwrap();
    let trunk = open_trunk(&source, &outs).unwrap();
    verify(&model.path(), &outs).unwrap();
    let differs = || match verify(&model.path(), &outs).unwrap_err() {
        PackError::Trunk(TrunkError::Differs {
            differences, first, ..
        }) => (differences, first),
        error => panic!("{error}"),
    };
    let file_of = |index: usize| {
        let block = &trunk.blocks()[index];
        (
            stripe_paths(&outs)[usize::from(block.stripe)].clone(),
            block.offset,
        )
    };
    for (count, index) in [(1, 20), (2, 7), (3, 25)] {
        let (path, offset) = file_of(index);
        flip(&path, offset + 100);
        let (differences, first) = differs();
        assert_eq!(differences, count);
        let least = if count == 1 { 20 } else { 7 };
        let (path, offset) = file_of(least);
        let wanted = format!("{}: offset {offset}: block {least} ", path.display());
        assert!(first.starts_with(&wanted), "{first}");
    }
    for index in [7, 20, 25] {
        let (path, offset) = file_of(index);
        flip(&path, offset + 100);
    }
    // A checkpoint whose weights changed behind the back of its identity.
    let packed = |codec| {
        let found = trunk.blocks().iter().position(|block| block.codec == codec);
        found.unwrap()
    };
    for index in [packed(Codec::Bf16X3), packed(Codec::Raw)] {
        let block = &source.blocks()[index];
        let shard = source.shard(block).label().to_owned();
        flip(&shard, block.offset + 37);
        let (differences, first) = differs();
        flip(&shard, block.offset + 37);
        assert_eq!(differences, 1);
        let place = format!("at offset {}", block.offset + 37);
        assert!(
            first.contains("byte 37") && first.contains(&place),
            "{first}"
        );
        assert!(first.contains(&shard.display().to_string()), "{first}");
    }
    verify(&model.path(), &outs).unwrap();
}

#[test]
fn what_is_no_trunk_of_this_checkpoint_is_refused() {
    let model = Model::new(small_config(3, 4));
    let outs = model.outs("out", 2);
    pack_all(&model.source(), &trunk_settings(&outs, 1)).unwrap();
    let other = Model::new(small_config(2, 4));
    let error = verify(&other.path(), &outs).unwrap_err().to_string();
    assert!(error.contains("another checkpoint"), "{error}");
    let error = verify(&model.path(), &outs[..1]).unwrap_err().to_string();
    assert!(error.contains("1 is missing"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = verify(&model.path(), &[empty.path().to_owned()]).unwrap_err();
    assert_eq!(error.exit(), Exit::Refused);
    assert!(error.to_string().contains("no packed trunk"), "{error}");
}

#[test]
fn a_checkpoint_that_loses_bytes_meanwhile_is_an_error() {
    let model = Model::wide(2);
    let source = model.source();
    let outs = model.outs("out", 1);
    let plan = TrunkPlan::new(&source, &trunk_settings(&outs, 1)).unwrap();
    let last = source.blocks().last().unwrap();
    let shard = source.shard(last).label().to_owned();
    let file = OpenOptions::new().write(true).open(&shard).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(last.offset + 10).unwrap();
    let error = pack(&source, &plan, &AtomicBool::new(false), &Hooks::NONE).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::Source(_))),
        "{error}"
    );
    assert_eq!(error.exit(), Exit::Failed);
    open_trunk(&source, &outs).unwrap_err();
    // Longer: every read succeeds, and still it is not the same file.
    file.set_len(length + 1).unwrap();
    let error = pack(&source, &plan, &AtomicBool::new(false), &Hooks::NONE).unwrap_err();
    assert!(
        error.to_string().contains("changed while in use"),
        "{error}"
    );
    open_trunk(&source, &outs).unwrap_err();
}
