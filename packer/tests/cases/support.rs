//! Small models, and what runs them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use k3_formats::KimiK3Config;
use k3_formats::synth::{Resizing, Vision, released_config};
use k3_kernels::KernelSet;
use k3_models::LogitRows;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_pack::PackError;
use k3_pack::synth::{Content, SynthPlan, SynthSettings, SynthSummary, write};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, ComputePool, ResidentSource, Session, SessionBytes,
    SessionSettings,
};

/// A model of a megabyte or so with layers of every kind.
pub(crate) fn small_config(layers: usize, experts: usize) -> KimiK3Config {
    let base = KimiK3Config {
        hidden_size: 96,
        vocab_size: 300,
        kda_heads: 3,
        kda_head_dim: 16,
        mla_heads: 3,
        q_lora_rank: 40,
        kv_lora_rank: 24,
        qk_nope_head_dim: 12,
        qk_rope_head_dim: 6,
        v_head_dim: 10,
        num_experts_per_token: 4,
        routed_expert_hidden_size: 64,
        moe_intermediate_size: 32,
        intermediate_size: 80,
        eos_token_ids: vec![299],
        ..released_config()
    };
    let resizing = Resizing {
        layer_count: Some(layers),
        expert_count: Some(experts),
    };
    resizing.apply(&base).unwrap()
}

/// A small checkpoint below `directory`.
pub(crate) fn made(directory: &Path) -> std::path::PathBuf {
    let out = directory.join("model");
    let plan = SynthPlan::new(&settings(&out, small_config(3, 6))).unwrap();
    write(&plan, &AtomicBool::new(false), &|_| ()).unwrap();
    out
}

/// Settings that ask for no space to be left free.
pub(crate) fn settings(out: &Path, config: KimiK3Config) -> SynthSettings {
    SynthSettings {
        out: out.to_owned(),
        config,
        vision: Vision::Left,
        seed: 1,
        content: Content::Everything,
        replace: false,
        threads: NonZeroUsize::MIN,
        reserve_bytes: 0,
    }
}

pub(crate) fn make(settings: &SynthSettings) -> Result<SynthSummary, PackError> {
    let plan = SynthPlan::new(settings)?;
    write(&plan, &AtomicBool::new(false), &|_| ())
}

/// Names and contents of a directory's files.
pub(crate) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = directory.read_dir().unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

pub(crate) fn open(directory: &Path) -> Checkpoint {
    Checkpoint::open(&CheckpointPaths {
        model_dir: directory.to_owned(),
        roots: Vec::new(),
        config: None,
    })
    .unwrap()
}

/// What a prompt came to.
pub(crate) struct Outcome {
    /// `[positions][vocabulary]`.
    pub(crate) logits: Vec<f32>,
    /// (layer, expert) in order.
    pub(crate) picks: Vec<(u16, u16)>,
}

/// Runs `ids` through the engine, all weights in memory.
pub(crate) fn run(checkpoint: &Checkpoint, ids: &[u32]) -> Outcome {
    let layout = checkpoint.bind(None).unwrap();
    let layers = layout.layer_count();
    let kernels = KernelSet::detect();
    let model = KimiK3::new(
        layout,
        AttentionForm::Latent,
        kernels,
        4 << 20,
        |tensor, out| checkpoint.read_tensor(tensor, out),
    )
    .unwrap();
    let beside = SessionBytes::default();
    let go_on = |_, _| ControlFlow::Continue(());
    let mut source = ResidentSource::load(&model, checkpoint, layers, beside, go_on).unwrap();
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: ids.len(),
        chunk_positions: ids.len(),
        all_logits: true,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    session.record_trace();
    let mut logits = Vec::new();
    session
        .append(ids, LogitRows::All, |_, rows| {
            logits.extend_from_slice(rows)
        })
        .unwrap();
    Outcome {
        logits,
        picks: session.trace().unwrap().to_vec(),
    }
}
