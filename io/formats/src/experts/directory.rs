//! The dense table of experts.

use std::ops::Range;

use super::name::{EXPERT_PARTS, ExpertName, ExpertPart};
use super::reference::{ExpertRef, PartEntry};
use crate::dtype::Dtype;
use crate::error::FormatError;
use crate::safetensors::ShardInfo;
use crate::tensor::{Shape, TensorRef};

/// Experts of one layer in [`ExpertDirectory::parts`].
#[derive(Debug, Clone, Copy, Default)]
struct LayerSpan {
    /// Index of the layer's first part.
    first: usize,
    /// Experts of the layer: ids `0..count` are all there.
    count: usize,
}

/// Every routed expert of a checkpoint, by layer and id.
///
/// The table holds no names: 24 bytes a tensor, sorted by layer, expert and
/// part, complete by construction, so that an expert's place is arithmetic.
#[derive(Debug, Default)]
pub struct ExpertDirectory {
    prefix: String,
    parts: Vec<PartEntry>,
    layers: Vec<LayerSpan>,
}

impl ExpertDirectory {
    /// The expert with this id in this zero-based layer.
    pub fn get(&self, layer: usize, expert: usize) -> Option<ExpertRef<'_>> {
        let span = self.layers.get(layer)?;
        if expert >= span.count {
            return None;
        }
        let first = span.first + expert * EXPERT_PARTS;
        Some(ExpertRef::new(&self.parts[first..first + EXPERT_PARTS]))
    }

    /// Experts of a layer; 0 for layers without.
    pub fn experts_of_layer(&self, layer: usize) -> usize {
        self.layers.get(layer).map_or(0, |span| span.count)
    }

    /// One more than the last layer that has experts.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// Experts of all layers.
    pub fn expert_count(&self) -> usize {
        self.parts.len() / EXPERT_PARTS
    }

    /// Bytes of all experts.
    pub fn total_bytes(&self) -> u64 {
        self.parts.iter().map(PartEntry::bytes).sum()
    }

    /// What the names began with: `language_model.model.` or `model.`; empty
    /// when there are no experts.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Position of a tensor in the table.
    pub(crate) fn find(&self, name: &ExpertName<'_>) -> Option<usize> {
        let span = self.layers.get(usize::from(name.layer))?;
        let expert = usize::from(name.expert);
        (name.prefix == self.prefix && expert < span.count)
            .then(|| span.first + expert * EXPERT_PARTS + name.part as usize)
    }

    /// Tensors of all experts.
    pub fn tensor_count(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn tensor(&self, index: usize) -> TensorRef {
        self.parts[index].tensor()
    }

    pub(crate) fn shard(&self, index: usize) -> u16 {
        self.parts[index].shard
    }

    pub(crate) fn name(&self, index: usize) -> String {
        self.name_of(&self.parts[index])
    }

    fn name_of(&self, entry: &PartEntry) -> String {
        expert_name(&self.prefix, entry)
    }

    /// Checks that exactly the layers `moe_layers` have exactly `expert_count`
    /// experts each, with the tensors an MXFP4 expert of these widths has:
    /// `latent` columns in and `inner` rows for w1 and w3, the reverse for w2.
    ///
    /// # Errors
    ///
    /// [`FormatError::MissingExperts`], [`FormatError::ExtraExperts`] or
    /// [`FormatError::ExpertForm`] for the first tensor of another form.
    pub(crate) fn require(
        &self,
        shards: &[ShardInfo],
        moe_layers: Range<usize>,
        expert_count: usize,
        latent: u64,
        inner: u64,
    ) -> Result<(), FormatError> {
        let mut missing = Sample::default();
        for layer in moe_layers.clone() {
            for expert in self.experts_of_layer(layer)..expert_count {
                for part in ExpertPart::ALL {
                    missing.add(|| self.requested_name(layer, expert, part));
                }
            }
        }
        missing.into_result(|count, examples| FormatError::MissingExperts { count, examples })?;
        let mut extra = Sample::default();
        for entry in &self.parts {
            if !moe_layers.contains(&usize::from(entry.layer))
                || usize::from(entry.expert) >= expert_count
            {
                extra.add(|| self.name_of(entry));
            }
        }
        extra.into_result(|count, examples| FormatError::ExtraExperts { count, examples })?;
        let expected = expected_shapes(latent, inner);
        for entry in &self.parts {
            let shape = [u64::from(entry.rows), u64::from(entry.columns)];
            let wanted = expected[entry.part as usize];
            if entry.dtype != Dtype::U8 || shape != wanted {
                return Err(FormatError::ExpertForm {
                    path: shards[usize::from(entry.shard)].path.clone(),
                    offset: entry.offset,
                    tensor: self.name_of(entry),
                    expected: format!("{} {wanted:?}", Dtype::U8),
                    found: format!("{} {shape:?}", entry.dtype),
                });
            }
        }
        Ok(())
    }

    fn requested_name(&self, layer: usize, expert: usize, part: ExpertPart) -> String {
        let prefix = if self.prefix.is_empty() {
            "language_model.model."
        } else {
            &self.prefix
        };
        let suffix = part.suffix();
        format!("{prefix}layers.{layer}.block_sparse_moe.experts.{expert}.{suffix}")
    }
}

/// Shapes by part: packed has half the columns, scales one per 32 columns.
fn expected_shapes(latent: u64, inner: u64) -> [[u64; 2]; EXPERT_PARTS] {
    ExpertPart::ALL.map(|part| {
        let is_down = matches!(part, ExpertPart::W2Packed | ExpertPart::W2Scale);
        let (rows, columns) = if is_down {
            (latent, inner)
        } else {
            (inner, latent)
        };
        [rows, columns / if part.is_scale() { 32 } else { 2 }]
    })
}

fn expert_name(prefix: &str, entry: &PartEntry) -> String {
    ExpertName {
        prefix,
        layer: entry.layer,
        expert: entry.expert,
        part: entry.part,
    }
    .to_string()
}

/// A count with the first three names.
#[derive(Default)]
pub(crate) struct Sample {
    count: u64,
    examples: Vec<String>,
}

impl Sample {
    pub(crate) fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < 3 {
            self.examples.push(name());
        }
    }

    /// An error when anything was added.
    pub(crate) fn into_result<E>(self, error: impl FnOnce(u64, Vec<String>) -> E) -> Result<(), E> {
        match self.count {
            0 => Ok(()),
            count => Err(error(count, self.examples)),
        }
    }
}

/// Whether a tensor went into the directory.
pub(crate) enum AddedPart {
    /// It did.
    Added,
    /// Its name has another prefix than the experts before it.
    OtherPrefix,
}

/// Collects parts in any order.
#[derive(Debug, Default)]
pub(crate) struct DirectoryBuilder {
    prefix: String,
    parts: Vec<PartEntry>,
}

impl DirectoryBuilder {
    /// Takes a tensor in; `None` when it is not a matrix with dimensions of at
    /// most 32 bits.
    pub(crate) fn add(&mut self, name: &ExpertName<'_>, tensor: &TensorRef) -> Option<AddedPart> {
        if self.prefix.is_empty() {
            name.prefix.clone_into(&mut self.prefix);
        } else if self.prefix != name.prefix {
            return Some(AddedPart::OtherPrefix);
        }
        let &[rows, columns] = tensor.shape.as_slice() else {
            return None;
        };
        self.parts.push(PartEntry {
            offset: tensor.offset,
            rows: u32::try_from(rows).ok()?,
            columns: u32::try_from(columns).ok()?,
            layer: name.layer,
            expert: name.expert,
            shard: tensor.shard,
            part: name.part,
            dtype: tensor.dtype,
        });
        Some(AddedPart::Added)
    }

    /// Sorts the parts and checks that every expert has its six and no layer
    /// has a gap in its ids.
    ///
    /// # Errors
    ///
    /// [`FormatError::DuplicateTensor`] and [`FormatError::MissingExperts`].
    pub(crate) fn finish(mut self, shards: &[ShardInfo]) -> Result<ExpertDirectory, FormatError> {
        self.parts
            .sort_unstable_by_key(|entry| (entry.layer, entry.expert, entry.part, entry.offset));
        self.check_duplicates(shards)?;
        self.check_gaps()?;
        let mut layers = Vec::new();
        let mut first = 0;
        for chunk in self.parts.chunk_by(|a, b| a.layer == b.layer) {
            layers.resize(usize::from(chunk[0].layer) + 1, LayerSpan::default());
            let count = chunk.len() / EXPERT_PARTS;
            layers[usize::from(chunk[0].layer)] = LayerSpan { first, count };
            first += chunk.len();
        }
        self.parts.shrink_to_fit();
        Ok(ExpertDirectory {
            prefix: self.prefix,
            parts: self.parts,
            layers,
        })
    }

    fn check_duplicates(&self, shards: &[ShardInfo]) -> Result<(), FormatError> {
        let key = |entry: &PartEntry| (entry.layer, entry.expert, entry.part);
        match self
            .parts
            .windows(2)
            .find(|pair| key(&pair[0]) == key(&pair[1]))
        {
            None => Ok(()),
            Some(pair) => Err(FormatError::DuplicateTensor {
                tensor: expert_name(&self.prefix, &pair[0]),
                first: shards[usize::from(pair[0].shard)].path.clone(),
                first_offset: pair[0].offset,
                second: shards[usize::from(pair[1].shard)].path.clone(),
                second_offset: pair[1].offset,
            }),
        }
    }

    /// Walks each layer's parts beside the sequence they must form.
    fn check_gaps(&self) -> Result<(), FormatError> {
        let mut missing = Sample::default();
        for layer in self.parts.chunk_by(|a, b| a.layer == b.layer) {
            let number =
                |entry: &PartEntry| usize::from(entry.expert) * EXPERT_PARTS + entry.part as usize;
            let last = layer.last().map_or(0, number);
            let layer_end = last - last % EXPERT_PARTS + EXPERT_PARTS;
            let mut expected = 0;
            let found = layer.iter().map(number).chain([layer_end]);
            for found in found {
                for gap in expected..found {
                    missing.add(|| self.name_at(layer[0].layer, gap));
                }
                expected = found + 1;
            }
        }
        missing.into_result(|count, examples| FormatError::MissingExperts { count, examples })
    }

    fn name_at(&self, layer: u16, number: usize) -> String {
        let prefix = &self.prefix;
        let expert = number / EXPERT_PARTS;
        let suffix = ExpertPart::ALL[number % EXPERT_PARTS].suffix();
        format!("{prefix}layers.{layer}.block_sparse_moe.experts.{expert}.{suffix}")
    }
}

/// What an expert's tensor must at least be; for messages.
pub(crate) fn matrix_form(dtype: Dtype, shape: &Shape) -> (String, String) {
    (
        "a matrix with dimensions below 2^32".to_owned(),
        format!("{dtype} {shape}"),
    )
}
