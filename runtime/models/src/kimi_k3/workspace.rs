//! Activation buffers of a sweep, allocated once for its largest size.

use k3_formats::KimiK3Config;
use k3_kernels::{MXFP4_GROUP, Mxfp4Group, Pick};

use crate::family::{ExpertDemand, WorkspaceSize};
use crate::ids::ExpertKey;
use crate::kimi_k3::held::{self, HeldLog};
use crate::kimi_k3::layout::KimiK3Layout;
use crate::kimi_k3::op::{BUFFER_COUNT, Buffer, buffer_widths};
use crate::kimi_k3::state::StateShape;
use crate::program::SweepProgram;

/// Widened vectors of the layer at hand.
#[derive(Debug)]
pub(crate) struct LayerVectors {
    pub(crate) input_norm: Vec<f32>,
    pub(crate) post_norm: Vec<f32>,
    pub(crate) attention_fold: Vec<f32>,
    pub(crate) mlp_fold: Vec<f32>,
    /// q, k, v taps, each `[channels][kernel]`.
    pub(crate) taps: [Vec<f32>; 3],
    /// exp(A_log) per head.
    pub(crate) decay_rate: Vec<f32>,
    pub(crate) dt_bias: Vec<f32>,
    pub(crate) o_norm: Vec<f32>,
    pub(crate) q_a_norm: Vec<f32>,
    pub(crate) kv_a_norm: Vec<f32>,
    pub(crate) router_bias: Vec<f32>,
    pub(crate) expert_norm: Vec<f32>,
}

impl LayerVectors {
    fn new(config: &KimiK3Config) -> Self {
        let hidden = config.hidden_size;
        let channels = config.kda_heads * config.kda_head_dim;
        let taps = || vec![0.0; channels * config.short_conv_kernel_size];
        Self {
            input_norm: vec![0.0; hidden],
            post_norm: vec![0.0; hidden],
            attention_fold: vec![0.0; hidden],
            mlp_fold: vec![0.0; hidden],
            taps: [taps(), taps(), taps()],
            decay_rate: vec![0.0; config.kda_heads],
            dt_bias: vec![0.0; channels],
            o_norm: vec![0.0; config.kda_head_dim],
            q_a_norm: vec![0.0; config.q_lora_rank],
            kv_a_norm: vec![0.0; config.kv_lora_rank],
            router_bias: vec![0.0; config.num_experts],
            expert_norm: vec![0.0; config.routed_expert_hidden_size],
        }
    }

    fn len(config: &KimiK3Config) -> usize {
        let channels = config.kda_heads * config.kda_head_dim;
        4 * config.hidden_size
            + channels * (3 * config.short_conv_kernel_size + 1)
            + config.kda_heads
            + config.kda_head_dim
            + config.q_lora_rank
            + config.kv_lora_rank
            + config.num_experts
            + config.routed_expert_hidden_size
    }
}

/// Lengths of all buffers, in elements: one formula for the plan and for the
/// allocation.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    buffers: [usize; BUFFER_COUNT],
    hidden: usize,
    snapshots: usize,
    wide: usize,
    head_out: usize,
    head_scratch: usize,
    worker_scratch: usize,
    worker_sums: usize,
    expert_io: usize,
    prepared: usize,
    positions: usize,
    expert_inner: usize,
    results: usize,
    picks: usize,
    vectors: usize,
    /// The log of held positions, and heads to step in.
    held: [usize; 2],
}

impl Lengths {
    fn new(layout: &KimiK3Layout, program: &SweepProgram, size: &WorkspaceSize) -> Self {
        let config = &layout.config;
        let shape = StateShape::new(config);
        let positions = size.positions;
        let mut buffers = buffer_widths(config).map(|width| width * positions);
        buffers[Buffer::Logits as usize] = config.vocab_size * size.logit_rows;
        let row_max = program
            .blocks
            .iter()
            .map(|block| block.row_count)
            .max()
            .unwrap_or(0);
        let experts = config.num_experts_per_token;
        let latent = config.routed_expert_hidden_size;
        let per_head_kv = shape.nope + shape.value;
        Self {
            buffers,
            hidden: config.hidden_size * positions,
            snapshots: config.hidden_size
                * positions
                * layout.layer_count().div_ceil(config.attn_res_block_size),
            wide: row_max as usize * positions.max(size.logit_rows),
            head_out: config.kda_heads * config.kda_head_dim * positions,
            head_scratch: config.kda_heads * KDA_SCRATCH * config.kda_head_dim,
            // Scores of one position, an absorbed query, and per position a
            // latent mixture or a head's keys and values.
            worker_scratch: size.workers
                * (size.context_positions
                    + shape.latent
                    + shape.value
                    + positions * shape.latent.max(per_head_kv)),
            worker_sums: size.workers * shape.latent,
            expert_io: latent * positions,
            prepared: latent / MXFP4_GROUP * positions,
            positions,
            expert_inner: config.moe_intermediate_size * positions,
            results: latent * positions * experts,
            picks: positions * experts,
            vectors: LayerVectors::len(config),
            held: held::lengths(
                config,
                layout.layer_count(),
                size.held_positions,
                size.workers,
            ),
        }
    }

    fn bytes(&self) -> u64 {
        let singles = self.buffers.iter().sum::<usize>()
            + 4 * self.hidden
            + self.snapshots
            + self.wide
            + self.head_out
            + self.head_scratch
            + self.worker_scratch
            + 2 * self.expert_io
            + 3 * self.expert_inner
            + self.results
            + self.vectors
            + self.held.iter().sum::<usize>();
        // f64 sums; picks as u16 ids, f32 weights, two union entries, a guess;
        // chosen positions.
        let doubles = self.worker_sums + self.positions;
        let prepared = size_of::<Mxfp4Group>() * self.prepared;
        (4 * singles + 8 * doubles + 20 * self.picks + prepared) as u64
    }
}

/// Largest sweep or context whose buffers are computed exactly.
const POSITIONS_MAX: usize = 1 << 28;

/// Head-sized scratch vectors of a KDA step: q, k, v, alpha, delta, output.
pub(crate) const KDA_SCRATCH: usize = 6;

/// Buffers of one sweep of Kimi K3.
#[derive(Debug)]
pub struct KimiK3Workspace {
    pub(crate) size: WorkspaceSize,
    pub(crate) buffers: [Vec<f32>; BUFFER_COUNT],
    /// The running residual: `[positions][hidden]`.
    pub(crate) prefix: Vec<f32>,
    /// Output of a residual mix: `[positions][hidden]`.
    pub(crate) mixed: Vec<f32>,
    /// `[snapshots][positions][hidden]`.
    pub(crate) snapshots: Vec<f32>,
    /// One block's product before it is laid out by position.
    pub(crate) wide: Vec<f32>,
    /// KDA: `[heads][positions][dim]`.
    pub(crate) head_out: Vec<f32>,
    /// KDA: `[heads][KDA_SCRATCH][dim]`.
    pub(crate) head_scratch: Vec<f32>,
    /// MLA: per worker.
    pub(crate) worker_scratch: Vec<f32>,
    /// MLA: per worker, `[latent]`.
    pub(crate) worker_sums: Vec<f64>,
    /// KDA: what the held positions took.
    pub(crate) held: HeldLog,
    /// Latents prepared for products with experts: `[positions][groups]`.
    pub(crate) prepared: Vec<Mxfp4Group>,
    /// Whether `prepared` holds the latents of the layer at hand.
    pub(crate) latents_prepared: bool,
    /// Positions that picked the expert at hand.
    pub(crate) chosen: Vec<usize>,
    /// Output of one expert, `[latent][positions]`.
    pub(crate) expert_out: Vec<f32>,
    /// Sums of the experts of every position, `[positions][latent]`.
    pub(crate) expert_sums: Vec<f32>,
    /// Inner activations of one expert: gate, up and their product.
    pub(crate) expert_inner: [Vec<f32>; 3],
    /// Output of every pick: `[positions][top_k][latent]`.
    pub(crate) results: Vec<f32>,
    /// Weight of every pick: `[positions][top_k]`.
    pub(crate) pick_weights: Vec<f32>,
    pub(crate) demand: ExpertDemand,
    /// Experts the next layer seems to need.
    pub(crate) guesses: Vec<ExpertKey>,
    pub(crate) vectors: LayerVectors,
    /// `[hidden]`: for folds and norms outside a layer.
    pub(crate) fold_scratch: Vec<f32>,
    /// Scores and choices of one position: `[2][experts]`.
    pub(crate) choice: Vec<f32>,
    /// Picks of one position: `[top_k]`.
    pub(crate) picks: Vec<Pick>,
}

impl KimiK3Workspace {
    pub(crate) fn new(layout: &KimiK3Layout, program: &SweepProgram, size: WorkspaceSize) -> Self {
        let lengths = Lengths::new(layout, program, &size);
        let zeros = |len: usize| vec![0.0f32; len];
        let inner = || vec![0.0f32; lengths.expert_inner];
        Self {
            size,
            buffers: lengths.buffers.map(zeros),
            prefix: zeros(lengths.hidden),
            mixed: zeros(lengths.hidden),
            snapshots: zeros(lengths.snapshots),
            wide: zeros(lengths.wide),
            head_out: zeros(lengths.head_out),
            head_scratch: zeros(lengths.head_scratch),
            worker_scratch: zeros(lengths.worker_scratch),
            worker_sums: vec![0.0; lengths.worker_sums],
            held: HeldLog::new(lengths.held),
            prepared: vec![Mxfp4Group::default(); lengths.prepared],
            latents_prepared: false,
            chosen: Vec::with_capacity(lengths.positions),
            expert_out: zeros(lengths.expert_io),
            expert_sums: zeros(lengths.expert_io),
            expert_inner: [inner(), inner(), inner()],
            results: zeros(lengths.results),
            pick_weights: zeros(lengths.picks),
            demand: ExpertDemand {
                layer: None,
                top_k: layout.config.num_experts_per_token,
                picks: Vec::with_capacity(lengths.picks),
                union: Vec::with_capacity(lengths.picks),
            },
            guesses: Vec::with_capacity(lengths.picks),
            vectors: LayerVectors::new(&layout.config),
            fold_scratch: zeros(layout.config.hidden_size),
            choice: zeros(2 * layout.config.num_experts),
            picks: vec![Pick::default(); layout.config.num_experts_per_token],
        }
    }

    /// Bytes [`KimiK3Workspace::new`] reserves for `size`.
    pub(crate) fn planned_bytes(
        layout: &KimiK3Layout,
        program: &SweepProgram,
        size: &WorkspaceSize,
    ) -> u64 {
        // Far beyond any machine the number no longer matters, only that it
        // neither wraps nor falls.
        let counts = [size.positions, size.held_positions, size.context_positions];
        if counts.into_iter().max() > Some(POSITIONS_MAX) {
            return u64::MAX / 4;
        }
        Lengths::new(layout, program, size).bytes()
    }
}
