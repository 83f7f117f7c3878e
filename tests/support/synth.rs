//! Checkpoints of released dimensions, for the slow tier.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_formats::gates;
use k3_formats::synth::{Resizing, Vision, released_config};
use k3_pack::synth::{Content, SynthPlan, SynthSettings, write};
use tempfile::TempDir;

/// Free disk below which 19 GB are not written for a test.
const FREE_BYTES_MIN: u64 = 30_000_000_000;
/// What writing them leaves free of that.
const RESERVE_BYTES: u64 = 10_000_000_000;

/// A checkpoint that goes with this.
pub(crate) struct Synthetic {
    dir: TempDir,
}

impl Synthetic {
    /// 8 layers of 32 experts, every value written: 19 GB. Says that a test is
    /// not run where there is no room.
    #[allow(dead_code, reason = "each test binary uses its share")]
    pub(crate) fn released() -> Option<Self> {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let free = nix::sys::statvfs::statvfs(parent).unwrap();
        let free_bytes = free.blocks_available() * free.fragment_size();
        if free_bytes < FREE_BYTES_MIN {
            gates::not_run(&format!(
                "{free_bytes} bytes are free, {FREE_BYTES_MIN} are needed"
            ));
            return None;
        }
        let resizing = Resizing {
            layer_count: Some(8),
            expert_count: Some(32),
        };
        Some(Self::write(&resizing, Content::Everything))
    }

    /// All 93 layers and 497,220 tensors, as files with holes.
    #[allow(dead_code, reason = "each test binary uses its share")]
    pub(crate) fn sparse() -> Self {
        let whole = Resizing {
            layer_count: None,
            expert_count: None,
        };
        Self::write(&whole, Content::VectorsOnly)
    }

    fn write(resizing: &Resizing, content: Content) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let synthetic = Self { dir };
        let plan = SynthPlan::new(&SynthSettings {
            out: synthetic.path(),
            config: resizing.apply(&released_config()).unwrap(),
            vision: Vision::Left,
            seed: 0,
            content,
            replace: false,
            threads: NonZeroUsize::new(2).unwrap(),
            reserve_bytes: RESERVE_BYTES,
        });
        write(&plan.unwrap(), &AtomicBool::new(false), &|_| ()).unwrap();
        synthetic
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("model")
    }
}
