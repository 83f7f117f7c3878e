//! A tiny checkpoint on disk, opened the way the program opens one.
#![allow(dead_code, reason = "each test binary uses its share")]

use std::ops::ControlFlow;

use k3_kernels::{Isa, KernelSet};
use k3_models::LogitRows;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, ComputePool, ResidentSource, RunError, Session,
    SessionBytes, SessionSettings,
};
use k3_testkit::{TinyCheckpoint, TinySpec};
use tempfile::TempDir;

/// A checkpoint written to a directory of its own.
pub(crate) struct Written {
    pub(crate) tiny: TinyCheckpoint,
    pub(crate) dir: TempDir,
}

pub(crate) fn write(spec: &TinySpec) -> Written {
    write_with(spec, |_| {})
}

pub(crate) fn write_with(
    spec: &TinySpec,
    edit: impl FnMut(&mut Vec<k3_testkit::Tensor>),
) -> Written {
    let dir = TempDir::new().unwrap();
    let mut tiny = spec.generate_with(edit);
    tiny.write_to(dir.path()).unwrap();
    Written { tiny, dir }
}

pub(crate) fn open(dir: &std::path::Path) -> Result<Checkpoint, RunError> {
    Checkpoint::open(&CheckpointPaths {
        model_dir: dir.to_owned(),
        roots: Vec::new(),
        config: None,
    })
}

/// How one run differs from another; none of it may show in the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
    pub(crate) chunk: usize,
    pub(crate) block_bytes: u64,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            isa: KernelSet::detect().isa,
            threads: 1,
            chunk: 64,
            block_bytes: 4 << 20,
        }
    }
}

pub(crate) fn load(
    checkpoint: &Checkpoint,
    form: AttentionForm,
    way: Way,
) -> (KimiK3, ResidentSource) {
    let kernels = KernelSet::for_isa(way.isa).expect("only available sets are tried");
    let layout = checkpoint.bind(None).unwrap();
    let layers = layout.layer_count();
    let model: KimiK3 = KimiK3::new(layout, form, kernels, way.block_bytes, |tensor, out| {
        checkpoint.read_tensor(tensor, out)
    })
    .unwrap();
    let beside = SessionBytes::default();
    let go_on = |_, _| ControlFlow::Continue(());
    let source = ResidentSource::load(&model, checkpoint, layers, beside, go_on).unwrap();
    (model, source)
}

/// Logits of every position of `ids`: `[positions][vocab]`.
pub(crate) fn all_logits(
    checkpoint: &Checkpoint,
    ids: &[u32],
    form: AttentionForm,
    way: Way,
) -> Result<Vec<f32>, RunError> {
    let (model, mut source) = load(checkpoint, form, way);
    let pool = ComputePool::new(way.threads)
        .unwrap()
        .splitting_everything();
    let settings = SessionSettings {
        context_positions: ids.len(),
        chunk_positions: way.chunk,
        all_logits: true,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    let mut logits = Vec::new();
    session.append(ids, LogitRows::All, |_, rows| {
        logits.extend_from_slice(rows)
    })?;
    Ok(logits)
}

/// Equal to the last bit.
pub(crate) fn assert_same_bits(got: &[f32], want: &[f32], what: &dyn std::fmt::Debug) {
    assert_eq!(got.len(), want.len(), "{what:?}");
    let differing = got
        .iter()
        .zip(want)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count();
    assert_eq!(
        differing,
        0,
        "{what:?}: {differing} of {} values differ",
        want.len()
    );
}

/// Ids below `vocab`, the same for the same arguments.
pub(crate) fn prompt(len: usize, vocab: usize, seed: u64) -> Vec<u32> {
    let mut rng = k3_testkit::Rng::new(seed);
    (0..len)
        .map(|_| u32::try_from(rng.below(vocab)).unwrap())
        .collect()
}
