//! The whole released model, as files with holes.

use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use k3_formats::synth::{RELEASED_TENSOR_BYTES, RELEASED_TENSOR_COUNT, Vision, released_config};
use k3_pack::synth::{Content, SynthPlan};

use crate::support::{make, open, settings};

#[test]
fn all_tensors_fit_in_a_few_hundred_megabytes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let mut settings = settings(&out, released_config());
    settings.content = Content::VectorsOnly;
    settings.vision = Vision::Included;
    settings.threads = NonZeroUsize::new(2).unwrap();
    let plan = SynthPlan::new(&settings).unwrap();
    assert_eq!(plan.tensor_count(), RELEASED_TENSOR_COUNT);
    assert_eq!(plan.tensor_bytes(), RELEASED_TENSOR_BYTES);

    let started = Instant::now();
    let summary = make(&settings).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds < 60.0, "{seconds}");

    let (mut apparent, mut on_disk, mut shard_bytes) = (0, 0, 0);
    for entry in out.read_dir().unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        apparent += metadata.len();
        on_disk += metadata.blocks() * 512;
        if entry
            .file_name()
            .to_string_lossy()
            .ends_with(".safetensors")
        {
            shard_bytes += metadata.len();
        }
    }
    println!("sparse: {seconds:.1} s, {apparent} bytes apparent, {on_disk} on disk");
    assert_eq!(on_disk, summary.disk_bytes);
    assert!(on_disk < 600_000_000, "{on_disk}");
    assert!(
        on_disk <= plan.disk_bytes(),
        "{on_disk} > {}",
        plan.disk_bytes()
    );
    // Headers make up the difference: 75.8 MB in the release.
    let header_bytes = shard_bytes - RELEASED_TENSOR_BYTES;
    assert!(
        (50_000_000..100_000_000).contains(&header_bytes),
        "{header_bytes}"
    );

    let checkpoint = open(&out);
    assert_eq!(*checkpoint.config(), released_config());
    let index = checkpoint.index();
    assert_eq!(index.tensor_count(), RELEASED_TENSOR_COUNT);
    assert_eq!(index.tensor_bytes(), RELEASED_TENSOR_BYTES);
    checkpoint.bind(None).unwrap();
    let read = |name: &str| {
        let tensor = index.get(name).unwrap();
        let mut bytes = vec![1; usize::try_from(tensor.bytes.min(1 << 20)).unwrap()];
        checkpoint
            .read(tensor.shard.into(), tensor.offset, &mut bytes)
            .unwrap();
        bytes
    };
    let stem = "language_model.model.layers.57";
    // A hole, in the middle of a shard.
    let hole = read(&format!(
        "{stem}.block_sparse_moe.experts.895.w2.weight_packed"
    ));
    assert!(hole.iter().all(|byte| *byte == 0));
    for name in [
        "input_layernorm.weight",
        "block_sparse_moe.gate.e_score_correction_bias",
    ] {
        let values = read(&format!("{stem}.{name}"));
        assert!(
            values
                .chunks(4)
                .all(|value| value.iter().any(|byte| *byte != 0)),
            "{name}"
        );
    }
}
