//! What a replay found.

use serde::Serialize;

use super::names::{AccessModel, ReplayPolicy};

/// A replay: one row per slot count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Policy replayed.
    pub policy: ReplayPolicy,
    /// How the trace was turned into demands.
    pub model: AccessModel,
    /// Picks per position and layer.
    pub top_k: usize,
    /// Layers with experts in the trace.
    pub layer_count: usize,
    /// Whether only the trace's last sweep was used.
    pub last_pass: bool,
    /// Positions replayed.
    pub position_count: usize,
    /// Of them in the prompt.
    pub prompt_position_count: usize,
    /// Slots of every row that the policy could not fill.
    pub transit_count: usize,
    /// Size of one expert.
    pub expert_bytes: u64,
    /// In the order asked for.
    pub rows: Vec<ReplayRow>,
}

/// One slot count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayRow {
    /// Slots in all.
    pub slot_count: usize,
    /// Slots the policy could fill.
    pub cache_slot_count: usize,
    /// Bytes of all slots.
    pub slot_bytes: u64,
    /// Each step.
    pub steps: Vec<ReplayStep>,
    /// The policy's sums.
    #[serde(flatten)]
    pub tallies: PhaseTallies,
    /// The same sums with knowledge of the future and as many cache slots: no
    /// policy has more hits in all. (In a part of the run one may, by having fewer
    /// in another.)
    pub belady: PhaseTallies,
}

/// Sums over the parts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PhaseTallies {
    /// All steps.
    pub all: Tally,
    /// The steps after the prompt.
    pub decode: Tally,
    /// The last step.
    pub final_step: Tally,
}

/// One step: the prompt, or what was taken through the layers at once after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReplayStep {
    /// Positions of the step.
    pub position_count: usize,
    /// Whether it belongs to the prompt.
    pub is_prompt: bool,
    /// What the policy did.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Hits among requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Experts looked up: every pick in the pick model, the distinct experts of
    /// each layer's demand in the batch model.
    pub requests: u64,
    /// Of them resident.
    pub hits: u64,
    /// `hits / requests` in percent; 0 without requests.
    pub hit_percent: f64,
    /// Bytes of the others.
    pub read_bytes: u64,
}

impl Tally {
    /// `hits` among `requests` experts of `expert_bytes` each.
    ///
    /// # Panics
    ///
    /// When there are more hits than requests.
    #[must_use]
    pub fn new(requests: u64, hits: u64, expert_bytes: u64) -> Self {
        assert!(hits <= requests);
        let hit_percent = if requests == 0 {
            0.0
        } else {
            100.0 * hits as f64 / requests as f64
        };
        assert!((0.0..=100.0).contains(&hit_percent));
        Self {
            requests,
            hits,
            hit_percent,
            read_bytes: (requests - hits) * expert_bytes,
        }
    }
}

impl PhaseTallies {
    /// The sums over `steps`, of which there is at least one.
    pub(super) fn new(steps: &[ReplayStep], expert_bytes: u64) -> Self {
        let sum = |is_part: &dyn Fn(&ReplayStep) -> bool| {
            let part = || steps.iter().filter(|step| is_part(step));
            let requests = part().map(|step| step.tally.requests).sum();
            let hits = part().map(|step| step.tally.hits).sum();
            Tally::new(requests, hits, expert_bytes)
        };
        let last = steps.last().expect("a trace has a step");
        Self {
            all: sum(&|_| true),
            decode: sum(&|step| !step.is_prompt),
            final_step: last.tally,
        }
    }
}
