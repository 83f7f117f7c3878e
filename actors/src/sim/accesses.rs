//! Steps, flattened into the demands that a cache sees.

use std::ops::Range;

use k3_models::ExpertKey;

use super::names::AccessModel;
use super::steps::{Step, Steps};

/// Experts that are looked up at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    /// Index of the step.
    pub(super) step: usize,
    /// Whether a walk through the layers starts with it.
    pub(super) starts_sweep: bool,
    keys: Range<usize>,
}

/// All demands of a replay, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accesses {
    accesses: Vec<Access>,
    keys: Vec<ExpertKey>,
}

impl Accesses {
    pub(super) fn new(steps: &Steps, model: AccessModel) -> Self {
        let mut all = Self::default();
        for (index, step) in steps.steps.iter().enumerate() {
            match model {
                AccessModel::Pick => all.picks(index, step, steps),
                AccessModel::Batch => all.layers(index, step, steps),
            }
        }
        assert!(!all.accesses.is_empty() && !all.keys.is_empty());
        all
    }

    /// Each demand with its keys, which are all of one layer.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Access, &[ExpertKey])> {
        let keys = |access: &Access| &self.keys[access.keys.clone()];
        self.accesses
            .iter()
            .map(move |access| (access, keys(access)))
    }

    fn picks(&mut self, index: usize, step: &Step, steps: &Steps) {
        let top_k = steps.top_k;
        for position in 0..step.position_count {
            let mut starts_sweep = true;
            let layers = step.picks.chunks_exact(step.position_count * top_k);
            for (&layer, picks) in steps.layers.iter().zip(layers) {
                for &expert in &picks[position * top_k..][..top_k] {
                    self.push(index, starts_sweep, &[ExpertKey { layer, expert }]);
                    starts_sweep = false;
                }
            }
        }
    }

    fn layers(&mut self, index: usize, step: &Step, steps: &Steps) {
        let mut starts_sweep = true;
        let layers = step.picks.chunks_exact(step.position_count * steps.top_k);
        for (&layer, picks) in steps.layers.iter().zip(layers) {
            let keys: Vec<_> = picks
                .iter()
                .map(|&expert| ExpertKey { layer, expert })
                .collect();
            self.push(index, starts_sweep, &keys);
            starts_sweep = false;
        }
    }

    fn push(&mut self, step: usize, starts_sweep: bool, keys: &[ExpertKey]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(keys);
        self.accesses.push(Access {
            step,
            starts_sweep,
            keys: start..self.keys.len(),
        });
    }
}
