//! A model that is measured: opened, its vectors read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_config::{PathList, SettingValues, Settings};
use k3_kernels::KernelSet;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_runtime::{Checkpoint, CheckpointPaths};

use super::size;
use crate::cli::bench::{MeasuredArgs, ResultArgs};
use crate::cli::memory::positive;
use crate::commands::generate::guard;
use crate::commands::model_path;
use crate::commands::running::setup::chosen_isa;
use crate::error::CliError;
use crate::output_file::OutputFile;
use crate::{planning, settings};

/// A model, and how its arithmetic is done.
pub(super) struct Opened {
    pub(super) settings: Settings,
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) model: KimiK3,
    pub(super) threads: usize,
    /// Further files that it was read from, and what they are.
    files: Vec<(&'static str, Option<PathBuf>)>,
}

impl Opened {
    /// The model that `args` name; `values` are the settings given beside them.
    ///
    /// # Errors
    ///
    /// Settings that cannot be used, and a model that cannot be read.
    pub(super) fn new(
        args: &MeasuredArgs,
        values: SettingValues,
        settings_file: Option<&Path>,
    ) -> Result<Self, CliError> {
        let path = model_path(args.model.as_deref())?;
        let values = SettingValues {
            threads: args.threads.map(positive),
            pin_threads: args.placement.pins(),
            isa: args.isa,
            root: (!args.roots.is_empty()).then(|| PathList(args.roots.clone())),
            ..values
        };
        let mut settings = settings::resolve(values, settings_file)?;
        let idle = settings::idle_trunk(&settings);
        settings.warnings.extend(idle);
        settings::check_places(&settings)?;
        let roots = settings.root.as_ref().map(|roots| roots.value.0.clone());
        let checkpoint = Checkpoint::open(&CheckpointPaths {
            model_dir: path,
            roots: roots.unwrap_or_default(),
            config: args.config.clone(),
        })?;
        let layout = checkpoint.bind(args.layers.map(size))?;
        let isa = chosen_isa(&settings.isa)?;
        let kernels = KernelSet::for_isa(isa).expect("the choice has checked it");
        let trunk = planning::trunk_bytes(checkpoint.config(), layout.layer_count());
        let block_bytes = planning::block_bytes(&settings, trunk);
        let read = |tensor: &_, target: &mut [u8]| checkpoint.read_tensor(tensor, target);
        let model = KimiK3::new(layout, AttentionForm::Latent, kernels, block_bytes, read)?;
        Ok(Self {
            threads: planning::threads(&settings),
            settings,
            checkpoint: Arc::new(checkpoint),
            model,
            files: vec![
                ("the settings", settings::file(settings_file)),
                ("the configuration", args.config.clone()),
            ],
        })
    }

    /// The file that was asked for, if it is none that was read; `also` is one
    /// more of these.
    ///
    /// # Errors
    ///
    /// A file that was read, or one that cannot be made.
    pub(super) fn output(
        &self,
        args: &ResultArgs,
        also: Option<(&'static str, PathBuf)>,
    ) -> Result<Option<OutputFile>, CliError> {
        let Some(out) = &args.out else {
            return Ok(None);
        };
        let mut inputs = guard::Inputs::of_checkpoint(&self.checkpoint, &self.settings);
        for (what, path) in &self.files {
            inputs = inputs.and(what, path.clone());
        }
        if let Some((what, path)) = also {
            inputs = inputs.and(what, Some(path));
        }
        guard::check_one("--out", out, &inputs)?;
        OutputFile::create(out).map(Some)
    }
}
