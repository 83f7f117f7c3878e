//! The sums of a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k3_formats::safetensors::ShardHeader;
use k3_formats::{Identity, KimiK3Config, ReadAt, TensorRef};
use serde::{Serialize, Serializer};

use super::files::{Files, Shard};
use super::kind::{Kind, Place, place};
use super::trunk::TrunkCensus;

/// Tensors of one expert.
const EXPERT_TENSORS: usize = 6;
/// Unexpected names that are listed.
const EXAMPLES_MAX: usize = 5;

/// What a checkpoint holds, and what it lacks.
#[derive(Debug, Serialize)]
pub(super) struct Census {
    pub(super) path: String,
    /// BLAKE3 over configuration and headers, of whole checkpoints.
    #[serde(serialize_with = "hex")]
    pub(super) identity: Option<Identity>,
    /// Whether k3 can run it.
    pub(super) complete: bool,
    pub(super) tensor_count: u64,
    pub(super) tensor_bytes: u64,
    pub(super) kinds: Vec<KindRow>,
    pub(super) layers: Vec<LayerRow>,
    /// Layers by the configuration.
    pub(super) layers_expected: Option<usize>,
    /// Routed experts of a layer by the configuration.
    pub(super) experts_expected: Option<usize>,
    pub(super) shards: Vec<ShardRow>,
    pub(super) has_vocabulary: bool,
    pub(super) missing_shards: Vec<MissingShard>,
    pub(super) missing_experts: Vec<MissingExperts>,
    /// Names nobody asks for, the first few.
    pub(super) unexpected: Vec<String>,
    /// The packed trunk that `--trunk` or a setting names.
    pub(super) trunk: Option<TrunkCensus>,
    /// What else there is to know.
    pub(super) notes: Vec<String>,
    /// What the strict readers say.
    pub(super) problems: Vec<String>,
    #[serde(skip)]
    sums: BTreeMap<Kind, (u64, u64)>,
    #[serde(skip)]
    layer_sums: BTreeMap<u16, LayerSums>,
    #[serde(skip)]
    /// By the configuration, if it is there.
    mla_layers: Option<BTreeSet<u16>>,
}

/// As text, as everywhere.
fn hex<S: Serializer>(identity: &Option<Identity>, serializer: S) -> Result<S::Ok, S::Error> {
    identity
        .map(|found| found.to_string())
        .serialize(serializer)
}

/// One kind of tensor.
#[derive(Debug, Serialize)]
pub(super) struct KindRow {
    pub(super) kind: Kind,
    pub(super) tensors: u64,
    pub(super) bytes: u64,
}

/// One decoder layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LayerRow {
    pub(super) layer: u16,
    /// `kda`, `mla`, `?` without a configuration that tells, or none if its
    /// matrices are not there.
    pub(super) attention: Option<&'static str>,
    /// `dense`, `moe`, or neither.
    pub(super) mlp: Option<&'static str>,
    /// Types of its matrices.
    pub(super) types: Vec<String>,
    pub(super) trunk_bytes: u64,
    pub(super) vector_bytes: u64,
    /// Experts with all their tensors.
    pub(super) experts: usize,
    pub(super) expert_bytes: u64,
}

/// One shard.
#[derive(Debug, Serialize)]
pub(super) struct ShardRow {
    pub(super) name: String,
    pub(super) file_bytes: u64,
    /// `None` when its header cannot be read.
    pub(super) tensors: Option<usize>,
}

/// A shard that the index names and nobody has.
#[derive(Debug, Serialize)]
pub(super) struct MissingShard {
    pub(super) name: String,
    pub(super) tensors: u64,
    /// First and last decoder layer it has tensors of.
    pub(super) layers: Option<(u16, u16)>,
}

/// Experts of a layer that are not whole.
#[derive(Debug, Serialize)]
pub(super) struct MissingExperts {
    pub(super) layer: u16,
    pub(super) count: usize,
}

#[derive(Debug, Default)]
struct LayerSums {
    kinds: BTreeSet<Kind>,
    types: BTreeSet<&'static str>,
    trunk_bytes: u64,
    vector_bytes: u64,
    expert_bytes: u64,
    /// Tensors of each expert.
    experts: BTreeMap<u16, usize>,
}

impl Census {
    /// An empty census of the checkpoint at `path`.
    pub(super) fn new(path: &Path, config: Option<&(KimiK3Config, Vec<u8>)>) -> Self {
        let config = config.map(|(config, _)| config);
        let layer = |layer: &usize| u16::try_from(*layer).ok();
        let mla_layers = config.map(|config| config.mla_layers.iter().filter_map(layer).collect());
        Self {
            path: path.display().to_string(),
            identity: None,
            complete: false,
            tensor_count: 0,
            tensor_bytes: 0,
            kinds: Vec::new(),
            layers: Vec::new(),
            layers_expected: config.map(|config| config.num_hidden_layers),
            experts_expected: config.map(|config| config.num_experts),
            shards: Vec::new(),
            has_vocabulary: false,
            missing_shards: Vec::new(),
            missing_experts: Vec::new(),
            unexpected: Vec::new(),
            trunk: None,
            notes: Vec::new(),
            problems: Vec::new(),
            sums: BTreeMap::new(),
            layer_sums: BTreeMap::new(),
            mla_layers,
        }
    }

    /// Counts the tensors of one shard, or says why it cannot.
    pub(super) fn add_shard(&mut self, shard: &Shard) -> Option<String> {
        let header = ShardHeader::read(&shard.reader);
        self.shards.push(ShardRow {
            name: shard.name.clone(),
            file_bytes: shard.reader.len_bytes(),
            tensors: header.as_ref().ok().map(|header| header.tensors.len()),
        });
        match header {
            Ok(header) => {
                for (name, tensor) in &header.tensors {
                    self.add(name, tensor);
                }
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    fn add(&mut self, name: &str, tensor: &TensorRef) {
        let mla_layers = &self.mla_layers;
        let Place {
            kind,
            layer,
            expert,
        } = place(name, |layer| {
            let layers = mla_layers.as_ref()?;
            Some(layers.contains(&layer))
        });
        self.tensor_count += 1;
        self.tensor_bytes += tensor.bytes;
        let sum = self.sums.entry(kind).or_default();
        sum.0 += 1;
        sum.1 += tensor.bytes;
        if kind == Kind::Unexpected && self.unexpected.len() < EXAMPLES_MAX {
            self.unexpected.push(name.to_owned());
        }
        let Some(layer) = layer else { return };
        let sums = self.layer_sums.entry(layer).or_default();
        sums.kinds.insert(kind);
        if kind.is_trunk() {
            sums.trunk_bytes += tensor.bytes;
            sums.types.insert(tensor.dtype.name());
        } else if kind == Kind::Vectors {
            sums.vector_bytes += tensor.bytes;
        }
        if let Some(expert) = expert {
            sums.expert_bytes += tensor.bytes;
            *sums.experts.entry(expert).or_default() += 1;
        }
    }

    /// Sorts the sums and notes what is missing.
    pub(super) fn finish(&mut self, files: &Files) {
        let sum = |kind: Kind| {
            let (tensors, bytes) = self.sums.get(&kind).copied().unwrap_or_default();
            KindRow {
                kind,
                tensors,
                bytes,
            }
        };
        let rows = Kind::ALL.into_iter().map(sum);
        self.kinds = rows.filter(|row| row.tensors > 0).collect();
        self.layers = self
            .layer_sums
            .iter()
            .map(|(layer, sums)| sums.row(*layer))
            .collect();
        self.has_vocabulary = files.has_vocabulary;
        self.problems.extend(files.problems.iter().cloned());
        self.missing_shards = files
            .missing_shards
            .iter()
            .map(|shard| MissingShard {
                name: shard.name.clone(),
                tensors: shard.tensor_count,
                layers: shard
                    .layers
                    .as_ref()
                    .map(|range| (*range.start(), *range.end())),
            })
            .collect();
        if let Some((config, _)) = &files.config {
            self.missing_experts = self.missing_experts_of(config);
        }
    }

    fn missing_experts_of(&self, config: &KimiK3Config) -> Vec<MissingExperts> {
        let missing = |layer: usize| {
            let layer = u16::try_from(layer).expect("capped by the config reader");
            let present = self
                .layer_sums
                .get(&layer)
                .map_or(0, LayerSums::whole_experts);
            MissingExperts {
                layer,
                count: config.num_experts.saturating_sub(present),
            }
        };
        (config.first_k_dense_replace..config.num_hidden_layers)
            .map(missing)
            .filter(|missing| missing.count > 0)
            .collect()
    }
}

impl LayerSums {
    fn whole_experts(&self) -> usize {
        let counts = self.experts.values();
        counts.filter(|count| **count == EXPERT_TENSORS).count()
    }

    fn row(&self, layer: u16) -> LayerRow {
        let has = |kind| self.kinds.contains(&kind);
        let pick = |found: [(Kind, &'static str); 3]| {
            found
                .into_iter()
                .find(|(kind, _)| has(*kind))
                .map(|(_, name)| name)
        };
        let is_moe = has(Kind::Router) || has(Kind::Experts) || has(Kind::SharedExperts);
        LayerRow {
            layer,
            attention: pick([
                (Kind::MlaAttention, "mla"),
                (Kind::KdaAttention, "kda"),
                (Kind::Attention, "?"),
            ]),
            mlp: if is_moe {
                Some("moe")
            } else {
                has(Kind::DenseMlp).then_some("dense")
            },
            types: self.types.iter().map(|&name| name.to_owned()).collect(),
            trunk_bytes: self.trunk_bytes,
            vector_bytes: self.vector_bytes,
            experts: self.whole_experts(),
            expert_bytes: self.expert_bytes,
        }
    }
}
