//! A trace, cut into the steps of the run that recorded it.

use k3_formats::trace::{ExpertTrace, Sweep};
use k3_models::LayerIndex;

use super::error::ReplayError;
use super::replay::ReplaySettings;

/// The positions that one step takes through the layers together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) position_count: usize,
    /// Whether it belongs to the prompt.
    pub(super) is_prompt: bool,
    /// `[layer][position][top_k]` expert ids in pick order.
    pub(super) picks: Vec<u16>,
}

/// What is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) layers: Vec<LayerIndex>,
    pub(super) top_k: usize,
    pub(super) steps: Vec<Step>,
}

impl Steps {
    pub(super) fn new(trace: &ExpertTrace, settings: &ReplaySettings) -> Result<Self, ReplayError> {
        let top_k = settings.top_k;
        let first = trace.sweeps().next().ok_or(ReplayError::EmptyTrace)?;
        let layers = layers(0, &first)?;
        let sweeps = trace
            .sweeps()
            .enumerate()
            .map(|(index, sweep)| read(index, &sweep, &layers, top_k))
            .collect::<Result<Vec<_>, _>>()?;
        let prompt = settings
            .prompt_positions
            .unwrap_or(sweeps[0].position_count);
        let mut steps = match sweeps.last() {
            Some(last) if settings.last_pass => split(last, prompt, layers.len(), top_k),
            _ => sweeps,
        };
        let mut positions = 0;
        let mut ends_at_step = false;
        for step in &mut steps {
            step.is_prompt = positions < prompt;
            positions += step.position_count;
            ends_at_step |= positions == prompt;
        }
        if !ends_at_step {
            return Err(ReplayError::Prompt { prompt, positions });
        }
        assert!(steps[0].is_prompt);
        Ok(Self {
            layers,
            top_k,
            steps,
        })
    }

    /// One more than the largest expert id, or the picks of a position if
    /// those are more.
    pub(super) fn experts_per_layer(&self) -> usize {
        let picks = self.steps.iter().flat_map(|step| &step.picks);
        let seen = picks.max().map_or(0, |&expert| usize::from(expert) + 1);
        seen.max(self.top_k)
    }
}

fn layers(index: usize, sweep: &Sweep<'_>) -> Result<Vec<LayerIndex>, ReplayError> {
    let layer = |picks: &[k3_formats::trace::TracePair]| {
        let pair = picks[0];
        u16::try_from(pair.layer)
            .map(LayerIndex)
            .map_err(|_| ReplayError::NumberTooLarge {
                sweep: index,
                layer: pair.layer,
                expert: pair.expert,
            })
    };
    sweep.layers().map(layer).collect()
}

/// One sweep as a step; whether it belongs to the prompt is not known yet.
fn read(
    index: usize,
    sweep: &Sweep<'_>,
    expected: &[LayerIndex],
    top_k: usize,
) -> Result<Step, ReplayError> {
    let found = layers(index, sweep)?;
    if found != expected {
        return Err(ReplayError::Layers {
            sweep: index,
            expected: expected.len(),
            found: found.len(),
        });
    }
    let mut positions = None;
    for picks in sweep.layers() {
        let count = picks.len() / top_k;
        if !picks.len().is_multiple_of(top_k) || positions.is_some_and(|known| known != count) {
            return Err(ReplayError::PickCount {
                sweep: index,
                layer: picks[0].layer,
                picks: picks.len(),
                top_k,
                positions,
            });
        }
        positions = Some(count);
    }
    let expert = |pair: &k3_formats::trace::TracePair| {
        u16::try_from(pair.expert).map_err(|_| ReplayError::NumberTooLarge {
            sweep: index,
            layer: pair.layer,
            expert: pair.expert,
        })
    };
    Ok(Step {
        position_count: positions.unwrap_or(0),
        is_prompt: false,
        picks: sweep.pairs().iter().map(expert).collect::<Result<_, _>>()?,
    })
}

/// The prompt's positions of `pass` as one step, each later one as a step.
fn split(pass: &Step, prompt: usize, layer_count: usize, top_k: usize) -> Vec<Step> {
    let total = pass.position_count;
    assert_eq!(pass.picks.len(), layer_count * total * top_k);
    let first = prompt.min(total);
    let ranges = std::iter::once(0..first).chain((first..total).map(|at| at..at + 1));
    let step = |range: std::ops::Range<usize>| Step {
        position_count: range.len(),
        is_prompt: false,
        picks: pass
            .picks
            .chunks_exact(total * top_k)
            .flat_map(|layer| &layer[range.start * top_k..range.end * top_k])
            .copied()
            .collect(),
    };
    ranges.map(step).collect()
}
