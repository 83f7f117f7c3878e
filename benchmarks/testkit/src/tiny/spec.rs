//! What a tiny checkpoint looks like.

use k3_formats::ConfigForm;

use crate::shape::ModelShape;

/// Everything that fixes a tiny checkpoint: the same value always gives the
/// same bytes.
///
/// The values of a tensor depend on `seed`, its name and its shape; the fields
/// of [`Layout`] only move bytes around.
#[derive(Clone, Debug, PartialEq)]
pub struct TinySpec {
    /// Seed of every value.
    pub seed: u64,
    /// Sizes and constants.
    pub shape: ModelShape,
    /// How each group of tensors is stored.
    pub dtypes: Dtypes,
    /// Where tensors lie and how files are named.
    pub layout: Layout,
    /// Entries of `A_log`, at least one a head; those past the heads are zero.
    pub a_log_len: usize,
    /// One expert scale byte in this many is 255, NaN in the format; `None`
    /// for no such byte.
    pub nan_scale_one_in: Option<usize>,
    /// `eos_token_id` of the config; absent when empty.
    pub eos_token_ids: Vec<u32>,
    /// Whether sums over the hidden width cancel large terms; see
    /// [`TinySpec::order_probe`].
    pub cancelling_channels: bool,
}

/// Storage of a floating-point tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatDtype {
    /// Upper half of an f32, as in the released checkpoint.
    Bf16,
    /// f32, as in small models.
    F32,
}

/// Element types that differ between checkpoints. All other matrices are BF16;
/// `A_log`, `dt_bias` and the score correction bias are F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtypes {
    /// `block_sparse_moe.gate.weight`.
    pub router: FloatDtype,
    /// Norm weights and residual projections.
    pub norms: FloatDtype,
    /// Taps of the short convolutions.
    pub conv: FloatDtype,
}

/// The names' common beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePrefix {
    /// `language_model.model.`, as released.
    Released,
    /// `model.`, as text-only conversions have it.
    Bare,
}

impl NamePrefix {
    /// Before the decoder's tensors.
    #[must_use]
    pub fn model(self) -> &'static str {
        match self {
            Self::Released => "language_model.model.",
            Self::Bare => "model.",
        }
    }

    /// Before `lm_head.weight`.
    #[must_use]
    pub fn head(self) -> &'static str {
        match self {
            Self::Released => "language_model.",
            Self::Bare => "",
        }
    }
}

/// The order of a layer's experts in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertOrder {
    /// Ascending ids.
    ById,
    /// A random order, as in the released shards.
    Shuffled,
}

/// Whether an expert can be read in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertPlacement {
    /// Its six tensors are adjacent, in the released order.
    Contiguous,
    /// All tensors of one kind lie together, so every expert is in six pieces.
    ByKind,
}

/// Where tensors lie and how files are named. No field changes a logit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The form of config.json.
    pub config: ConfigForm,
    /// The names' common beginning.
    pub prefix: NamePrefix,
    /// Shard files: 1 for `model.safetensors`, else the released naming, with
    /// whole layers in a shard and everything outside the layers in the last.
    pub shards: usize,
    /// Whether `model.safetensors.index.json` is written.
    pub index: bool,
    /// The order of a layer's experts.
    pub expert_order: ExpertOrder,
    /// Whether an expert is one run of bytes.
    pub expert_placement: ExpertPlacement,
    /// Whether headers are padded to odd lengths and an unused vision tensor
    /// of odd length shifts the rest, so that nothing is aligned to anything.
    pub odd_offsets: bool,
}

impl TinySpec {
    /// The model most tests want: every kind of layer, three snapshots, no
    /// remainders, one file as released.
    #[must_use]
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            shape: small_shape(),
            dtypes: Dtypes {
                router: FloatDtype::Bf16,
                norms: FloatDtype::Bf16,
                conv: FloatDtype::Bf16,
            },
            layout: Layout {
                config: ConfigForm::Nested,
                prefix: NamePrefix::Released,
                shards: 1,
                index: false,
                expert_order: ExpertOrder::Shuffled,
                expert_placement: ExpertPlacement::Contiguous,
                odd_offsets: false,
            },
            a_log_len: 16,
            nan_scale_one_in: None,
            eos_token_ids: Vec::new(),
            cancelling_channels: false,
        }
    }

    /// Remainders everywhere: no width but the two that MXFP4 fixes is a
    /// multiple of 16 or of 8, every flag and element type is the other one,
    /// and the bytes lie as awkwardly as the format allows.
    #[must_use]
    pub fn odd(seed: u64) -> Self {
        let mut spec = Self::small(seed);
        spec.shape = ModelShape {
            layers: 5,
            mla_layers: vec![2, 5],
            vocab: 101,
            hidden: 84,
            kda_heads: 3,
            kda_head_dim: 12,
            conv_taps: 3,
            gate_lower_bound: -3.5,
            mla_heads: 5,
            q_lora: 36,
            kv_lora: 24,
            nope: 20,
            rope: 6,
            v_dim: 12,
            block: 2,
            experts: 7,
            top_k: 3,
            shared: 1,
            latent: 96,
            moe_width: 32,
            dense_layers: 2,
            dense_width: 50,
            scaling_factor: 2.5,
            ..spec.shape
        };
        spec.dtypes = Dtypes {
            router: FloatDtype::F32,
            norms: FloatDtype::F32,
            conv: FloatDtype::F32,
        };
        spec.layout = Layout {
            config: ConfigForm::Nested,
            prefix: NamePrefix::Released,
            shards: 3,
            index: true,
            expert_order: ExpertOrder::Shuffled,
            expert_placement: ExpertPlacement::ByKind,
            odd_offsets: true,
        };
        spec.a_log_len = 4;
        spec
    }

    /// Thirty experts, four picked: sweeps of several positions share some
    /// experts and not others.
    #[must_use]
    pub fn wide_union(seed: u64) -> Self {
        Self::small(seed).with(|spec| {
            spec.shape.experts = 30;
            spec.shape.top_k = 4;
        })
    }

    /// A model whose sums over the hidden width must be added in the right
    /// order. Ordinary tiny weights cannot tell: two orders of an f64 sum
    /// differ far below an f32's last bit.
    ///
    /// Channels 0, 16 and 21 of the residual stream are kept equal, and every
    /// matrix that reads it gives two of them opposite weights of 2^36. The
    /// two cancel exactly, but what is added between them loses its low bits,
    /// so another order is another logit. Even rows cancel within one lane of
    /// sixteen (0 and 16), odd rows across lanes (0 and 21).
    #[must_use]
    pub fn order_probe(seed: u64) -> Self {
        Self::small(seed).with(|spec| spec.cancelling_channels = true)
    }

    /// Matrices large enough that packing one in blocks of 32 KiB saves pages:
    /// every product of the model has such a block, but for the narrow ones and
    /// kv_b, which is never packed.
    #[must_use]
    pub fn packable(seed: u64) -> Self {
        Self::small(seed).with(|spec| {
            spec.shape.layers = 4;
            spec.shape.mla_layers = vec![3];
            spec.shape.hidden = 192;
            spec.shape.kda_heads = 4;
            spec.shape.q_lora = 96;
            spec.shape.kv_lora = 64;
            spec.shape.dense_width = 96;
            spec.shape.experts = 48;
            spec.shape.top_k = 4;
            spec.shape.latent = 96;
            spec.shape.moe_width = 64;
        })
    }

    /// The spec after `edit`.
    #[must_use]
    pub fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    /// With these layers, of which the one-based `mla_layers` are MLA.
    #[must_use]
    pub fn layers(self, layers: usize, mla_layers: &[usize]) -> Self {
        self.with(|spec| {
            spec.shape.layers = layers;
            spec.shape.mla_layers = mla_layers.to_vec();
        })
    }

    /// With this many experts, of which `top_k` are picked.
    #[must_use]
    pub fn experts(self, experts: usize, top_k: usize) -> Self {
        self.with(|spec| {
            spec.shape.experts = experts;
            spec.shape.top_k = top_k;
        })
    }

    /// With this many shard files, and an index when there is more than one.
    #[must_use]
    pub fn shards(self, shards: usize) -> Self {
        self.with(|spec| {
            spec.layout.shards = shards;
            spec.layout.index = shards > 1;
        })
    }

    /// With a flat config, bare names and F32 vectors, as text-only
    /// conversions are written.
    #[must_use]
    pub fn converted(self) -> Self {
        self.with(|spec| {
            spec.layout.config = ConfigForm::Flat;
            spec.layout.prefix = NamePrefix::Bare;
            spec.dtypes.norms = FloatDtype::F32;
            spec.dtypes.conv = FloatDtype::F32;
            spec.dtypes.router = FloatDtype::F32;
        })
    }

    /// Checks what the generator relies on.
    ///
    /// # Panics
    /// When the spec contradicts itself: a test that asks for such a model is
    /// wrong.
    pub(super) fn check(&self) {
        let shape = &self.shape;
        assert!(
            shape.latent.is_multiple_of(32),
            "latent width: MXFP4 groups"
        );
        assert!(
            shape.moe_width.is_multiple_of(32),
            "expert width: MXFP4 groups"
        );
        assert!(shape.top_k <= shape.experts, "top-k above the experts");
        assert!(self.a_log_len >= shape.kda_heads, "A_log holds every head");
        assert!(shape.conv_taps >= 1 && shape.block >= 1, "taps and block");
        assert!(self.layout.shards >= 1, "at least one shard");
        assert!(
            shape
                .mla_layers
                .iter()
                .all(|l| (1..=shape.layers).contains(l)),
            "MLA layers are one-based and inside the model"
        );
        assert!(
            !self.cancelling_channels || shape.hidden > CANCELLING[2],
            "the probe needs its three channels"
        );
    }
}

/// The equal channels of [`TinySpec::order_probe`].
pub(super) const CANCELLING: [usize; 3] = [0, 16, 21];

fn small_shape() -> ModelShape {
    ModelShape {
        layers: 7,
        mla_layers: vec![4, 7],
        vocab: 288,
        hidden: 64,
        rms_norm_eps: 1e-5,
        kda_heads: 3,
        kda_head_dim: 16,
        conv_taps: 4,
        gate_lower_bound: -5.0,
        mla_heads: 3,
        q_lora: 48,
        kv_lora: 32,
        nope: 16,
        rope: 8,
        v_dim: 16,
        output_gate: true,
        block: 3,
        experts: 8,
        top_k: 2,
        shared: 2,
        latent: 32,
        moe_width: 32,
        dense_layers: 1,
        dense_width: 48,
        renormalize: true,
        latent_norm: true,
        scaling_factor: 1.0,
        situ_beta: 4.0,
        situ_linear_beta: 25.0,
    }
}
