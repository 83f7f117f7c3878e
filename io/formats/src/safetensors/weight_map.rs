//! `model.safetensors.index.json`: which shard holds which tensor.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::error::{FormatError, IndexFault};
use crate::experts::layer_of;
use crate::json_stream::JsonStream;
use crate::read_at::ReadAt;

/// Most shards a checkpoint may have; a [`TensorRef`](crate::TensorRef) numbers
/// them in 16 bits.
pub(super) const SHARDS_MAX: usize = 1 << 16;

/// The shard files an index names, without the tensors: what has to be known
/// before the shards can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardList {
    /// The files, by name.
    pub shards: Vec<MappedShard>,
    /// Tensors of the whole map.
    pub tensor_count: u64,
    /// `metadata.total_size`, bytes of all tensors, when the index states it.
    pub total_bytes: Option<u64>,
}

/// One shard file as the index describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedShard {
    /// A plain file name.
    pub name: String,
    /// Tensors mapped to it.
    pub tensor_count: u64,
    /// The first of them.
    pub first_tensor: String,
    /// The decoder layers it has tensors of.
    pub layers: Option<RangeInclusive<u16>>,
}

impl ShardList {
    /// Reads the index once, keeping only the file names.
    ///
    /// # Errors
    ///
    /// [`FormatError::Json`] for text that is no index,
    /// [`FormatError::Index`] for an empty map or names that are not plain file
    /// names, [`FormatError::TooMany`] for more shards than can be numbered.
    pub fn read(index: &dyn ReadAt) -> Result<Self, FormatError> {
        let mut shards: Vec<MappedShard> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut tensor_count = 0;
        let mut last = usize::MAX;
        let total_bytes = read_weight_map(index, &mut |tensor, shard| {
            tensor_count += 1;
            if shards.get(last).is_none_or(|entry| entry.name != shard) {
                last = match numbers.get(shard) {
                    Some(&number) => number,
                    None => {
                        let number = add_shard(index, &mut shards, tensor, shard)?;
                        numbers.insert(shard.to_owned(), number);
                        number
                    }
                };
            }
            shards[last].count(tensor);
            Ok(())
        })?;
        if shards.is_empty() {
            return Err(index_error(index, IndexFault::Empty));
        }
        shards.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            shards,
            tensor_count,
            total_bytes,
        })
    }
}

impl MappedShard {
    fn count(&mut self, tensor: &str) {
        self.tensor_count += 1;
        if let Some(layer) = layer_of(tensor) {
            self.layers = Some(match &self.layers {
                None => layer..=layer,
                Some(range) => layer.min(*range.start())..=layer.max(*range.end()),
            });
        }
    }
}

fn add_shard(
    index: &dyn ReadAt,
    shards: &mut Vec<MappedShard>,
    tensor: &str,
    shard: &str,
) -> Result<usize, FormatError> {
    // A name from a file is joined to a directory later: it must stay in it.
    // And it is printed with its path, which control characters would garble.
    let is_plain = !shard.is_empty()
        && !matches!(shard, "." | "..")
        && !shard.contains(|c: char| matches!(c, '/' | '\\') || c.is_control());
    if !is_plain {
        let file = shard.chars().take(80).collect();
        return Err(index_error(index, IndexFault::BadShardName { file }));
    }
    if shards.len() == SHARDS_MAX {
        return Err(too_many_shards(index));
    }
    shards.push(MappedShard {
        name: shard.to_owned(),
        tensor_count: 0,
        first_tensor: tensor.to_owned(),
        layers: None,
    });
    Ok(shards.len() - 1)
}

pub(super) fn too_many_shards(file: &dyn ReadAt) -> FormatError {
    FormatError::TooMany {
        path: file.label().to_path_buf(),
        what: "shard files",
        found: SHARDS_MAX as u64 + 1,
        limit: SHARDS_MAX as u64,
    }
}

pub(super) fn index_error(index: &dyn ReadAt, fault: IndexFault) -> FormatError {
    FormatError::Index {
        path: index.label().to_path_buf(),
        fault,
    }
}

/// Gives every `(tensor, shard)` of the map to `sink`, in file order, holding
/// only a window of the file. Returns `metadata.total_size` if it is a whole
/// number.
pub(super) fn read_weight_map(
    index: &dyn ReadAt,
    sink: &mut dyn FnMut(&str, &str) -> Result<(), FormatError>,
) -> Result<Option<u64>, FormatError> {
    let mut stream = JsonStream::new(index);
    let mut total_bytes = None;
    let mut has_map = false;
    let mut name = String::new();
    stream.refuse_byte_order_mark()?;
    let mut more = !stream.open(b'{', b'}')?;
    while more {
        let key_offset = stream.offset();
        let key = stream.string()?.into_owned();
        stream.expect(b':')?;
        match key.as_str() {
            "weight_map" if has_map => {
                return Err(stream.fault(key_offset, "the key \"weight_map\" stands twice"));
            }
            "weight_map" => {
                has_map = true;
                read_entries(&mut stream, &mut name, sink)?;
            }
            "metadata" => total_bytes = read_metadata(&mut stream)?,
            _ => drop(stream.skip(0)?),
        }
        more = stream.another(b'}')?;
    }
    stream.finish()?;
    if !has_map {
        return Err(index_error(index, IndexFault::NoWeightMap));
    }
    Ok(total_bytes)
}

fn read_entries(
    stream: &mut JsonStream<'_>,
    name: &mut String,
    sink: &mut dyn FnMut(&str, &str) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let mut more = !stream.open(b'{', b'}')?;
    while more {
        // The window may move when the value is read.
        name.clear();
        name.push_str(&stream.string()?);
        stream.expect(b':')?;
        sink(name, &stream.string()?)?;
        more = stream.another(b'}')?;
    }
    Ok(())
}

fn read_metadata(stream: &mut JsonStream<'_>) -> Result<Option<u64>, FormatError> {
    if stream.peek()? != Some(b'{') {
        stream.skip(0)?;
        return Ok(None);
    }
    let mut total_bytes = None;
    let mut more = !stream.open(b'{', b'}')?;
    while more {
        let is_total = stream.string()? == "total_size";
        stream.expect(b':')?;
        let scalar = stream.skip(0)?;
        if is_total {
            total_bytes = scalar.and_then(|text| text.parse().ok());
        }
        more = stream.another(b'}')?;
    }
    Ok(total_bytes)
}
