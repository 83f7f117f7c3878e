//! What is packed is the trunk: the same bytes from any run, every bit of the
//! checkpoint, in fewer bytes.

use k3_formats::Dtype;
use k3_formats::trunk::{Codec, CodecChoice};
use k3_kernels::KernelSet;
use k3_models::ModelFamily as _;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_testkit::TinySpec;

use crate::support::{open, small_config};
use crate::trunk_support::{
    Model, all_files, open_trunk, pack_all, source, stripe_paths, trunk_settings, verify,
};

#[test]
fn the_files_follow_from_the_plan_and_not_from_threads() {
    let model = Model::wide(3);
    let source = model.source();
    for stripes in 1..=3 {
        let mut first = None;
        for threads in 1..=4 {
            let outs = model.outs(&format!("{stripes}-{threads}-"), stripes);
            let mut settings = trunk_settings(&outs, threads);
            settings.weights = [2, 1, 1][..stripes].to_vec();
            let summary = pack_all(&source, &settings).unwrap();
            assert_eq!(summary.stripes.len(), stripes);
            let files = all_files(&outs);
            assert_eq!(files.len(), stripes, "nothing but the stripes is left");
            if stripes == 3 {
                let bytes: Vec<u64> = summary.stripes.iter().map(|file| file.file_bytes).collect();
                let share = bytes[0] as f64 / bytes.iter().sum::<u64>() as f64;
                assert!((0.4..0.6).contains(&share), "{bytes:?}");
            }
            match &first {
                None => {
                    let verified = verify(&model.path(), &outs).unwrap();
                    assert_eq!(verified.raw_bytes, summary.raw_bytes);
                    assert_eq!(verified.extent_bytes, summary.extent_bytes);
                    first = Some(files);
                }
                Some(first) => assert!(*first == files, "{stripes} stripes, {threads} threads"),
            }
        }
    }
}

#[test]
fn synth_matrices_take_less_than_71_percent() {
    let model = Model::wide(4);
    let source = model.source();
    let outs = model.outs("out", 1);
    let summary = pack_all(&source, &trunk_settings(&outs, 2)).unwrap();
    let trunk = open_trunk(&source, &outs).unwrap();
    let (mut raw, mut stored, mut packed_blocks) = (0, 0, 0);
    for (block, packed) in source.blocks().iter().zip(trunk.blocks()) {
        assert_eq!(packed.dtype, Dtype::Bf16);
        if !block.may_be_packed() {
            assert_eq!(packed.codec, Codec::Raw);
        }
        if packed.codec == Codec::Bf16X3 && packed.cols >= 384 {
            raw += packed.raw_bytes;
            stored += packed.stored_bytes;
            packed_blocks += 1;
        }
    }
    let ratio = stored as f64 / raw as f64;
    println!("{packed_blocks} blocks: {ratio:.4}; the trunk {summary}");
    assert!(packed_blocks > trunk.blocks().len() / 2, "{packed_blocks}");
    assert!(ratio <= 0.71, "{ratio}");
    assert_eq!(
        (summary.raw_blocks + summary.bf16_x3_blocks) as usize,
        trunk.blocks().len()
    );
    assert!(
        (0.01..0.03).contains(&summary.escape_share),
        "{}",
        summary.escape_share
    );
}

#[test]
fn the_blocks_are_those_of_a_run_whatever_its_layers() {
    let model = Model::new(small_config(5, 16));
    let source = model.source();
    let outs = model.outs("out", 2);
    pack_all(&source, &trunk_settings(&outs, 1)).unwrap();
    let trunk = open_trunk(&source, &outs).unwrap();
    let checkpoint = open(&model.path());
    assert_eq!(checkpoint.identity(), source.identity());
    for layers in [None, Some(3)] {
        let layout = checkpoint.bind(layers).unwrap();
        let run = KimiK3::new(
            layout,
            AttentionForm::Latent,
            KernelSet::detect(),
            trunk.block_bytes(),
            |tensor, out| checkpoint.read_tensor(tensor, out),
        )
        .unwrap();
        let mut last = None;
        for block in &run.program().blocks {
            let index = trunk.find(block.shard, block.offset).unwrap();
            let packed = &trunk.blocks()[index as usize];
            assert_eq!(packed.raw_bytes, block.bytes);
            assert_eq!(
                (packed.row_start, packed.row_count),
                (block.row_start, block.row_count)
            );
            assert!(last < Some(index), "in sweep order");
            last = Some(index);
        }
        assert_eq!(last, Some(source.block_count() - 1));
    }
}

#[test]
fn tiny_checkpoints_of_every_layout_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let specs = [
        TinySpec::small(1),
        TinySpec::odd(2),
        TinySpec::wide_union(3),
    ];
    for (index, spec) in specs.iter().enumerate() {
        let path = dir.path().join(format!("model{index}"));
        std::fs::create_dir(&path).unwrap();
        spec.write_to(&path).unwrap();
        let outs = [dir.path().join(format!("out{index}"))];
        pack_all(&source(&path), &trunk_settings(&outs, 2)).unwrap();
        verify(&path, &outs).unwrap();
    }
}

#[test]
fn raw_is_raw() {
    let model = Model::wide(2);
    let source = model.source();
    let outs = model.outs("out", 1);
    let mut settings = trunk_settings(&outs, 2);
    settings.codec = CodecChoice::Raw;
    let summary = pack_all(&source, &settings).unwrap();
    assert_eq!(summary.bf16_x3_blocks, 0);
    assert_eq!(summary.stored_bytes, summary.raw_bytes);
    assert!(summary.extent_bytes >= summary.raw_bytes);
    let trunk = open_trunk(&source, &outs).unwrap();
    let file = std::fs::read(&stripe_paths(&outs)[0]).unwrap();
    for (block, packed) in source.blocks().iter().zip(trunk.blocks()) {
        let shard = std::fs::read(k3_formats::ReadAt::label(source.shard(block))).unwrap();
        let range = |offset: u64| {
            let start = usize::try_from(offset).unwrap();
            start..start + usize::try_from(block.bytes).unwrap()
        };
        assert!(file[range(packed.offset)] == shard[range(block.offset)]);
    }
    verify(&model.path(), &outs).unwrap();
}
