//! Checkpoints worth packing, and what their trunks are compared by.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_formats::synth::{Resizing, released_config};
use k3_formats::{FormatError, KimiK3Config, PackedTrunk};
use k3_io::TrunkFiles;
use k3_pack::PackError;
use k3_pack::trunk::{
    Hooks, Point, SourcePaths, TrunkPlan, TrunkSettings, TrunkSource, TrunkSummary, pack,
};

use crate::support::{make, settings};

/// Layers of every kind with rows wide enough for packing to pay; a trunk of
/// `layers` times a megabyte or so.
pub(crate) fn wide_config(layers: usize) -> KimiK3Config {
    let base = KimiK3Config {
        hidden_size: 768,
        vocab_size: 320,
        kda_heads: 4,
        kda_head_dim: 64,
        mla_heads: 4,
        q_lora_rank: 384,
        kv_lora_rank: 128,
        qk_nope_head_dim: 64,
        qk_rope_head_dim: 32,
        v_head_dim: 64,
        num_experts_per_token: 2,
        routed_expert_hidden_size: 384,
        moe_intermediate_size: 384,
        intermediate_size: 768,
        eos_token_ids: vec![319],
        ..released_config()
    };
    let resizing = Resizing {
        layer_count: Some(layers),
        expert_count: Some(4),
    };
    resizing.apply(&base).unwrap()
}

/// A checkpoint in a directory of its own, which is removed in the end.
pub(crate) struct Model {
    pub(crate) dir: tempfile::TempDir,
}

impl Model {
    pub(crate) fn new(config: KimiK3Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        make(&settings(&dir.path().join("model"), config)).unwrap();
        Self { dir }
    }

    pub(crate) fn wide(layers: usize) -> Self {
        Self::new(wide_config(layers))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("model")
    }

    pub(crate) fn source(&self) -> TrunkSource {
        source(&self.path())
    }

    /// Directories beside the model, not made yet.
    pub(crate) fn outs(&self, name: &str, count: usize) -> Vec<PathBuf> {
        (0..count)
            .map(|index| self.dir.path().join(format!("{name}{index}")))
            .collect()
    }
}

pub(crate) fn source(model: &Path) -> TrunkSource {
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    TrunkSource::open(&paths, None).unwrap()
}

/// Settings that record often and ask for no space to be left free.
pub(crate) fn trunk_settings(outs: &[PathBuf], threads: usize) -> TrunkSettings {
    let mut settings = TrunkSettings::new(outs.to_vec());
    settings.threads = NonZeroUsize::new(threads).unwrap();
    settings.reserve_bytes = 0;
    settings.record.bytes = 200_000;
    settings
}

pub(crate) fn pack_with(
    source: &TrunkSource,
    settings: &TrunkSettings,
    at_point: &(dyn Fn(Point) -> ControlFlow<()> + Sync),
) -> Result<TrunkSummary, PackError> {
    let plan = TrunkPlan::new(source, settings)?;
    let hooks = Hooks {
        at_point,
        ..Hooks::NONE
    };
    pack(source, &plan, &AtomicBool::new(false), &hooks)
}

pub(crate) fn pack_all(
    source: &TrunkSource,
    settings: &TrunkSettings,
) -> Result<TrunkSummary, PackError> {
    pack_with(source, settings, &|_| ControlFlow::Continue(()))
}

/// Compares a trunk with its checkpoint, with two threads.
pub(crate) fn verify(
    model: &Path,
    outs: &[PathBuf],
) -> Result<k3_pack::trunk::Verified, PackError> {
    let threads = NonZeroUsize::new(2).unwrap();
    let go_on = AtomicBool::new(false);
    k3_pack::trunk::verify(source(model), outs, threads, &go_on, &|_| ())
}

/// The trunk in `outs`, or why there is none.
pub(crate) fn open_trunk(source: &TrunkSource, outs: &[PathBuf]) -> Result<PackedTrunk, String> {
    let files = TrunkFiles::open(outs).map_err(|error| error.to_string())?;
    PackedTrunk::open(&files.views(), &source.identity())
        .map_err(|error: FormatError| error.to_string())
}

/// Names and contents of all files of all directories.
pub(crate) fn all_files(outs: &[PathBuf]) -> BTreeMap<(usize, String), Vec<u8>> {
    let mut all = BTreeMap::new();
    for (index, out) in outs.iter().enumerate() {
        for (name, bytes) in crate::support::files(out) {
            all.insert((index, name), bytes);
        }
    }
    all
}

/// One path for each of a trunk's files, in the order of the stripes.
pub(crate) fn stripe_paths(outs: &[PathBuf]) -> Vec<PathBuf> {
    let count = u16::try_from(outs.len()).unwrap();
    (0..count)
        .zip(outs)
        .map(|(index, out)| out.join(k3_formats::trunk::stripe_file_name(index, count)))
        .collect()
}
