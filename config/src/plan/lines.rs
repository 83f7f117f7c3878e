//! The lines of a plan.

use serde::Serialize;

use crate::bytes::Bytes;
use crate::names::named_enum;

use super::experts::{Experts, Slots};
use super::request::{PlanRequest, WorkspaceShape};
use super::trunk::{Trunk, TrunkShare};

named_enum! {
    /// What a line of the plan is for, in the order of the plan.
    LineKind: "plan line" {
        /// Code, stacks and runtime of the process.
        Baseline => "process baseline",
        /// The vocabulary and its tables.
        Vocabulary => "vocabulary",
        /// Where each tensor and expert lies.
        Index => "index",
        /// Small tensors of the trunk, always in memory.
        Vectors => "vectors",
        /// What conversations carry from sweep to sweep.
        States => "sequence states",
        /// Where parts of pages pass through that do not stay in memory.
        Past => "pages read back",
        /// Buffers of a sweep, embedding rows among them.
        Activations => "activations",
        /// Buffers for logits.
        Logits => "logit rows",
        /// What a speculative sweep needs to take positions back.
        SpeculationLog => "speculation log",
        /// Blocks that looking a layer ahead needs in memory.
        Lookahead => "lookahead blocks",
        /// Where streamed blocks pass through.
        Ring => "read-ahead ring",
        /// Expert places for any layer.
        TransitSlots => "transit slots",
        /// Blocks that stay in memory.
        PinnedTrunk => "pinned trunk",
        /// Expert places that outlive a sweep.
        CacheSlots => "cache slots",
    }
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanLine {
    /// What it is for.
    pub kind: LineKind,
    /// Its size. Lines backed by an arena are whole granules.
    pub bytes: Bytes,
    /// How the size came about.
    pub why: String,
}

/// A line before its size is known to be within a budget.
pub(super) struct Need {
    pub(super) kind: LineKind,
    pub(super) bytes: u128,
    pub(super) why: String,
}

impl Need {
    fn new(kind: LineKind, bytes: impl Into<u128>, why: impl Into<String>) -> Self {
        Self {
            kind,
            bytes: bytes.into(),
            why: why.into(),
        }
    }

    pub(super) fn into_line(self) -> PlanLine {
        let line = PlanLine {
            kind: self.kind,
            bytes: saturating_bytes(self.bytes),
            why: self.why,
        };
        assert!(u128::from(line.bytes.0) <= self.bytes);
        assert!(!line.why.is_empty(), "every line says why");
        line
    }
}

/// `bytes`, or the largest number of 64 bits.
pub(super) fn saturating_bytes(bytes: u128) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// The lines that no budget changes, at the given limits.
pub(super) fn fixed_needs(
    request: &PlanRequest<'_>,
    shape: WorkspaceShape,
    trunk: &Trunk,
) -> Vec<Need> {
    assert!(shape.positions > 0 && shape.logit_rows <= shape.positions);
    let mut needs = resident_needs(request);
    needs.push(states_need(request, shape));
    needs.push(past_need(request, shape));
    needs.extend(workspace_needs(request, shape));
    needs.push(Need::new(
        LineKind::SpeculationLog,
        request.speculation_log_bytes,
        if request.speculation_log_bytes == 0 {
            "no guesses"
        } else {
            "to guess, and to take guesses back"
        },
    ));
    needs.push(Need::new(
        LineKind::Lookahead,
        trunk.lookahead_bytes,
        lookahead_why(request, trunk),
    ));
    needs
}

/// What is there before the first sequence.
fn resident_needs(request: &PlanRequest<'_>) -> Vec<Need> {
    vec![
        Need::new(
            LineKind::Baseline,
            request.baseline_bytes,
            "code, stacks and runtime",
        ),
        Need::new(
            LineKind::Vocabulary,
            request.vocabulary_bytes,
            "tokens and merge ranks",
        ),
        Need::new(
            LineKind::Index,
            request.index_bytes,
            "where tensors and experts lie",
        ),
        Need::new(
            LineKind::Vectors,
            request.footprint.vector_bytes,
            "norms, biases, small tensors",
        ),
    ]
}

fn states_need(request: &PlanRequest<'_>, shape: WorkspaceShape) -> Need {
    let footprint = request.footprint;
    let pages = request.page_count(shape.context_positions);
    let fixed = u128::from(footprint.state_bytes_fixed) * u128::from(request.sequences);
    let paged = u128::from(footprint.page_bytes()).checked_mul(u128::from(pages));
    let states = paged.and_then(|paged| fixed.checked_add(paged));
    Need::new(
        LineKind::States,
        // Far beyond any budget it no longer matters by how much, only that the
        // sum of all lines stays within 128 bits.
        states.unwrap_or(u128::MAX).min(u128::MAX / 4),
        states_why(request, shape),
    )
}

fn past_need(request: &PlanRequest<'_>, shape: WorkspaceShape) -> Need {
    let pages = request.pages(shape.context_positions);
    let arena = request.layout.reserve(pages.staged_bytes().into());
    Need::new(
        LineKind::Past,
        arena + u128::from(pages.checksum_bytes()),
        match pages.file_page_count {
            0 => "all pages stay in memory".to_owned(),
            count => format!("one layer of {count} pages on disk"),
        },
    )
}

/// The buffers of a sweep, those for logits apart.
fn workspace_needs(request: &PlanRequest<'_>, shape: WorkspaceShape) -> [Need; 2] {
    let without_logits = (request.workspace)(WorkspaceShape {
        logit_rows: 0,
        ..shape
    });
    let with_logits = (request.workspace)(shape);
    assert!(
        with_logits >= without_logits,
        "a larger shape takes no less"
    );
    let rows = request
        .layout
        .window_bytes(request.footprint.embedding_row_bytes);
    let rows = u128::from(rows) * u128::from(shape.positions);
    [
        Need::new(
            LineKind::Activations,
            u128::from(without_logits) + rows,
            format!(
                "a sweep of {} positions, {} workers",
                shape.positions, shape.workers
            ),
        ),
        Need::new(
            LineKind::Logits,
            with_logits - without_logits,
            counted(
                shape.logit_rows,
                "position with logits",
                "positions with logits",
            ),
        ),
    ]
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn states_why(request: &PlanRequest<'_>, shape: WorkspaceShape) -> String {
    let sequences = counted(request.sequences, "sequence", "sequences");
    let context = shape.context_positions;
    let [memory, in_file] = request.pages_of_each(context);
    if in_file > 0 {
        let all = memory + in_file;
        return match request.sequences {
            1 => format!("{memory} of {all} pages in memory"),
            _ => format!("{sequences}, {memory} of {all} pages each"),
        };
    }
    if request.context_total.is_none() || request.sequences == 1 {
        return format!("{sequences} of {context} positions");
    }
    let pages = counted(request.page_count(context), "page", "pages");
    let page = request.footprint.state_page_positions;
    format!("{sequences} share {pages} of {page}")
}

fn lookahead_why(request: &PlanRequest<'_>, trunk: &Trunk) -> String {
    match trunk.lookahead.pinned_count() {
        0 if request.lookahead_count > 0 => "no layer to look ahead to".to_owned(),
        0 => "no lookahead".to_owned(),
        count => format!("{count} router blocks"),
    }
}

/// The lines that the budget decides.
pub(super) fn variable_needs(
    trunk: &Trunk,
    share: &TrunkShare,
    experts: &Experts,
    slots: Slots,
) -> Vec<Need> {
    assert!(share.ring_places <= trunk.ring_default);
    assert!(slots.transit <= experts.transit_default);
    vec![
        Need::new(LineKind::Ring, share.ring_bytes, ring_why(trunk, share)),
        Need::new(
            LineKind::TransitSlots,
            experts.transit_bytes(slots),
            transit_why(experts, slots),
        ),
        Need::new(
            LineKind::PinnedTrunk,
            share.pinned_bytes,
            pinned_why(trunk, share),
        ),
        Need::new(
            LineKind::CacheSlots,
            experts.cache_bytes(slots),
            cache_why(experts, slots),
        ),
    ]
}

fn ring_why(trunk: &Trunk, share: &TrunkShare) -> String {
    let (places, default) = (share.ring_places, trunk.ring_default);
    let place = Bytes(trunk.place_bytes);
    if places == 0 {
        "every block is pinned".to_owned()
    } else if places < default {
        format!("{places} blocks, not {default}: little memory")
    } else {
        format!("{places} blocks of {place}")
    }
}

fn transit_why(experts: &Experts, slots: Slots) -> String {
    let slot = Bytes(experts.slot_bytes);
    let default = experts.transit_default;
    if experts.expert_count == 0 {
        "a model without experts".to_owned()
    } else if slots.transit == 0 {
        "every expert has a cache slot".to_owned()
    } else if slots.transit < default {
        format!("{} experts, not {default}: little memory", slots.transit)
    } else {
        format!("{} experts of {slot}", slots.transit)
    }
}

fn pinned_why(trunk: &Trunk, share: &TrunkShare) -> String {
    let all = share.pinned.block_count() - trunk.lookahead.pinned_count();
    format!("{} of {all} blocks", share.pinned.pinned_count())
}

fn cache_why(experts: &Experts, slots: Slots) -> String {
    match experts.expert_count {
        0 => "a model without experts".to_owned(),
        count => format!("{} of {count} experts", slots.cache),
    }
}
