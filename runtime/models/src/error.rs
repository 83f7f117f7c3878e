//! What can go wrong between bound weights and logits.

use std::path::PathBuf;

use k3_formats::trunk::Codec;

use crate::ids::LayerIndex;
use crate::pages::StoreError;

/// Why a model could not be bound or a sweep could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint's files contradict the configuration.
    #[error(transparent)]
    Format(#[from] k3_formats::FormatError),
    /// Tensors the configuration asks for are not in the checkpoint.
    #[error(
        "{path}: {count} tensors that the configuration asks for are missing, among them {names}; \
         the snapshot is incomplete or config.json belongs to another model"
    )]
    MissingTensors {
        /// The checkpoint directory.
        path: PathBuf,
        /// How many are missing.
        count: u64,
        /// Up to three names.
        names: String,
    },
    /// A tensor has another shape or type than the configuration implies.
    #[error(
        "{path}: tensor {name} at offset {offset} is {found}, but the configuration implies \
         {expected}; config.json belongs to another model, or the shard does: compare both with \
         the published ones"
    )]
    TensorMismatch {
        /// The shard.
        path: PathBuf,
        /// Where in it the tensor starts.
        offset: u64,
        /// Full tensor name.
        name: String,
        /// What the configuration implies.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// Tensors nothing uses: the checkpoint is of another model.
    #[error(
        "{path}: {count} tensors are not part of this model, among them {names}; \
         only vision_tower.* and mm_projector.* may go unused"
    )]
    UnknownTensors {
        /// The checkpoint directory.
        path: PathBuf,
        /// How many.
        count: u64,
        /// Up to three names.
        names: String,
    },
    /// Padding beyond the head count holds values.
    #[error(
        "{path}: {name} has a non-zero value at index {index}, beyond the {heads} heads of the \
         configuration: the head count does not belong to these weights"
    )]
    PaddingNotZero {
        /// The checkpoint directory.
        path: PathBuf,
        /// Full tensor name.
        name: String,
        /// First offending index.
        index: usize,
        /// Configured heads.
        heads: usize,
    },
    /// More residual snapshots than the mix kernel takes.
    #[error(
        "{path}: attn_res_block_size and the layer count give {sources} residual sources, but at \
         most {max} are supported; check attn_res_block_size in config.json"
    )]
    TooManySnapshots {
        /// The checkpoint directory.
        path: PathBuf,
        /// Snapshots and the prefix.
        sources: usize,
        /// Upper bound.
        max: usize,
    },
    /// A layer limit outside `1..=layers`.
    #[error("--layers {limit} is outside 1..={layers}, the layers of this model")]
    LayerLimit {
        /// What was asked.
        limit: usize,
        /// What the model has.
        layers: usize,
    },
    /// A token id without an embedding row.
    #[error("token id {id} at position {position} is outside the vocabulary of {vocab_size} ids")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Absolute position in its sequence.
        position: usize,
        /// Vocabulary size.
        vocab_size: usize,
    },
    /// More positions than the state was planned for.
    #[error(
        "the sequence needs {needed} positions but was planned for {capacity}; raise --context"
    )]
    ContextFull {
        /// Positions needed.
        needed: usize,
        /// Positions planned.
        capacity: usize,
    },
    /// A state that an unfinished sweep has half-updated.
    #[error(
        "the state of sequence {sequence} was left half-updated by a sweep that did not finish; \
         reset it and start again from the prompt"
    )]
    Poisoned {
        /// Index of the sequence in the sweep.
        sequence: usize,
    },
    /// A state whose last sweep has not been committed.
    #[error(
        "the state of sequence {sequence} waits for its last sweep to be committed; commit it, or \
         reset it and start again from the prompt"
    )]
    Held {
        /// Index of the sequence in the sweep.
        sequence: usize,
    },
    /// More positions or logit rows than the workspace holds.
    #[error("a sweep of {needed} {what} does not fit the {capacity} planned; lower --chunk")]
    WorkspaceTooSmall {
        /// "positions", "held positions", "logit rows" or "context positions".
        what: &'static str,
        /// Needed.
        needed: usize,
        /// Planned.
        capacity: usize,
    },
    /// A value that is not finite where it must be.
    #[error(
        "a non-finite {what} at layer {layer}, position {position}: the weights are damaged or the \
         configuration does not belong to them; compare the files' sizes and SHA-256 with the \
         published ones and fetch again what differs"
    )]
    NonFinite {
        /// "hidden value" or "router score of expert N".
        what: String,
        /// The layer.
        layer: LayerIndex,
        /// Absolute position in its sequence.
        position: usize,
    },
    /// A logit that is not finite.
    #[error(
        "a non-finite logit at position {position}, token id {id}: the weights are damaged or the \
         configuration does not belong to them; compare the files' sizes and SHA-256 with the \
         published ones and fetch again what differs"
    )]
    NonFiniteLogit {
        /// Absolute position in its sequence.
        position: usize,
        /// First offending token id.
        id: usize,
    },

    /// A page could not be written away or read back.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A packed block does not hold what its codec says.
    #[error(
        "{}: the {codec} block at offset {offset} is none: {fault}; run without --no-checksums to \
         have every block checked, and pack the trunk again if it is damaged", path.display()
    )]
    Packed {
        /// How it should be stored.
        codec: Codec,
        /// The file.
        path: PathBuf,
        /// Its first byte.
        offset: u64,
        /// What is wrong with it.
        fault: String,
    },
}
