//! From tensor names to places, checked against the configuration.
//!
//! Names are derived from the configuration and looked up; nothing is found by
//! searching. Every tensor of the checkpoint must be asked for, or belong to
//! the vision part: a checkpoint of another model cannot half-bind.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use k3_formats::{Dtype, KimiK3Config, Shape, ShardIndex, TensorRef};
use k3_kernels::MAX_SOURCES;

use crate::error::ModelError;
use crate::kimi_k3::names::Names;
use crate::kimi_k3::op::sweep_program;
use crate::program::SweepProgram;

/// Names of prefix and output head, in the order they are tried.
const PREFIXES: [(&str, &str); 2] = [
    ("language_model.model.", "language_model.lm_head.weight"),
    ("model.", "lm_head.weight"),
];

/// Tensors under these prefixes may go unused: the vision part.
const UNUSED_ALLOWED: [&str; 2] = ["vision_tower.", "mm_projector."];

/// Index of a resident vector in [`KimiK3Layout::vectors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorId(pub(crate) u32);

/// A small tensor that stays resident.
#[derive(Debug, Clone)]
pub struct VectorTensor {
    /// Full name, for messages.
    pub name: String,
    /// Where it lies.
    pub tensor: TensorRef,
    /// Elements used; [`VectorTensor::tensor`] may be padded beyond.
    pub len: usize,
}

/// Matrices and vectors of a KDA layer.
#[derive(Debug, Clone)]
pub(crate) struct KdaTensors {
    pub(crate) q: TensorRef,
    pub(crate) k: TensorRef,
    pub(crate) v: TensorRef,
    pub(crate) f_a: TensorRef,
    pub(crate) f_b: TensorRef,
    pub(crate) b: TensorRef,
    pub(crate) g: TensorRef,
    pub(crate) o: TensorRef,
    pub(crate) conv: [VectorId; 3],
    pub(crate) a_log: VectorId,
    pub(crate) dt_bias: VectorId,
    pub(crate) o_norm: VectorId,
}

/// Matrices and vectors of an MLA layer.
#[derive(Debug, Clone)]
pub(crate) struct MlaTensors {
    pub(crate) q_a: TensorRef,
    pub(crate) q_b: TensorRef,
    pub(crate) kv_a: TensorRef,
    pub(crate) kv_b: TensorRef,
    pub(crate) g: Option<TensorRef>,
    pub(crate) o: TensorRef,
    pub(crate) q_a_norm: VectorId,
    pub(crate) kv_a_norm: VectorId,
}

/// The attention half of a layer.
#[derive(Debug, Clone)]
pub(crate) enum Attention {
    Kda(KdaTensors),
    Mla(MlaTensors),
}

/// The mixture of a MoE layer.
#[derive(Debug, Clone)]
pub(crate) struct MoeTensors {
    pub(crate) router: TensorRef,
    pub(crate) latent_down: TensorRef,
    pub(crate) latent_up: TensorRef,
    pub(crate) shared_gate: TensorRef,
    pub(crate) shared_up: TensorRef,
    pub(crate) shared_down: TensorRef,
    pub(crate) bias: VectorId,
    pub(crate) expert_norm: Option<VectorId>,
}

/// The MLP half of a layer.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "one per layer; the large one is the rule"
)]
pub(crate) enum Mlp {
    Dense {
        gate: TensorRef,
        up: TensorRef,
        down: TensorRef,
    },
    Moe(MoeTensors),
}

/// One decoder layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerTensors {
    pub(crate) input_norm: VectorId,
    pub(crate) post_norm: VectorId,
    pub(crate) attention_mix: [VectorId; 2],
    pub(crate) mlp_mix: [VectorId; 2],
    pub(crate) attention: Attention,
    pub(crate) mlp: Mlp,
}

/// Where every tensor of a checkpoint lies.
#[derive(Debug, Clone)]
pub struct KimiK3Layout {
    pub(crate) path: PathBuf,
    pub(crate) config: KimiK3Config,
    pub(crate) embedding: TensorRef,
    pub(crate) head: TensorRef,
    pub(crate) norm: VectorId,
    pub(crate) output_mix: [VectorId; 2],
    pub(crate) layers: Vec<LayerTensors>,
    vectors: Vec<VectorTensor>,
}

impl KimiK3Layout {
    /// Binds the first `layer_limit` layers (all when `None`) of the
    /// checkpoint at `path` (for messages only).
    ///
    /// # Errors
    ///
    /// Missing, foreign or ill-shaped tensors, or a limit outside the model.
    pub fn bind(
        path: &Path,
        config: &KimiK3Config,
        index: &ShardIndex,
        layer_limit: Option<usize>,
    ) -> Result<Self, ModelError> {
        let layer_count = layer_limit.unwrap_or(config.num_hidden_layers);
        if layer_count == 0 || layer_count > config.num_hidden_layers {
            return Err(ModelError::LayerLimit {
                limit: layer_count,
                layers: config.num_hidden_layers,
            });
        }
        let sources = layer_count.div_ceil(config.attn_res_block_size) + 1;
        if sources > MAX_SOURCES {
            return Err(ModelError::TooManySnapshots {
                path: path.to_owned(),
                sources,
                max: MAX_SOURCES,
            });
        }
        let mut binder = Binder::new(path, Some(index));
        let layout = binder.layout(config, layer_count);
        binder.check_experts(index, config, layer_count);
        binder.check_unknown(index, config, layer_count);
        binder.finish()?;
        if layer_count == config.num_hidden_layers {
            index.require_experts(config)?;
        }
        Ok(layout)
    }

    /// The layout a checkpoint of `config` would have: shapes and types as
    /// released, places unknown. For sizes, never for reading.
    #[must_use]
    pub fn planned(config: &KimiK3Config) -> Self {
        Binder::new(Path::new("config.json"), None).layout(config, config.num_hidden_layers)
    }

    /// Everything a sweep reads, in order, in blocks of at most `block_bytes`:
    /// what [`KimiK3`](super::KimiK3) has, without its vectors.
    #[must_use]
    pub fn program(&self, block_bytes: u64) -> SweepProgram {
        sweep_program(self, block_bytes)
    }

    /// The resident vectors, in the order [`KimiK3Layout`] names them.
    #[must_use]
    pub fn vectors(&self) -> &[VectorTensor] {
        &self.vectors
    }

    /// The configuration the layout was bound with.
    #[must_use]
    pub fn config(&self) -> &KimiK3Config {
        &self.config
    }

    /// Layers bound.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }
}

/// Bytes of an expert's six tensors in stored order: w1, w2, w3, each packed
/// nibbles, then scales.
pub(crate) fn expert_part_bytes(config: &KimiK3Config) -> [u64; 6] {
    let weights = config.routed_expert_hidden_size as u64 * config.moe_intermediate_size as u64;
    let (packed, scales) = (weights / 2, weights / 32);
    [packed, scales, packed, scales, packed, scales]
}

/// A tensor of the expected form that lies nowhere.
fn expected(dtype: Dtype, shape: &[usize]) -> TensorRef {
    let dimensions: Vec<u64> = shape.iter().map(|dimension| *dimension as u64).collect();
    let shape = Shape::new(&dimensions).expect("at most three dimensions");
    TensorRef {
        shard: 0,
        dtype,
        shape,
        offset: 0,
        bytes: shape
            .size_bytes(dtype)
            .expect("sizes are capped by the config reader"),
    }
}

/// Looks names up and collects what is wrong, so that one error tells all.
struct Binder<'a> {
    path: &'a Path,
    /// `None` for a plan: everything is as expected then.
    index: Option<&'a ShardIndex>,
    prefix: &'static str,
    head_name: &'static str,
    vectors: Vec<VectorTensor>,
    used: HashSet<String>,
    missing: Names,
    mismatch: Option<ModelError>,
    unknown: Names,
}

const MATRIX: &[Dtype] = &[Dtype::Bf16];
const VECTOR: &[Dtype] = &[Dtype::Bf16, Dtype::F32];
/// Vectors whose released type is F32, by the released total of tensor bytes.
const WIDE_VECTOR: &[Dtype] = &[Dtype::F32, Dtype::Bf16];

impl<'a> Binder<'a> {
    fn new(path: &'a Path, index: Option<&'a ShardIndex>) -> Self {
        let holds = |name: &str| index.is_some_and(|index| index.get(name).is_some());
        let (prefix, head_name) = PREFIXES
            .into_iter()
            .find(|(prefix, _)| holds(&format!("{prefix}embed_tokens.weight")))
            .unwrap_or(PREFIXES[0]);
        Self {
            path,
            index,
            prefix,
            head_name,
            vectors: Vec::new(),
            used: HashSet::new(),
            missing: Names::default(),
            mismatch: None,
            unknown: Names::default(),
        }
    }

    /// The tensor `name`, or one as expected while an error is on record.
    fn take(&mut self, name: String, dtypes: &[Dtype], shape: &[usize], padded: bool) -> TensorRef {
        let Some(index) = self.index else {
            return expected(dtypes[0], shape);
        };
        let Some(tensor) = index.get(&name) else {
            self.missing.add(1, || name);
            return expected(dtypes[0], shape);
        };
        let found = tensor.shape.as_slice();
        let fits = if padded {
            // Stored longer than used, in any arrangement of one long axis.
            let elements: u64 = found.iter().product();
            elements >= shape.iter().product::<usize>() as u64
        } else {
            found.len() == shape.len() && found.iter().zip(shape).all(|(a, b)| *a == *b as u64)
        };
        if !fits || !dtypes.contains(&tensor.dtype) {
            if self.mismatch.is_none() {
                let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
                self.mismatch = Some(ModelError::TensorMismatch {
                    path: self.path.join(index.shard_name(tensor.shard)),
                    offset: tensor.offset,
                    name: name.clone(),
                    expected: format!("{} {shape:?}", names.join(" or ")),
                    found: format!("{} {found:?}", tensor.dtype.name()),
                });
            }
            self.used.insert(name);
            return expected(dtypes[0], shape);
        }
        self.used.insert(name);
        tensor
    }

    fn matrix(&mut self, name: String, rows: usize, cols: usize) -> TensorRef {
        self.take(name, MATRIX, &[rows, cols], false)
    }

    fn vector_of(
        &mut self,
        name: String,
        dtypes: &[Dtype],
        shape: &[usize],
        padded: bool,
    ) -> VectorId {
        let tensor = self.take(name.clone(), dtypes, shape, padded);
        let id = VectorId(u32::try_from(self.vectors.len()).expect("a few per layer"));
        self.vectors.push(VectorTensor {
            name,
            tensor,
            len: shape.iter().product(),
        });
        id
    }

    fn vector(&mut self, name: String, len: usize) -> VectorId {
        self.vector_of(name, VECTOR, &[len], false)
    }

    /// Norm weight `[hidden]` and projection `[1, hidden]` of a residual mix.
    fn mix(&mut self, stem: &str, hidden: usize) -> [VectorId; 2] {
        [
            self.vector(format!("{stem}_norm.weight"), hidden),
            self.vector_of(format!("{stem}_proj.weight"), VECTOR, &[1, hidden], false),
        ]
    }

    fn layout(&mut self, config: &KimiK3Config, layer_count: usize) -> KimiK3Layout {
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let prefix = self.prefix;
        let embedding = self.matrix(format!("{prefix}embed_tokens.weight"), vocab, hidden);
        let layers = (0..layer_count)
            .map(|layer| self.layer(config, layer))
            .collect();
        let norm = self.vector(format!("{prefix}norm.weight"), hidden);
        let output_mix = self.mix(&format!("{prefix}output_attn_res"), hidden);
        let head = self.matrix(self.head_name.to_owned(), vocab, hidden);
        KimiK3Layout {
            path: self.path.to_owned(),
            config: config.clone(),
            embedding,
            head,
            norm,
            output_mix,
            layers,
            vectors: std::mem::take(&mut self.vectors),
        }
    }

    fn layer(&mut self, config: &KimiK3Config, layer: usize) -> LayerTensors {
        let stem = format!("{}layers.{layer}.", self.prefix);
        let hidden = config.hidden_size;
        LayerTensors {
            input_norm: self.vector(format!("{stem}input_layernorm.weight"), hidden),
            post_norm: self.vector(format!("{stem}post_attention_layernorm.weight"), hidden),
            attention_mix: self.mix(&format!("{stem}self_attention_res"), hidden),
            mlp_mix: self.mix(&format!("{stem}mlp_res"), hidden),
            attention: if config.is_mla(layer) {
                Attention::Mla(self.mla(config, &format!("{stem}self_attn.")))
            } else {
                Attention::Kda(self.kda(config, &format!("{stem}self_attn.")))
            },
            mlp: if layer < config.first_k_dense_replace {
                let (inner, stem) = (config.intermediate_size, format!("{stem}mlp."));
                Mlp::Dense {
                    gate: self.matrix(format!("{stem}gate_proj.weight"), inner, hidden),
                    up: self.matrix(format!("{stem}up_proj.weight"), inner, hidden),
                    down: self.matrix(format!("{stem}down_proj.weight"), hidden, inner),
                }
            } else {
                Mlp::Moe(self.moe(config, &format!("{stem}block_sparse_moe.")))
            },
        }
    }

    fn kda(&mut self, config: &KimiK3Config, stem: &str) -> KdaTensors {
        let (hidden, heads, dim) = (config.hidden_size, config.kda_heads, config.kda_head_dim);
        let (channels, taps) = (heads * dim, config.short_conv_kernel_size);
        let conv = ["q", "k", "v"].map(|name| {
            let name = format!("{stem}{name}_conv1d.weight");
            self.vector_of(name, WIDE_VECTOR, &[channels, 1, taps], false)
        });
        let mut matrix =
            |name: &str, rows, cols| self.matrix(format!("{stem}{name}_proj.weight"), rows, cols);
        let [q, k, v, g] = ["q", "k", "v", "g"].map(|name| matrix(name, channels, hidden));
        let f_a = matrix("f_a", dim, hidden);
        let f_b = matrix("f_b", channels, dim);
        let b = matrix("b", heads, hidden);
        let o = matrix("o", hidden, channels);
        KdaTensors {
            q,
            k,
            v,
            f_a,
            f_b,
            b,
            g,
            o,
            conv,
            a_log: self.vector_of(format!("{stem}A_log"), WIDE_VECTOR, &[heads], true),
            dt_bias: self.vector_of(format!("{stem}dt_bias"), WIDE_VECTOR, &[channels], false),
            o_norm: self.vector_of(format!("{stem}o_norm.weight"), WIDE_VECTOR, &[dim], false),
        }
    }

    fn mla(&mut self, config: &KimiK3Config, stem: &str) -> MlaTensors {
        let (hidden, heads) = (config.hidden_size, config.mla_heads);
        let (nope, rope, value) = (
            config.qk_nope_head_dim,
            config.qk_rope_head_dim,
            config.v_head_dim,
        );
        let (q_rank, kv_rank) = (config.q_lora_rank, config.kv_lora_rank);
        let mut matrix =
            |name: &str, rows, cols| self.matrix(format!("{stem}{name}.weight"), rows, cols);
        MlaTensors {
            q_a: matrix("q_a_proj", q_rank, hidden),
            q_b: matrix("q_b_proj", heads * (nope + rope), q_rank),
            kv_a: matrix("kv_a_proj_with_mqa", kv_rank + rope, hidden),
            kv_b: matrix("kv_b_proj", heads * (nope + value), kv_rank),
            g: config
                .mla_use_output_gate
                .then(|| matrix("g_proj", heads * value, hidden)),
            o: matrix("o_proj", hidden, heads * value),
            q_a_norm: self.vector(format!("{stem}q_a_layernorm.weight"), q_rank),
            kv_a_norm: self.vector(format!("{stem}kv_a_layernorm.weight"), kv_rank),
        }
    }

    fn moe(&mut self, config: &KimiK3Config, stem: &str) -> MoeTensors {
        let (hidden, latent) = (config.hidden_size, config.routed_expert_hidden_size);
        let shared = config.num_shared_experts * config.moe_intermediate_size;
        let mut matrix =
            |name: &str, rows, cols| self.matrix(format!("{stem}{name}.weight"), rows, cols);
        let latent_down = matrix("routed_expert_down_proj", latent, hidden);
        let latent_up = matrix("routed_expert_up_proj", hidden, latent);
        let shared_gate = matrix("shared_experts.gate_proj", shared, hidden);
        let shared_up = matrix("shared_experts.up_proj", shared, hidden);
        let shared_down = matrix("shared_experts.down_proj", hidden, shared);
        let router_name = format!("{stem}gate.weight");
        let bias_name = format!("{stem}gate.e_score_correction_bias");
        let norm_name = format!("{stem}routed_expert_norm.weight");
        // A model that does not use the norm may still ship it.
        let has_norm = config.latent_moe_use_norm
            || self
                .index
                .is_some_and(|index| index.get(&norm_name).is_some());
        let expert_norm = has_norm.then(|| self.vector(norm_name, latent));
        MoeTensors {
            router: self.take(router_name, VECTOR, &[config.num_experts, hidden], false),
            latent_down,
            latent_up,
            shared_gate,
            shared_up,
            shared_down,
            bias: self.vector_of(bias_name, WIDE_VECTOR, &[config.num_experts], false),
            expert_norm: expert_norm.filter(|_| config.latent_moe_use_norm),
        }
    }

    /// Checks the experts of the bound layers. A limited model may lack the
    /// rest, so what only concerns the whole is left to the index.
    fn check_experts(&mut self, index: &ShardIndex, config: &KimiK3Config, layer_count: usize) {
        let experts = index.experts();
        if experts.expert_count() > 0 && experts.prefix() != self.prefix {
            let prefix = experts.prefix();
            let name = || format!("{prefix}layers.*.block_sparse_moe.experts.*");
            self.unknown.add(experts.tensor_count() as u64, name);
        }
        let sizes = expert_part_bytes(config);
        for layer in config.first_k_dense_replace..layer_count {
            let stem = format!("{}layers.{layer}.block_sparse_moe.experts", self.prefix);
            let found = experts.experts_of_layer(layer);
            let absent = config.num_experts.saturating_sub(found) as u64;
            // Six tensors each; counted, not listed: a foreign configuration
            // may ask for millions.
            self.missing.add(6 * absent, || format!("{stem}.{found}.*"));
            let stored =
                (0..found.min(config.num_experts)).filter_map(|expert| experts.get(layer, expert));
            let differing = stored
                .enumerate()
                .find(|(_, place)| place.part_bytes() != sizes);
            if let Some((expert, place)) = differing
                && self.mismatch.is_none()
            {
                let first = place.segments()[0];
                self.mismatch = Some(ModelError::TensorMismatch {
                    path: self.path.join(index.shard_name(first.shard)),
                    offset: first.offset,
                    name: format!("{stem}.{expert}.*"),
                    expected: format!("w1, w2, w3, packed then scales, of {sizes:?} bytes"),
                    found: format!("{:?} bytes", place.part_bytes()),
                });
            }
        }
    }

    /// Notes every tensor nobody asked for.
    fn check_unknown(&mut self, index: &ShardIndex, config: &KimiK3Config, layer_count: usize) {
        let skipped: Vec<String> = (layer_count..config.num_hidden_layers)
            .map(|layer| format!("{}layers.{layer}.", self.prefix))
            .collect();
        for name in index.names() {
            let allowed = UNUSED_ALLOWED.iter().any(|prefix| name.starts_with(prefix))
                || skipped.iter().any(|prefix| name.starts_with(prefix))
                || self.used.contains(name);
            if !allowed {
                self.unknown.add(1, || name.to_owned());
            }
        }
    }

    fn finish(self) -> Result<(), ModelError> {
        if self.missing.count > 0 {
            return Err(ModelError::MissingTensors {
                path: self.path.to_owned(),
                count: self.missing.count,
                names: self.missing.to_string(),
            });
        }
        if let Some(mismatch) = self.mismatch {
            return Err(mismatch);
        }
        if self.unknown.count > 0 {
            return Err(ModelError::UnknownTensors {
                path: self.path.to_owned(),
                count: self.unknown.count,
                names: self.unknown.to_string(),
            });
        }
        Ok(())
    }
}
