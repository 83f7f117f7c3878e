//! One table over all shards of a checkpoint.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::header::{LENGTH_BYTES, parse_header, read_header_json};
use super::names::{Inserted, NameTable};
use super::weight_map::{SHARDS_MAX, index_error, read_weight_map, too_many_shards};
use crate::config::KimiK3Config;
use crate::error::{FormatError, IndexFault};
use crate::experts::{
    AddedPart, DirectoryBuilder, ExpertDirectory, ExpertName, Sample, matrix_form,
};
use crate::identity::{Identity, ShardDigest, checkpoint_identity, header_digest};
use crate::read_at::ReadAt;
use crate::tensor::TensorRef;

/// One shard of an index.
#[derive(Debug, Clone)]
pub struct ShardInfo {
    /// Path for messages.
    pub path: PathBuf,
    /// File name, by which index files refer to the shard.
    pub name: String,
    /// Length of the file.
    pub file_bytes: u64,
    /// Where the data begin: the length field and the header.
    pub data_offset: u64,
    /// Tensors of the shard.
    pub tensor_count: u64,
    /// BLAKE3 of the header's JSON.
    pub header_digest: [u8; 32],
}

/// Every tensor of a checkpoint: its shard, place, type and shape.
///
/// Routed experts go to the [`ExpertDirectory`] and use no name storage; all
/// other tensors are found by name.
#[derive(Debug)]
pub struct ShardIndex {
    shards: Vec<ShardInfo>,
    names: NameTable,
    experts: ExpertDirectory,
    tensor_bytes: u64,
}

impl ShardIndex {
    /// Reads the headers of `shards` and checks them against each other and,
    /// when there is an index file, against its `weight_map` and the size it
    /// states for all tensors.
    ///
    /// # Errors
    ///
    /// Any fault of a header, a tensor that stands twice, experts with missing
    /// tensors, and any disagreement between the index and the shards.
    pub fn build(
        shards: &[&dyn ReadAt],
        weight_map: Option<&dyn ReadAt>,
    ) -> Result<Self, FormatError> {
        if let Some(first_beyond) = shards.get(SHARDS_MAX) {
            return Err(too_many_shards(first_beyond));
        }
        let mut builder = Builder {
            shards: Vec::with_capacity(shards.len()),
            names: NameTable::new(),
            experts: DirectoryBuilder::default(),
            tensor_bytes: 0,
        };
        let mut json = Vec::new();
        for (number, file) in (0..=u16::MAX).zip(shards) {
            builder.add_shard(number, *file, &mut json)?;
        }
        // The largest header and the checks need no memory beyond this point.
        drop(json);
        let index = builder.finish()?;
        if let Some(file) = weight_map {
            index.check_weight_map(file)?;
        }
        Ok(index)
    }

    /// The tensor with this name, routed experts' included.
    pub fn get(&self, name: &str) -> Option<TensorRef> {
        if let Some(expert) = ExpertName::parse(name)
            && let Some(index) = self.experts.find(&expert)
        {
            return Some(self.experts.tensor(index));
        }
        self.names.find(name).map(|index| self.names.tensor(index))
    }

    /// Names of all tensors that are not routed experts', in the order they
    /// were read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        (0..self.names.len()).map(|index| self.names.name(index))
    }

    /// Names and places of all tensors that are not routed experts'.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, TensorRef)> {
        (0..self.names.len()).map(|index| (self.names.name(index), self.names.tensor(index)))
    }

    /// The routed experts.
    pub fn experts(&self) -> &ExpertDirectory {
        &self.experts
    }

    /// The shards, in the order given.
    pub fn shards(&self) -> &[ShardInfo] {
        &self.shards
    }

    /// File name of a shard.
    ///
    /// # Panics
    ///
    /// When there is no shard with this number.
    pub fn shard_name(&self, shard: u16) -> &str {
        &self.shards[usize::from(shard)].name
    }

    /// Tensors of all shards.
    pub fn tensor_count(&self) -> usize {
        self.names.len() + self.experts.tensor_count()
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes
    }

    /// The checkpoint's identity, given the bytes of its `config.json`.
    pub fn identity(&self, config: &[u8]) -> Identity {
        let shards = self
            .shards
            .iter()
            .map(|shard| ShardDigest {
                name: &shard.name,
                file_bytes: shard.file_bytes,
                header: &shard.header_digest,
            })
            .collect();
        checkpoint_identity(config, shards)
    }

    /// Checks that the routed experts are exactly those of the configuration:
    /// every layer from the first with experts on, every id, U8 tensors of the
    /// shapes that follow from its widths.
    ///
    /// # Errors
    ///
    /// [`FormatError::MissingExperts`], [`FormatError::ExtraExperts`] and
    /// [`FormatError::ExpertForm`].
    pub fn require_experts(&self, config: &KimiK3Config) -> Result<(), FormatError> {
        self.experts.require(
            &self.shards,
            config.first_k_dense_replace..config.num_hidden_layers,
            config.num_experts,
            config.routed_expert_hidden_size as u64,
            config.moe_intermediate_size as u64,
        )
    }

    /// Compares every entry of the map with the shard that holds its tensor.
    fn check_weight_map(&self, file: &dyn ReadAt) -> Result<(), FormatError> {
        let mut check = MapCheck::new(self);
        let stated = read_weight_map(file, &mut |tensor, shard| {
            check
                .entry(tensor, shard)
                .map_err(|fault| index_error(file, fault))
        })?;
        check.finish().map_err(|fault| index_error(file, fault))?;
        match stated {
            Some(stated) if stated != self.tensor_bytes => {
                let found = self.tensor_bytes;
                Err(index_error(file, IndexFault::TotalSize { stated, found }))
            }
            _ => Ok(()),
        }
    }
}

struct Builder {
    shards: Vec<ShardInfo>,
    names: NameTable,
    experts: DirectoryBuilder,
    tensor_bytes: u64,
}

impl Builder {
    fn add_shard(
        &mut self,
        number: u16,
        file: &dyn ReadAt,
        json: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        read_header_json(file, json)?;
        self.shards.push(ShardInfo {
            path: file.label().to_path_buf(),
            name: file.file_name(),
            file_bytes: file.len_bytes(),
            data_offset: LENGTH_BYTES + json.len() as u64,
            tensor_count: 0,
            header_digest: header_digest(json),
        });
        let Self {
            shards,
            names,
            experts,
            ..
        } = self;
        let summary = parse_header(file, number, json, &mut |name, tensor| {
            add_tensor(file, shards, names, experts, name, &tensor)
        })?;
        self.shards[usize::from(number)].tensor_count = summary.tensor_count;
        // File lengths fit 63 bits and there are at most 2^16 of them, so only
        // a test's virtual files could wrap here.
        self.tensor_bytes = self.tensor_bytes.saturating_add(summary.tensor_bytes);
        Ok(())
    }

    fn finish(mut self) -> Result<ShardIndex, FormatError> {
        self.names.freeze();
        let experts = self.experts.finish(&self.shards)?;
        Ok(ShardIndex {
            experts,
            shards: self.shards,
            names: self.names,
            tensor_bytes: self.tensor_bytes,
        })
    }
}

fn add_tensor(
    file: &dyn ReadAt,
    shards: &[ShardInfo],
    names: &mut NameTable,
    experts: &mut DirectoryBuilder,
    name: &str,
    tensor: &TensorRef,
) -> Result<(), FormatError> {
    if let Some(expert) = ExpertName::parse(name) {
        match experts.add(&expert, tensor) {
            Some(AddedPart::Added) => return Ok(()),
            Some(AddedPart::OtherPrefix) => {}
            None => {
                let (expected, found) = matrix_form(tensor.dtype, &tensor.shape);
                return Err(FormatError::ExpertForm {
                    path: file.label().to_path_buf(),
                    offset: tensor.offset,
                    tensor: name.to_owned(),
                    expected,
                    found,
                });
            }
        }
    }
    match names.insert(name, *tensor) {
        Inserted::New => Ok(()),
        Inserted::Present(first) => Err(FormatError::DuplicateTensor {
            tensor: name.to_owned(),
            first: shards[usize::from(first.shard)].path.clone(),
            first_offset: first.offset,
            second: file.label().to_path_buf(),
            second_offset: tensor.offset,
        }),
        Inserted::Full => Err(FormatError::TooMany {
            path: file.label().to_path_buf(),
            what: "bytes of tensor names",
            found: u64::from(u32::MAX) + 1,
            limit: u64::from(u32::MAX),
        }),
    }
}

/// Shard names listed in a message.
const LISTED_SHARDS_MAX: usize = 20;

/// Compares a map with an index, entry by entry, one bit a tensor.
struct MapCheck<'i> {
    index: &'i ShardIndex,
    shard_numbers: HashMap<&'i str, u16>,
    last_shard: u16,
    seen_names: Vec<bool>,
    seen_experts: Vec<bool>,
    unknown_shards: HashSet<String>,
    not_in_shards: Sample,
    wrong_shards: u64,
    /// Tensor, mapped shard and actual shard of the first wrong entry.
    first_wrong: Option<(String, u16, u16)>,
}

impl<'i> MapCheck<'i> {
    fn new(index: &'i ShardIndex) -> Self {
        let shard_numbers = (0..=u16::MAX)
            .zip(&index.shards)
            .map(|(number, shard)| (shard.name.as_str(), number))
            .collect();
        Self {
            index,
            shard_numbers,
            last_shard: 0,
            seen_names: vec![false; index.names.len()],
            seen_experts: vec![false; index.experts.tensor_count()],
            unknown_shards: HashSet::new(),
            not_in_shards: Sample::default(),
            wrong_shards: 0,
            first_wrong: None,
        }
    }

    fn entry(&mut self, tensor: &str, shard: &str) -> Result<(), IndexFault> {
        let Some(mapped) = self.shard_number(shard) else {
            if self.unknown_shards.len() < SHARDS_MAX && !self.unknown_shards.contains(shard) {
                self.unknown_shards.insert(shard.to_owned());
            }
            return Ok(());
        };
        let expert = ExpertName::parse(tensor).and_then(|name| self.index.experts.find(&name));
        let (seen, actual) = if let Some(position) = expert {
            let actual = self.index.experts.shard(position);
            (&mut self.seen_experts[position], actual)
        } else if let Some(position) = self.index.names.find(tensor) {
            let actual = self.index.names.tensor(position).shard;
            (&mut self.seen_names[position], actual)
        } else {
            self.not_in_shards.add(|| tensor.to_owned());
            return Ok(());
        };
        if std::mem::replace(seen, true) {
            return Err(IndexFault::MappedTwice {
                tensor: tensor.to_owned(),
            });
        }
        if actual != mapped {
            self.wrong_shards += 1;
            self.first_wrong
                .get_or_insert_with(|| (tensor.to_owned(), mapped, actual));
        }
        Ok(())
    }

    /// Neighbouring entries mostly name the same shard.
    fn shard_number(&mut self, shard: &str) -> Option<u16> {
        let last = self.index.shards.get(usize::from(self.last_shard))?;
        if last.name != shard {
            self.last_shard = *self.shard_numbers.get(shard)?;
        }
        Some(self.last_shard)
    }

    /// The gravest disagreement: a file that is not there explains the rest.
    fn finish(self) -> Result<(), IndexFault> {
        if !self.unknown_shards.is_empty() {
            let count = self.unknown_shards.len() as u64;
            let mut files: Vec<String> = self.unknown_shards.into_iter().collect();
            files.sort_unstable();
            files.truncate(LISTED_SHARDS_MAX);
            return Err(IndexFault::UnknownShards { count, files });
        }
        if let Some((tensor, mapped, actual)) = self.first_wrong {
            return Err(IndexFault::WrongShard {
                tensor,
                mapped: self.index.shard_name(mapped).to_owned(),
                actual: self.index.shard_name(actual).to_owned(),
                count: self.wrong_shards,
            });
        }
        self.not_in_shards
            .into_result(|count, examples| IndexFault::NotInShards { count, examples })?;
        let mut not_in_map = Sample::default();
        for (position, _) in unseen(&self.seen_names) {
            not_in_map.add(|| self.index.names.name(position).to_owned());
        }
        for (position, _) in unseen(&self.seen_experts) {
            not_in_map.add(|| self.index.experts.name(position));
        }
        not_in_map.into_result(|count, examples| IndexFault::NotInMap { count, examples })
    }
}

fn unseen(seen: &[bool]) -> impl Iterator<Item = (usize, &bool)> {
    seen.iter().enumerate().filter(|(_, seen)| !**seen)
}
