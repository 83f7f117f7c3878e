//! The bytes of the shard files and of the index.

use std::collections::BTreeMap;

use k3_formats::Dtype;
use k3_formats::safetensors::writer::{HeaderBuilder, HeaderPadding, write_index};

use super::generate::Group;
use super::spec::TinySpec;
use crate::rng::Rng;
use crate::tensor::Tensor;

/// One file of a checkpoint, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct FileImage {
    /// Name inside the checkpoint's directory.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// The tensors of each shard, in file order.
pub(super) fn distribute(spec: &TinySpec, groups: Vec<Group>) -> Vec<Vec<Tensor>> {
    let shards = spec.layout.shards;
    let mut files: Vec<Vec<Tensor>> = vec![Vec::new(); shards];
    for group in groups {
        let file = match group.layer {
            // Whole layers, spread evenly over all files but the last.
            Some(layer) if shards > 1 => layer * (shards - 1) / spec.shape.layers,
            Some(_) => 0,
            None => shards - 1,
        };
        files[file].extend(group.tensors);
    }
    if spec.layout.odd_offsets {
        for (index, file) in files.iter_mut().enumerate() {
            file.insert(0, filler(spec, index));
        }
    }
    files
}

/// An unused tensor of odd length, under a prefix a text model may ignore.
fn filler(spec: &TinySpec, shard: usize) -> Tensor {
    let name = format!("vision_tower.patch_embed.filler.{shard}");
    let mut rng = Rng::named(spec.seed, &name);
    let len = 2 * rng.below(40) + 1;
    Tensor {
        name,
        dtype: Dtype::U8,
        shape: vec![len as u64],
        bytes: (0..len).map(|_| rng.byte()).collect(),
    }
}

pub(super) fn shard_name(shard: usize, shards: usize) -> String {
    if shards == 1 {
        "model.safetensors".to_owned()
    } else {
        format!("model-{:05}-of-{shards:05}.safetensors", shard + 1)
    }
}

/// The shard file of these tensors. With `odd_header` its data begin at an odd
/// offset; else at a multiple of 8, as the format's own writer has it.
pub(super) fn shard_bytes(tensors: &[Tensor], odd_header: bool) -> Vec<u8> {
    let mut header = HeaderBuilder::new();
    header.metadata("format", "pt");
    let mut data = Vec::new();
    for tensor in tensors {
        header.tensor(&tensor.name, tensor.dtype, &tensor.shape);
        data.extend_from_slice(&tensor.bytes);
    }
    let padding = if odd_header {
        let plain = header.build(HeaderPadding::Spaces(0)).len();
        HeaderPadding::Spaces(1 - plain % 2)
    } else {
        HeaderPadding::AlignDataTo(8)
    };
    header.build_file(padding, &data)
}

/// `model.safetensors.index.json`.
pub(super) fn index_json(files: &[Vec<Tensor>]) -> Vec<u8> {
    let mut weight_map = BTreeMap::new();
    let mut total_bytes = 0;
    for (shard, tensors) in files.iter().enumerate() {
        for tensor in tensors {
            weight_map.insert(tensor.name.as_str(), shard_name(shard, files.len()));
            total_bytes += tensor.bytes.len() as u64;
        }
    }
    let entries = weight_map.iter().map(|(name, file)| (*name, file.as_str()));
    let mut text = Vec::new();
    write_index(&mut text, total_bytes, entries).expect("a vector takes every write");
    text
}
