//! The raw trunk of other tools, compared with the checkpoint it is named for.

use k3_formats::trunk::{ForeignTensor, ForeignTrunk};
use k3_formats::{ReadAt, ShardIndex, TensorRef};
use k3_io::FileReader;
use k3_models::Block;

use crate::error::RunError;

/// Bytes of each tensor that are compared with the shard's.
const SAMPLE_BYTES: usize = 512;
/// Bytes that a message shows where they differ.
const SHOWN_BYTES: usize = 8;

/// A tensor of a shard and its copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    shard: u16,
    offset: u64,
    bytes: u64,
    copy_offset: u64,
}

/// Where the copy of `block` lies, if its tensor was copied.
pub(super) fn copy_of(tensors: &[Moved], block: &Block) -> Option<u64> {
    let wanted = (block.shard, block.offset);
    let after = tensors.partition_point(|tensor| (tensor.shard, tensor.offset) <= wanted);
    let tensor = tensors[..after].last()?;
    let inside = block.offset - tensor.offset;
    let fits = tensor.shard == block.shard && inside + block.raw_bytes <= tensor.bytes;
    fits.then_some(tensor.copy_offset + inside)
}

/// The tensors of `trunk`, by where they lie in the shards. Each is compared with the
/// shard's: where it lies, its type, its shape and its first bytes.
///
/// # Errors
///
/// [`RunError::ForeignTrunk`] with the first field that differs, and reads that fail.
pub(super) fn moved(
    trunk: &ForeignTrunk,
    index: &ShardIndex,
    shards: &[FileReader],
    json: &FileReader,
    bin: &FileReader,
) -> Result<Vec<Moved>, RunError> {
    let mut tensors = Vec::with_capacity(trunk.tensor_count());
    for (name, tensor) in index.tensors() {
        let Some(copy) = trunk.get(name) else {
            continue;
        };
        let shard = &shards[usize::from(tensor.shard)];
        let pair = Pair {
            name,
            tensor: &tensor,
            copy,
            json,
        };
        pair.compare_fields(trunk.shard(copy.layer), shard)?;
        pair.compare_bytes(shard, bin)?;
        tensors.push(Moved {
            shard: tensor.shard,
            offset: tensor.offset,
            bytes: tensor.bytes,
            copy_offset: copy.offset,
        });
    }
    tensors.sort_unstable_by_key(|tensor| (tensor.shard, tensor.offset));
    if tensors.len() < trunk.tensor_count() {
        return Err(RunError::ForeignTrunk {
            path: json.label().to_path_buf(),
            what: "the number of tensors that are in both".to_owned(),
            found: trunk.tensor_count().to_string(),
            expected: tensors.len().to_string(),
        });
    }
    Ok(tensors)
}

/// A tensor of the checkpoint and of the trunk.
struct Pair<'a> {
    name: &'a str,
    tensor: &'a TensorRef,
    copy: &'a ForeignTensor,
    json: &'a FileReader,
}

impl Pair<'_> {
    fn differs(&self, file: &FileReader, field: &str, found: String, expected: String) -> RunError {
        RunError::ForeignTrunk {
            path: file.label().to_path_buf(),
            what: format!("{} of {} (layer {})", field, self.name, self.copy.layer),
            found,
            expected,
        }
    }

    fn compare_fields(&self, shard: Option<&str>, file: &FileReader) -> Result<(), RunError> {
        let (copy, tensor) = (self.copy, self.tensor);
        let own = file.file_name();
        let [found, expected] = [copy.dtype, tensor.dtype].map(|dtype| dtype.name().to_owned());
        if found != expected {
            return Err(self.differs(self.json, "`dtype`", found, expected));
        }
        if copy.shape != tensor.shape {
            let [found, expected] =
                [copy.shape, tensor.shape].map(|shape| format!("{:?}", shape.as_slice()));
            return Err(self.differs(self.json, "`shape`", found, expected));
        }
        if let Some(shard) = shard.filter(|shard| *shard != own) {
            return Err(self.differs(self.json, "`shard`", shard.to_owned(), own));
        }
        match copy.source_offset {
            Some(found) if found != tensor.offset => {
                let field = "`run_start` + `off`";
                let expected = format!("{} in {own}", tensor.offset);
                Err(self.differs(self.json, field, found.to_string(), expected))
            }
            _ => Ok(()),
        }
    }

    fn compare_bytes(&self, shard: &FileReader, bin: &FileReader) -> Result<(), RunError> {
        let sample = usize::try_from(self.tensor.bytes).unwrap_or(usize::MAX);
        let sample = sample.min(SAMPLE_BYTES);
        let [mut ours, mut theirs] = [[0; SAMPLE_BYTES]; 2];
        shard.read_exact_at(self.tensor.offset, &mut ours[..sample])?;
        bin.read_exact_at(self.copy.offset, &mut theirs[..sample])?;
        let Some(at) = (0..sample).find(|at| ours[*at] != theirs[*at]) else {
            return Ok(());
        };
        let shown = |bytes: &[u8], offset: u64, file: &FileReader| {
            let bytes = bytes[at..sample].iter().take(SHOWN_BYTES);
            let hex: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
            let offset = offset + at as u64;
            format!(
                "{} at offset {offset} of {}",
                hex.join(" "),
                file.file_name()
            )
        };
        let found = shown(&theirs, self.copy.offset, bin);
        let expected = shown(&ours, self.tensor.offset, shard);
        Err(self.differs(bin, "the weights", found, expected))
    }
}
