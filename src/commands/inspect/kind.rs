//! What a tensor is, by its name.

use serde::Serialize;

/// Prefixes of the language model's tensors.
const PREFIXES: [&str; 2] = ["language_model.model.", "model."];
/// Prefixes of the vision part.
const VISION: [&str; 2] = ["vision_tower.", "mm_projector."];
/// Ends of the names of small tensors that stay in memory.
const VECTOR_ENDS: [&str; 6] = [
    "norm.weight",
    "_res_proj.weight",
    "_conv1d.weight",
    ".A_log",
    ".dt_bias",
    "e_score_correction_bias",
];

/// What a tensor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// One row per token id, read on demand.
    Embedding,
    /// Matrices of gated delta attention.
    KdaAttention,
    /// Matrices of latent attention.
    MlaAttention,
    /// Matrices of an attention that only the configuration tells.
    Attention,
    /// Matrices of a dense MLP.
    DenseMlp,
    /// Which experts run.
    Router,
    /// Into and out of the experts' width.
    LatentProjections,
    /// Experts that every token uses.
    SharedExperts,
    /// From the last layer to logits.
    OutputHead,
    /// Small tensors that stay in memory.
    Vectors,
    /// Experts a router picks.
    Experts,
    /// Images; not read.
    Vision,
    /// Nothing this program knows.
    Unexpected,
}

impl Kind {
    /// All kinds, in the order they are shown in.
    pub(super) const ALL: [Self; 13] = [
        Self::Embedding,
        Self::KdaAttention,
        Self::MlaAttention,
        Self::Attention,
        Self::DenseMlp,
        Self::Router,
        Self::LatentProjections,
        Self::SharedExperts,
        Self::OutputHead,
        Self::Vectors,
        Self::Experts,
        Self::Vision,
        Self::Unexpected,
    ];

    /// For a person.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::KdaAttention => "trunk: KDA attention",
            Self::MlaAttention => "trunk: MLA attention",
            Self::Attention => "trunk: attention",
            Self::DenseMlp => "trunk: dense MLP",
            Self::Router => "trunk: routers",
            Self::LatentProjections => "trunk: latent projections",
            Self::SharedExperts => "trunk: shared experts",
            Self::OutputHead => "trunk: output head",
            Self::Vectors => "vectors",
            Self::Experts => "experts",
            Self::Vision => "vision (not read)",
            Self::Unexpected => "unexpected",
        }
    }

    /// Whether every token reads it, block by block.
    pub(super) fn is_trunk(self) -> bool {
        matches!(
            self,
            Self::KdaAttention
                | Self::MlaAttention
                | Self::Attention
                | Self::DenseMlp
                | Self::Router
                | Self::LatentProjections
                | Self::SharedExperts
                | Self::OutputHead
        )
    }
}

/// A tensor's place in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    /// Its decoder layer.
    pub(super) layer: Option<u16>,
    /// Its expert within the layer.
    pub(super) expert: Option<u16>,
}

/// Where the tensor `name` belongs. `is_mla` tells the attention of a layer, where
/// somebody knows: both kinds have an output and a gate of the same name.
pub(super) fn place(name: &str, is_mla: impl Fn(u16) -> Option<bool>) -> Place {
    let of = |kind| Place {
        kind,
        layer: None,
        expert: None,
    };
    if VISION.iter().any(|prefix| name.starts_with(prefix)) {
        return of(Kind::Vision);
    }
    if name == "lm_head.weight" || name == "language_model.lm_head.weight" {
        return of(Kind::OutputHead);
    }
    let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) else {
        return of(Kind::Unexpected);
    };
    let Some((layer, rest)) = rest.strip_prefix("layers.").and_then(number) else {
        return of(match rest {
            "embed_tokens.weight" => Kind::Embedding,
            "norm.weight" | "output_attn_res_norm.weight" | "output_attn_res_proj.weight" => {
                Kind::Vectors
            }
            _ => Kind::Unexpected,
        });
    };
    let expert = rest.strip_prefix(".block_sparse_moe.experts.");
    let expert = expert.and_then(number).map(|(expert, _)| expert);
    Place {
        kind: if expert.is_some() {
            Kind::Experts
        } else {
            kind_in_layer(rest, is_mla(layer))
        },
        layer: Some(layer),
        expert,
    }
}

fn kind_in_layer(rest: &str, is_mla: Option<bool>) -> Kind {
    if VECTOR_ENDS.iter().any(|end| rest.ends_with(end)) {
        return Kind::Vectors;
    }
    let groups = [
        (".mlp.", Kind::DenseMlp),
        (".block_sparse_moe.gate.", Kind::Router),
        (".block_sparse_moe.routed_expert_", Kind::LatentProjections),
        (".block_sparse_moe.shared_experts.", Kind::SharedExperts),
        (
            ".self_attn.",
            match is_mla {
                Some(true) => Kind::MlaAttention,
                Some(false) => Kind::KdaAttention,
                None => Kind::Attention,
            },
        ),
    ];
    let found = groups.into_iter().find(|(stem, _)| rest.starts_with(stem));
    found.map_or(Kind::Unexpected, |(_, kind)| kind)
}

/// A number at the start of `text`, and the rest.
fn number(text: &str) -> Option<(u16, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        place(name, |layer| Some(layer == 3)).kind
    }

    #[test]
    fn names_of_the_released_layout() {
        let layer = |rest: &str| kind(&format!("language_model.model.layers.1.{rest}"));
        assert_eq!(layer("self_attn.o_proj.weight"), Kind::KdaAttention);
        assert_eq!(layer("self_attn.q_conv1d.weight"), Kind::Vectors);
        assert_eq!(layer("self_attn.A_log"), Kind::Vectors);
        assert_eq!(layer("mlp_res_proj.weight"), Kind::Vectors);
        assert_eq!(layer("mlp.down_proj.weight"), Kind::DenseMlp);
        assert_eq!(layer("block_sparse_moe.gate.weight"), Kind::Router);
        let bias = "block_sparse_moe.gate.e_score_correction_bias";
        assert_eq!(layer(bias), Kind::Vectors);
        let up = "block_sparse_moe.routed_expert_up_proj.weight";
        assert_eq!(layer(up), Kind::LatentProjections);
        assert_eq!(
            layer("block_sparse_moe.routed_expert_norm.weight"),
            Kind::Vectors
        );
        let shared = "block_sparse_moe.shared_experts.up_proj.weight";
        assert_eq!(layer(shared), Kind::SharedExperts);
        assert_eq!(layer("rotary.inv_freq"), Kind::Unexpected);
        assert_eq!(
            kind("model.layers.3.self_attn.o_proj.weight"),
            Kind::MlaAttention
        );
        let unknown = place("model.layers.3.self_attn.o_proj.weight", |_| None);
        assert_eq!(unknown.kind, Kind::Attention);
        assert_eq!(kind("language_model.lm_head.weight"), Kind::OutputHead);
        assert_eq!(kind("model.embed_tokens.weight"), Kind::Embedding);
        assert_eq!(kind("vision_tower.patch_embed.proj.weight"), Kind::Vision);
        assert_eq!(kind("transformer.h.0.attn.weight"), Kind::Unexpected);
    }

    #[test]
    fn experts_have_layer_and_number() {
        let name = "language_model.model.layers.92.block_sparse_moe.experts.895.w2.weight_scale";
        let found = place(name, |_| None);
        assert_eq!(
            (found.kind, found.layer, found.expert),
            (Kind::Experts, Some(92), Some(895))
        );
    }
}
