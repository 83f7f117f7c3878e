//! Plausible wrong implementations, each to be caught by a fixture.

use std::fmt;

/// One way to get the model subtly wrong. [`Reference::forward`] commits it on
/// request, so that a test can show that some fixture notices.
///
/// [`Reference::forward`]: super::Reference::forward
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistake {
    /// The decay reads `A_log[channel]` instead of `A_log[head]`.
    ALogPerChannel,
    /// The delta rule reads the state before the decay is applied.
    ReadBeforeDecay,
    /// The skip of a zero key tests `k * beta` instead of `k`.
    BetaBeforeZeroTest,
    /// A norm's weight is taken as all ones.
    NormDropped(Norm),
    /// Two norms of one width exchange their weights.
    NormsSwapped(Norm, Norm),
    /// Norms multiply `w * (x * inv)` instead of `(w * x) * inv`.
    NormOrder,
    /// The router sums in 16 lanes, as a matmul does, instead of serially.
    RouterInLanes,
    /// Matmuls sum serially, as the router does, instead of in 16 lanes.
    MatmulSerial,
    /// The dense layers use SiLU in place of SiTU.
    SiluInDenseLayer,
    /// Attention scores leave out the rope tail.
    RopeTailDropped,
    /// The rope tail is rotated by position, as the name suggests.
    RopeRotated,
    /// Attention divides by the root of the nope width alone.
    ScaleOfNopeWidth,
    /// An expert's weight is its biased score.
    BiasInWeights,
    /// The routed norm is applied to each expert's output, not to their sum.
    NormPerExpert,
    /// The shared experts read the latent (padded or cut to the hidden width).
    SharedExpertsOnLatent,
    /// The mixed input replaces the running prefix.
    MixReplacesPrefix,
    /// The snapshot list is not emptied between positions.
    SnapshotsCarried,
    /// SiTU multiplies by the sigmoid of the capped gate.
    SigmoidOfCappedGate,
    /// The high nibble is taken for the even column.
    NibbleOrder,
}

/// The norms of the model, one per role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// `input_layernorm`, width hidden.
    Input,
    /// `post_attention_layernorm`, width hidden.
    PostAttention,
    /// `self_attention_res_norm`, width hidden.
    SelfAttentionResidual,
    /// `mlp_res_norm`, width hidden.
    MlpResidual,
    /// `output_attn_res_norm`, width hidden.
    OutputResidual,
    /// The final `norm`, width hidden.
    Final,
    /// `q_a_layernorm`, width of the query latent.
    QueryLatent,
    /// `kv_a_layernorm`, width of the key-value latent.
    KeyValueLatent,
    /// `o_norm`, width of a KDA head.
    KdaOutput,
    /// `routed_expert_norm`, width of the expert latent.
    RoutedExperts,
}

impl Norm {
    /// Every norm.
    pub const ALL: [Self; 10] = [
        Self::Input,
        Self::PostAttention,
        Self::SelfAttentionResidual,
        Self::MlpResidual,
        Self::OutputResidual,
        Self::Final,
        Self::QueryLatent,
        Self::KeyValueLatent,
        Self::KdaOutput,
        Self::RoutedExperts,
    ];
}

impl Mistake {
    /// Every mistake: each norm dropped, and the pairs that share a width and
    /// are easily taken for each other swapped.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::ALogPerChannel,
            Self::ReadBeforeDecay,
            Self::BetaBeforeZeroTest,
            Self::NormOrder,
            Self::RouterInLanes,
            Self::MatmulSerial,
            Self::SiluInDenseLayer,
            Self::RopeTailDropped,
            Self::RopeRotated,
            Self::ScaleOfNopeWidth,
            Self::BiasInWeights,
            Self::NormPerExpert,
            Self::SharedExpertsOnLatent,
            Self::MixReplacesPrefix,
            Self::SnapshotsCarried,
            Self::SigmoidOfCappedGate,
            Self::NibbleOrder,
            Self::NormsSwapped(Norm::Input, Norm::PostAttention),
            Self::NormsSwapped(Norm::SelfAttentionResidual, Norm::MlpResidual),
            Self::NormsSwapped(Norm::Input, Norm::SelfAttentionResidual),
            Self::NormsSwapped(Norm::Final, Norm::OutputResidual),
        ];
        all.extend(Norm::ALL.map(Self::NormDropped));
        all
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Through a string so that a width in the caller's format is honoured.
        f.pad(&format!("{self:?}"))
    }
}
