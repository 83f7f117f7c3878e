//! The matrix products of a sweep and the buffers they connect.

use k3_config::BlockKind;
use k3_formats::KimiK3Config;

use crate::ids::LayerIndex;
use crate::kimi_k3::layout::{Attention, KimiK3Layout, Mlp};
use crate::program::{Step, SweepProgram};

/// A matrix product of the model. The discriminant is the block's `op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    KdaQ,
    KdaK,
    KdaV,
    KdaFA,
    KdaFB,
    KdaB,
    KdaG,
    MlaQA,
    MlaQB,
    MlaKvA,
    MlaG,
    MlaKvB,
    AttentionOut,
    DenseGate,
    DenseUp,
    DenseDown,
    Router,
    LatentDown,
    SharedGate,
    SharedUp,
    SharedDown,
    LatentUp,
    Head,
}

const OPS: [Op; 23] = [
    Op::KdaQ,
    Op::KdaK,
    Op::KdaV,
    Op::KdaFA,
    Op::KdaFB,
    Op::KdaB,
    Op::KdaG,
    Op::MlaQA,
    Op::MlaQB,
    Op::MlaKvA,
    Op::MlaG,
    Op::MlaKvB,
    Op::AttentionOut,
    Op::DenseGate,
    Op::DenseUp,
    Op::DenseDown,
    Op::Router,
    Op::LatentDown,
    Op::SharedGate,
    Op::SharedUp,
    Op::SharedDown,
    Op::LatentUp,
    Op::Head,
];

/// An activation buffer `[positions][width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Buffer {
    /// The normalised input of a sublayer.
    Input,
    /// KDA: q before its convolution. MLA: q, `[heads][nope | rope]`.
    Query,
    /// KDA: k before its convolution.
    Key,
    /// KDA: v before its convolution.
    Value,
    /// The narrow middle of a two-step projection, before any norm.
    Narrow,
    /// MLA: the normalised low-rank query.
    LowQuery,
    /// KDA: the decay's argument before its bias.
    Decay,
    /// KDA: beta before its sigmoid.
    Beta,
    /// The output gate before its sigmoid.
    Gate,
    /// Attention heads, gated.
    Heads,
    /// Output of a sublayer's last projection.
    Sublayer,
    /// MLP gate.
    MlpGate,
    /// MLP up, then the activated product.
    MlpUp,
    /// Router logits.
    Scores,
    /// Input of the experts; later the mixture.
    Latent,
    /// Output of the shared experts.
    Shared,
    /// Logits: `[logit rows][vocab]`.
    Logits,
}

/// Number of [`Buffer`]s.
pub(crate) const BUFFER_COUNT: usize = 17;

impl Op {
    /// The product a block takes part in.
    ///
    /// # Panics
    ///
    /// If `code` is none this family made.
    pub(crate) fn from_code(code: u8) -> Self {
        OPS[usize::from(code)]
    }

    /// Input and output buffers.
    pub(crate) fn wiring(self) -> (Buffer, Buffer) {
        match self {
            Op::KdaQ => (Buffer::Input, Buffer::Query),
            Op::KdaK => (Buffer::Input, Buffer::Key),
            Op::KdaV => (Buffer::Input, Buffer::Value),
            Op::KdaFA | Op::MlaQA | Op::MlaKvA => (Buffer::Input, Buffer::Narrow),
            Op::KdaFB => (Buffer::Narrow, Buffer::Decay),
            Op::KdaB => (Buffer::Input, Buffer::Beta),
            Op::KdaG | Op::MlaG => (Buffer::Input, Buffer::Gate),
            Op::MlaQB => (Buffer::LowQuery, Buffer::Query),
            // Attention itself happens while these blocks pass.
            Op::MlaKvB => (Buffer::Query, Buffer::Heads),
            Op::AttentionOut => (Buffer::Heads, Buffer::Sublayer),
            Op::DenseGate | Op::SharedGate => (Buffer::Input, Buffer::MlpGate),
            Op::DenseUp | Op::SharedUp => (Buffer::Input, Buffer::MlpUp),
            Op::DenseDown => (Buffer::MlpUp, Buffer::Sublayer),
            Op::SharedDown => (Buffer::MlpUp, Buffer::Shared),
            Op::Router => (Buffer::Input, Buffer::Scores),
            Op::LatentDown => (Buffer::Input, Buffer::Latent),
            Op::LatentUp => (Buffer::Latent, Buffer::Sublayer),
            Op::Head => (Buffer::Input, Buffer::Logits),
        }
    }
}

/// Elements per row of every buffer.
pub(crate) fn buffer_widths(config: &KimiK3Config) -> [usize; BUFFER_COUNT] {
    let hidden = config.hidden_size;
    let channels = config.kda_heads * config.kda_head_dim;
    let heads = config.mla_heads;
    let query = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim);
    let values = heads * config.v_head_dim;
    let shared = config.num_shared_experts * config.moe_intermediate_size;
    let dense = if config.first_k_dense_replace > 0 {
        config.intermediate_size
    } else {
        0
    };
    let mut widths = [0; BUFFER_COUNT];
    let mut set = |buffer: Buffer, width| widths[buffer as usize] = width;
    set(Buffer::Input, hidden);
    set(Buffer::Query, channels.max(query));
    set(Buffer::Key, channels);
    set(Buffer::Value, channels);
    set(
        Buffer::Narrow,
        config
            .kda_head_dim
            .max(config.q_lora_rank)
            .max(config.kv_lora_rank + config.qk_rope_head_dim),
    );
    set(Buffer::LowQuery, config.q_lora_rank);
    set(Buffer::Decay, channels);
    set(Buffer::Beta, config.kda_heads);
    set(Buffer::Gate, channels.max(values));
    set(Buffer::Heads, channels.max(values));
    set(Buffer::Sublayer, hidden);
    set(Buffer::MlpGate, shared.max(dense));
    set(Buffer::MlpUp, shared.max(dense));
    set(Buffer::Scores, config.num_experts);
    set(Buffer::Latent, config.routed_expert_hidden_size);
    set(Buffer::Shared, hidden);
    set(Buffer::Logits, config.vocab_size);
    widths
}

/// The sweep order of a bound model, in blocks of at most `block_bytes`.
///
/// kv_b is cut at whole heads: the attention of a head runs while its rows
/// are at hand, so the tensor passes once although it is used twice: by columns
/// for the queries, by rows for the values. It is never packed therefore
/// (24 matrices of the release, 0.5 % of its trunk).
pub(crate) fn sweep_program(layout: &KimiK3Layout, block_bytes: u64) -> SweepProgram {
    let config = &layout.config;
    let mut program = SweepProgram::new(layout.embedding);
    let head_rows =
        u32::try_from(config.qk_nope_head_dim + config.v_head_dim).expect("head sizes are capped");
    for (index, tensors) in layout.layers.iter().enumerate() {
        let layer = LayerIndex::new(index);
        let kind = BlockKind::Layer(u32::from(layer.0));
        if let Attention::Mla(_) = tensors.attention {
            program.steps.push(Step::Past(layer));
        }
        let mut push = |op: Op, tensor, quantum| {
            program.push_matrix(kind, op as u8, tensor, quantum, block_bytes);
        };
        match &tensors.attention {
            Attention::Kda(kda) => {
                push(Op::KdaQ, &kda.q, 1);
                push(Op::KdaK, &kda.k, 1);
                push(Op::KdaV, &kda.v, 1);
                push(Op::KdaFA, &kda.f_a, 1);
                push(Op::KdaFB, &kda.f_b, 1);
                push(Op::KdaB, &kda.b, 1);
                push(Op::KdaG, &kda.g, 1);
                push(Op::AttentionOut, &kda.o, 1);
            }
            Attention::Mla(mla) => {
                push(Op::MlaQA, &mla.q_a, 1);
                push(Op::MlaQB, &mla.q_b, 1);
                push(Op::MlaKvA, &mla.kv_a, 1);
                if let Some(gate) = &mla.g {
                    push(Op::MlaG, gate, 1);
                }
                push(Op::MlaKvB, &mla.kv_b, head_rows);
                push(Op::AttentionOut, &mla.o, 1);
            }
        }
        match &tensors.mlp {
            Mlp::Dense { gate, up, down } => {
                push(Op::DenseGate, gate, 1);
                push(Op::DenseUp, up, 1);
                push(Op::DenseDown, down, 1);
            }
            Mlp::Moe(moe) => {
                program.push_router(layer, Op::Router as u8, &moe.router, block_bytes);
                let mut push = |op: Op, tensor| {
                    program.push_matrix(kind, op as u8, tensor, 1, block_bytes);
                };
                push(Op::LatentDown, &moe.latent_down);
                push(Op::SharedGate, &moe.shared_gate);
                push(Op::SharedUp, &moe.shared_up);
                push(Op::SharedDown, &moe.shared_down);
                program.steps.push(Step::Experts(layer));
                program.push_matrix(kind, Op::LatentUp as u8, &moe.latent_up, 1, block_bytes);
            }
        }
        program.steps.push(Step::EndLayer(layer));
    }
    program.push_matrix(
        BlockKind::Head,
        Op::Head as u8,
        &layout.head,
        1,
        block_bytes,
    );
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kv_b_is_never_packed_and_it_is_little() {
        let layout = KimiK3Layout::planned(&k3_formats::replica::released_config());
        let program = layout.program(4 << 20);
        let (mut kept_bytes, mut all_bytes) = (0, 0);
        for block in &program.blocks {
            let is_kv_b = Op::from_code(block.op) == Op::MlaKvB;
            assert_eq!(block.may_be_packed(), !is_kv_b, "{block:?}");
            kept_bytes += u64::from(is_kv_b) * block.bytes;
            all_bytes += block.bytes;
        }
        let share = kept_bytes as f64 / all_bytes as f64;
        assert!((0.005..0.006).contains(&share), "{share}");
    }

    #[test]
    fn codes_round_trip() {
        for (code, op) in OPS.into_iter().enumerate() {
            assert_eq!(op as usize, code);
            assert_eq!(Op::from_code(op as u8), op);
        }
    }
}
