//! Small shards, whole or broken.

use k3_formats::safetensors::ShardHeader;
use k3_formats::safetensors::writer::{HeaderBuilder, HeaderPadding};
use k3_formats::{Dtype, ExpertPart, FormatError, MemoryFile, ReadAt, ShardIndex};

/// Length field, JSON as given, data.
pub(crate) fn raw_shard(json: &str, data_bytes: usize) -> MemoryFile {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data_bytes, 0);
    MemoryFile::new("dir/bad.safetensors", bytes)
}

/// One U8 tensor with these offsets as text.
pub(crate) fn one_tensor(shape: &str, offsets: &str, data_bytes: usize) -> MemoryFile {
    let json =
        format!("{{\"t\":{{\"dtype\":\"U8\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}");
    raw_shard(&json, data_bytes)
}

/// A shard of U8 vectors.
pub(crate) fn shard(name: &str, tensors: &[(&str, u64)]) -> MemoryFile {
    let mut header = HeaderBuilder::new();
    for (tensor, bytes) in tensors {
        header.tensor(*tensor, Dtype::U8, &[*bytes]);
    }
    finish(name, &header)
}

pub(crate) fn finish(name: &str, header: &HeaderBuilder) -> MemoryFile {
    let data = vec![7; usize::try_from(header.data_bytes()).unwrap()];
    MemoryFile::new(name, header.build_file(HeaderPadding::Spaces(3), &data))
}

pub(crate) fn expert_name(layer: usize, expert: usize, part: ExpertPart) -> String {
    let suffix = part.suffix();
    format!("language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}.{suffix}")
}

/// Adds an expert of latent width 64 and inner width 32.
pub(crate) fn add_expert(header: &mut HeaderBuilder, layer: usize, expert: usize) {
    for part in ExpertPart::ALL {
        add_part(header, layer, expert, part);
    }
}

pub(crate) fn add_part(header: &mut HeaderBuilder, layer: usize, expert: usize, part: ExpertPart) {
    let shape = match part {
        ExpertPart::W1Packed | ExpertPart::W3Packed => [32, 32],
        ExpertPart::W1Scale | ExpertPart::W3Scale => [32, 2],
        ExpertPart::W2Packed => [64, 16],
        ExpertPart::W2Scale => [64, 1],
    };
    header.tensor(expert_name(layer, expert, part), Dtype::U8, &shape);
}

pub(crate) fn build(shards: &[&MemoryFile]) -> Result<ShardIndex, FormatError> {
    let views: Vec<&dyn ReadAt> = shards.iter().map(|shard| *shard as &dyn ReadAt).collect();
    ShardIndex::build(&views, None)
}

/// The error that both readers give.
pub(crate) fn shard_error(file: &MemoryFile) -> FormatError {
    let single = ShardHeader::read(file).unwrap_err();
    let indexed = build(&[file]).unwrap_err();
    assert_eq!(single.to_string(), indexed.to_string());
    let path = file.label().display().to_string();
    assert!(single.to_string().contains(&path), "{single}");
    single
}
