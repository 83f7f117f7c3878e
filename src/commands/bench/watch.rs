//! How far a measurement has come: on the screen, and for whoever watches it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k3_config::SettingValues;
use prometheus::core::Collector;

use crate::cli::bench::ResultArgs;
use crate::error::CliError;
use crate::metrics::Metrics;
use crate::metrics::family::{Families, Family, Kind};
use crate::render::progress::Progress;
use crate::settings;

/// The state of a measurement, shared with whoever watches it.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Measured>>);

#[derive(Debug, Clone, Default)]
struct Measured {
    /// What is being done, and the share of it that is.
    stage: Option<(String, f64)>,
    /// What was measured, and the median ratio that came out.
    ratios: Vec<(String, f64)>,
}

impl Watch {
    /// Serves it where `args` or the settings say, for as long as the result
    /// lives.
    ///
    /// # Errors
    ///
    /// Settings that cannot be used, or an address that cannot be listened on.
    pub(super) fn serve(
        &self,
        args: &ResultArgs,
        settings_file: Option<&Path>,
    ) -> Result<Metrics, CliError> {
        let settings = settings::resolve(SettingValues::default(), settings_file)?;
        let address = args.metrics.address(&settings);
        Metrics::open(address, args.quiet, self.collector())
    }

    /// `share` (0 to 1) of `stage` is done.
    fn stage(&self, stage: &str, share: f64) {
        let mut state = self.state();
        match &mut state.stage {
            Some((name, done)) if name == stage => *done = share,
            other => *other = Some((stage.to_owned(), share)),
        }
    }

    /// The median ratio of `what` is known.
    pub(super) fn ratio(&self, what: String, ratio: f64) {
        let mut state = self.state();
        state.ratios.retain(|(other, _)| *other != what);
        state.ratios.push((what, ratio));
    }

    /// Collects how far it is when somebody asks.
    fn collector(&self) -> impl Collector + use<> {
        let watch = self.clone();
        Families::new(FAMILIES, move || watch.state().clone())
    }

    fn state(&self) -> MutexGuard<'_, Measured> {
        // Lists of figures have no half-changed state that a panic could leave.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows one stage after the other.
#[derive(Debug)]
pub(super) struct Stages<'w> {
    watch: &'w Watch,
    quiet: bool,
    shown: Option<(String, Progress)>,
}

impl<'w> Stages<'w> {
    pub(super) fn new(watch: &'w Watch, quiet: bool) -> Self {
        Self {
            watch,
            quiet,
            shown: None,
        }
    }

    /// `share` (0 to 1) of `stage` is done.
    pub(super) fn set(&mut self, stage: &str, share: f64) {
        self.watch.stage(stage, share);
        if self.shown.as_ref().is_none_or(|(shown, _)| shown != stage) {
            // The old bar leaves the screen before the new one comes.
            self.shown = None;
            let bar = Progress::share(stage.to_owned(), self.quiet);
            self.shown = Some((stage.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_share(share);
        }
    }
}

const FAMILIES: &[Family<Measured>] = &[
    Family {
        name: "k3_bench_stage_share",
        help: "Share of the stage at hand that is done",
        kind: Kind::Gauge,
        read: |measured, samples| {
            if let Some((stage, share)) = &measured.stage {
                samples.labelled(&[("stage", stage)], *share);
            }
        },
    },
    Family {
        name: "k3_bench_measured",
        help: "Numbers of positions, devices or limits that are measured",
        kind: Kind::Gauge,
        read: |measured, samples| samples.one(measured.ratios.len()),
    },
    Family {
        name: "k3_bench_ratio",
        help: "Median ratio of what is measured",
        kind: Kind::Gauge,
        read: |measured, samples| {
            for (what, ratio) in &measured.ratios {
                samples.labelled(&[("measured", what)], *ratio);
            }
        },
    },
];
