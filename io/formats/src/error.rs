//! What can be wrong with a file.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::{ConfigProblem, problem_list};
use crate::manifest::ManifestFault;
use crate::shown::{listed, quoted, sentence};
use crate::snapshot::SnapshotFault;
use crate::trunk::TrunkFault;

/// A file this crate was asked to read is not what it should be.
///
/// Every message names the file, where in it the fault lies, what was expected
/// and found, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The system refused a read.
    #[error(
        "{}: cannot read {wanted_bytes} bytes at offset {offset}: {source}",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        wanted_bytes: u64,
        /// The system's reason.
        source: io::Error,
    },

    /// The file ended before the bytes it was known to have.
    #[error(
        "{}: wanted {wanted_bytes} bytes at offset {offset}, got {got_bytes}: the file is shorter \
         than its contents say or was truncated while in use; compare its size with the \
         published one and fetch it again",
        path.display()
    )]
    ShortRead {
        /// The file.
        path: PathBuf,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        wanted_bytes: u64,
        /// Bytes there were.
        got_bytes: u64,
    },

    /// A file that should be small is not.
    #[error(
        "{}: {found_bytes} bytes, but a file of this kind has at most {limit_bytes}; \
         is it the right file?",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// The most that is accepted.
        limit_bytes: u64,
    },

    /// The first eight bytes of a safetensors file do not fit the file.
    #[error(
        "{}: the header length at offset 0 is {header_bytes}, but the file has {file_bytes} bytes \
         and a header needs 2 to {limit_bytes} of those after the first 8: not a safetensors \
         file, or cut short; fetch it again",
        path.display()
    )]
    HeaderLength {
        /// The file.
        path: PathBuf,
        /// The declared length of the header.
        header_bytes: u64,
        /// The length of the file.
        file_bytes: u64,
        /// The longest header that is accepted.
        limit_bytes: u64,
    },

    /// JSON that does not parse, or does not have the form the file must have.
    #[error("{}: offset {offset}: {}", path.display(), sentence(detail))]
    Json {
        /// The file.
        path: PathBuf,
        /// Where in the file the reader stopped.
        offset: u64,
        /// What was expected and found there.
        detail: String,
    },

    /// One tensor's entry in a header contradicts itself, its neighbours or the file.
    #[error(
        "{}: header entry at offset {offset}, tensor {}: {fault}: the header is damaged, or the \
         file is of a model that is not supported; fetch this file again",
        path.display(), quoted(tensor)
    )]
    Tensor {
        /// The shard file.
        path: PathBuf,
        /// Where the entry stands in the file.
        offset: u64,
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        fault: TensorFault,
    },

    /// A shard is shorter than its header says.
    #[error(
        "{}: the header describes a file of {expected_bytes} bytes, but the file has \
         {actual_bytes} ({} missing); the first tensor cut off is {} at offset {offset}: \
         truncated or not fully downloaded; fetch this file again",
        path.display(), expected_bytes - actual_bytes, quoted(tensor)
    )]
    Truncated {
        /// The shard file.
        path: PathBuf,
        /// The first tensor that does not fit.
        tensor: String,
        /// Where that tensor's data begin in the file.
        offset: u64,
        /// Length of the file by its header.
        expected_bytes: u64,
        /// Length of the file.
        actual_bytes: u64,
    },

    /// Bytes after the last tensor.
    #[error(
        "{}: {extra_bytes} bytes at offset {offset} belong to no tensor: header and data do not \
         belong together; fetch this file again",
        path.display()
    )]
    TrailingData {
        /// The shard file.
        path: PathBuf,
        /// End of the last tensor.
        offset: u64,
        /// Bytes after it.
        extra_bytes: u64,
    },

    /// The same tensor in two places.
    #[error("{}", duplicate(tensor, (first, *first_offset), (second, *second_offset)))]
    DuplicateTensor {
        /// The tensor's name.
        tensor: String,
        /// The file it was met in first.
        first: PathBuf,
        /// Where its data begin there.
        first_offset: u64,
        /// The file it was met in again.
        second: PathBuf,
        /// Where its data begin there.
        second_offset: u64,
    },

    /// More of something than the tables hold.
    #[error("{}: {what}: {found}, at most {limit} are supported", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much is supported.
        limit: u64,
    },

    /// The index file and the shards disagree.
    #[error("{}: {fault}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// How they disagree.
        fault: IndexFault,
    },

    /// Tensors of routed experts are missing.
    #[error(
        "{count} tensors of routed experts are missing, among them {}: a shard is missing or of \
         another checkpoint",
        listed(examples)
    )]
    MissingExperts {
        /// How many tensors are missing.
        count: u64,
        /// Up to three of their names.
        examples: Vec<String>,
    },

    /// Routed experts that the configuration does not have.
    #[error(
        "{count} tensors belong to experts or layers beyond the configuration, among them {}: \
         the weights and config.json do not belong together",
        listed(examples)
    )]
    ExtraExperts {
        /// How many tensors are too many.
        count: u64,
        /// Up to three of their names.
        examples: Vec<String>,
    },

    /// A routed expert's tensor has another form than the configuration implies.
    #[error(
        "{}: tensor {} at offset {offset} is {found}, but the configuration implies \
         {expected}: the weights and config.json do not belong together",
        path.display(), quoted(tensor)
    )]
    ExpertForm {
        /// The shard file.
        path: PathBuf,
        /// Where the tensor's data begin.
        offset: u64,
        /// The tensor's name.
        tensor: String,
        /// Element type and shape implied by the configuration.
        expected: String,
        /// Element type and shape of the file.
        found: String,
    },

    /// A model configuration that cannot be run; every problem is listed.
    #[error("{}: {}", path.display(), problem_list(problems, architectures))]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// The architecture names the file states.
        architectures: Vec<String>,
        /// Everything that is wrong with it.
        problems: Vec<ConfigProblem>,
    },

    /// A line of a rank file (`tiktoken.model`) is wrong.
    #[error(
        "{}: line {line}, offset {offset}: {fault}; fetch the vocabulary again",
        path.display()
    )]
    Rank {
        /// The rank file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Offset of the line's first byte.
        offset: u64,
        /// What is wrong with it.
        fault: RankFault,
    },

    /// An integrity manifest is not what was written, or not one.
    #[error(
        "{}: offset {offset}: {fault}; make it anew with `k3-pack manifest`",
        path.display()
    )]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Where the fault lies.
        offset: u64,
        /// What is wrong with it.
        fault: ManifestFault,
    },

    /// A sequence snapshot is damaged, or is of something else.
    #[error(
        "{}: offset {offset}: {fault}; only a whole one that was made with this checkpoint \
         and these settings serves here",
        path.display()
    )]
    Snapshot {
        /// The snapshot.
        path: PathBuf,
        /// Where the fault lies.
        offset: u64,
        /// What is wrong with it.
        fault: SnapshotFault,
    },

    /// An expert trace is malformed.
    #[error("{}: offset {offset}: {fault}", path.display())]
    Trace {
        /// The trace file.
        path: PathBuf,
        /// Offset of the pair.
        offset: u64,
        /// What is wrong with it.
        fault: TraceFault,
    },

    /// A packed trunk, or the field's, is not what it should be.
    #[error("{}: offset {offset}: {fault}", path.display())]
    Trunk {
        /// The file.
        path: PathBuf,
        /// Where in it the fault lies.
        offset: u64,
        /// What is wrong there.
        fault: Box<TrunkFault>,
    },
}

/// What is wrong with one tensor's header entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// An element type this reader does not know.
    #[error("unknown element type {}", quoted(.0))]
    UnknownDtype(String),
    /// More dimensions than [`MAX_DIMENSIONS`](crate::MAX_DIMENSIONS).
    #[error("more than {limit} dimensions, which no supported model has")]
    TooManyDimensions {
        /// The most that is accepted.
        limit: usize,
    },
    /// Elements times element size exceed 64 bits.
    #[error("shape {shape} of {dtype} has more bytes than 64 bits can count")]
    ShapeOverflow {
        /// The declared shape.
        shape: String,
        /// The declared element type.
        dtype: &'static str,
    },
    /// `data_offsets` with the end before the beginning.
    #[error("data_offsets begin at {begin} and end before that, at {end}")]
    ReversedRange {
        /// Declared first byte.
        begin: u64,
        /// Declared end.
        end: u64,
    },
    /// `data_offsets` that wrap when the header's length is added.
    #[error("data_offsets end at {end}, which no file can reach")]
    RangeOverflow {
        /// Declared end.
        end: u64,
    },
    /// The range's length is not that of the shape.
    #[error("shape {shape} of {dtype} takes {expected} bytes, but data_offsets span {found}")]
    LengthMismatch {
        /// The declared shape.
        shape: String,
        /// The declared element type.
        dtype: &'static str,
        /// Bytes by shape and type.
        expected: u64,
        /// Bytes by range.
        found: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "data_offsets begin at {begin}, inside tensor {}, which ends at {other_end}",
        quoted(other)
    )]
    Overlap {
        /// Declared first byte.
        begin: u64,
        /// The tensor it overlaps.
        other: String,
        /// Where that one ends.
        other_end: u64,
    },
    /// Bytes between two tensors that belong to neither; the format forbids holes.
    #[error("{gap_bytes} bytes before data_offsets {begin} belong to no tensor")]
    Hole {
        /// Declared first byte.
        begin: u64,
        /// Length of the hole.
        gap_bytes: u64,
    },
}

/// How the index file and the shards disagree. Lists hold at most three
/// examples; counts are exact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// The map says one shard, the tensor lies in another.
    #[error(
        "tensor {} is mapped to {} but lies in {} ({count} such entries): \
         a stale index; fetch the index again",
        quoted(tensor),
        quoted(mapped),
        quoted(actual)
    )]
    WrongShard {
        /// The first such tensor.
        tensor: String,
        /// The shard the map names.
        mapped: String,
        /// The shard which has it.
        actual: String,
        /// How many entries are wrong this way.
        count: u64,
    },
    /// Entries of the map that no shard has.
    #[error(
        "{count} mapped tensors are in no shard, among them {}: the index is of another \
         checkpoint; fetch the index and shards of one revision",
        listed(examples)
    )]
    NotInShards {
        /// How many.
        count: u64,
        /// Up to three names.
        examples: Vec<String>,
    },
    /// Tensors of the shards that the map lacks.
    #[error(
        "{count} tensors of the shards are not in the map, among them {}: the index is of \
         another checkpoint; fetch the index and shards of one revision",
        listed(examples)
    )]
    NotInMap {
        /// How many.
        count: u64,
        /// Up to three names.
        examples: Vec<String>,
    },
    /// The map names files that were not given.
    #[error(
        "the map names {} that {} not among the shards read: {}; fetch the missing files with \
         the tool the checkpoint came with",
        if *count == 1 { "a file" } else { "files" },
        if *count == 1 { "is" } else { "are" },
        listed(files)
    )]
    UnknownShards {
        /// How many files.
        count: u64,
        /// Their names, at most twenty.
        files: Vec<String>,
    },
    /// The same tensor mapped twice.
    #[error("tensor {} is mapped twice; fetch the index again", quoted(tensor))]
    MappedTwice {
        /// The tensor.
        tensor: String,
    },
    /// A shard name that is not a plain file name.
    #[error(
        "the map names shard {}, which is not a plain file name; fetch the index again",
        quoted(file)
    )]
    BadShardName {
        /// The name.
        file: String,
    },
    /// The stated size of all tensors is not theirs.
    #[error(
        "metadata.total_size is {stated}, but the tensors of the shards have {found} bytes: the \
         index is of another checkpoint; fetch the index and shards of one revision"
    )]
    TotalSize {
        /// Bytes by the index.
        stated: u64,
        /// Bytes by the headers of the shards.
        found: u64,
    },
    /// No tensors at all.
    #[error("the map is empty; fetch the index again")]
    Empty,
    /// The file has no `weight_map`.
    #[error("the key \"weight_map\" is missing: not a shard index; fetch the index again")]
    NoWeightMap,
}

/// What is wrong with a line of a rank file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankFault {
    /// Not `base64 SPACE rank`.
    #[error("expected \"base64 rank\", one space between")]
    Form,
    /// The token is not canonical base64.
    #[error("the token is not valid base64")]
    Base64,
    /// A token of no bytes.
    #[error("the token is empty")]
    EmptyToken,
    /// The rank is not the line's number.
    #[error(
        "rank {expected} expected, found {}: ranks must ascend from 0 without gaps",
        quoted(found)
    )]
    RankOrder {
        /// The rank that had to come.
        expected: u32,
        /// The text found.
        found: String,
    },
    /// The token stood on an earlier line already.
    #[error("the token of rank {first_rank} again")]
    DuplicateToken {
        /// The rank it had there.
        first_rank: u32,
    },
    /// The file does not end with a line end.
    #[error("the last line has no line end: the file is cut short")]
    Unterminated,
    /// A byte has no token of its own, so some texts could not be encoded.
    #[error("no token for the single byte 0x{byte:02x}: {missing} of 256 are missing")]
    MissingByte {
        /// The first such byte.
        byte: u8,
        /// How many there are.
        missing: u32,
    },
    /// More tokens than a 32-bit rank can number, or more text than the table holds.
    #[error("more tokens than the table can hold")]
    TooMany,
}

/// What is wrong with an expert trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The length is not a multiple of eight.
    #[error("{remainder} bytes after the last pair: the trace is cut short or not a trace")]
    PartialPair {
        /// Bytes left over.
        remainder: u64,
    },
    /// A negative layer or expert.
    #[error("layer {layer}, expert {expert}: negative numbers are not a trace")]
    Negative {
        /// The layer.
        layer: i32,
        /// The expert.
        expert: i32,
    },
    /// A layer or expert beyond what the model has.
    #[error(
        "layer {layer}, expert {expert}: the model has experts below {expert_count} in layers \
         {layers:?}; the trace is of another model"
    )]
    OutOfRange {
        /// The layer.
        layer: u32,
        /// The expert.
        expert: u32,
        /// Layers of the model that have experts.
        layers: std::ops::Range<u32>,
        /// Experts of a layer.
        expert_count: u32,
    },
    /// The number of ids in a layer is not a multiple of the model's top-k.
    #[error("layer {layer} has {pairs} ids here, which is no multiple of top-k {top_k}")]
    UnevenLayer {
        /// The layer.
        layer: u32,
        /// The ids it has in the sweep.
        pairs: u64,
        /// Ids per position.
        top_k: u64,
    },
    /// A sweep lacks a layer, or two layers of a sweep have different position counts.
    #[error("layer {layer} has {found} positions in a sweep of {expected}")]
    PositionCount {
        /// The layer.
        layer: u32,
        /// Positions of the sweep's first layer.
        expected: u64,
        /// Positions of this layer.
        found: u64,
    },
}

/// The message for a tensor in two places; each with the offset of its data.
fn duplicate(tensor: &str, first: (&Path, u64), second: (&Path, u64)) -> String {
    let tensor = quoted(tensor);
    let ((first, first_offset), (second, second_offset)) = (first, second);
    if first == second {
        format!(
            "{}: tensor {tensor} stands twice in the header, with its data at offset \
             {first_offset} and at offset {second_offset}: the header is damaged; fetch this file \
             again",
            first.display()
        )
    } else {
        format!(
            "tensor {tensor} stands in {}, with its data at offset {first_offset}, and again in \
             {}, at offset {second_offset}: files of two checkpoints are mixed; keep one of them",
            first.display(),
            second.display()
        )
    }
}
