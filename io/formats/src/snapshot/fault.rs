//! What can be wrong with a snapshot.

use super::{SNAPSHOT_PAYLOAD_BYTES_MAX, SNAPSHOT_POSITIONS_MAX};

/// What is wrong with a sequence snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotFault {
    /// Not a snapshot.
    #[error("does not begin with \"k3-snaps\": not a sequence snapshot")]
    Magic,
    /// Another version of the layout.
    #[error("version {found}, but this program reads versions up to {expected}")]
    Version {
        /// The newest version that is read.
        expected: u32,
        /// The version of the file.
        found: u32,
    },
    /// Bytes that must be zero are not.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// A form of attention that does not exist.
    #[error("form of attention {found}, which is neither 0 (latent) nor 1 (expanded)")]
    Form {
        /// The code found.
        found: u32,
    },
    /// No snapshot can stand there.
    #[error("position {found}, outside 1 to {SNAPSHOT_POSITIONS_MAX}")]
    Position {
        /// The position found.
        found: u64,
    },
    /// Ids beyond the state, or an answer, that cannot be.
    #[error(
        "{pending} ids beyond a position of {position} and an answer of {answer} ids make no \
         conversation of at most {SNAPSHOT_POSITIONS_MAX} ids"
    )]
    Conversation {
        /// Ids that the state has consumed.
        position: u64,
        /// Ids beyond it.
        pending: u64,
        /// Ids of the answer.
        answer: u64,
    },
    /// A conversation where the state of a prefix should be.
    #[error("a saved conversation, with {pending} ids beyond its state, and not a prefix alone")]
    NotPlain {
        /// Ids beyond the state.
        pending: u64,
    },
    /// No state has that length.
    #[error("{found} bytes of state, outside 1 to {SNAPSHOT_PAYLOAD_BYTES_MAX}")]
    PayloadBytes {
        /// The length found.
        found: u64,
    },
    /// Fewer bytes than the shortest snapshot has.
    #[error("{found} bytes, where the shortest sequence snapshot has {expected}")]
    TooShort {
        /// Bytes of the shortest.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The file is longer or shorter than its header says.
    #[error("the header describes a file of {expected} bytes, but the file has {found}")]
    Length {
        /// Length by the header.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// Header or token ids are not what was written.
    #[error("the hash of header and token ids is {expected}, but they hash to {found}")]
    HeaderHash {
        /// Stated, in hexadecimal.
        expected: String,
        /// Found, in hexadecimal.
        found: String,
    },
    /// A snapshot of another checkpoint, or of a run with other settings.
    #[error("it was made with {what} {found}, but this run has {expected}")]
    Binding {
        /// What differs.
        what: &'static str,
        /// What this run has.
        expected: String,
        /// What the file states.
        found: String,
    },
    /// It has consumed fewer or more ids than it should.
    #[error("it has consumed {found} token ids, where {expected} were expected")]
    TokenCount {
        /// Ids asked for.
        expected: u64,
        /// Ids of the file.
        found: u64,
    },
    /// It has consumed other ids than it should.
    #[error("token id {index} is {found}, where {expected} was expected")]
    Token {
        /// Which id, counted from 0.
        index: u64,
        /// The id asked for.
        expected: u32,
        /// The id of the file.
        found: u32,
    },
    /// A piece of the state is not what was written.
    #[error("the hash of chunk {index} of the state is {expected}, but it hashes to {found}")]
    ChunkHash {
        /// Which piece, counted from 0.
        index: u64,
        /// Stated, in hexadecimal.
        expected: String,
        /// Found, in hexadecimal.
        found: String,
    },
    /// The file does not end as one that was written to its end.
    #[error("the end is {found}, where {expected} was expected: it was not written to its end")]
    End {
        /// The last bytes by the header, in hexadecimal.
        expected: String,
        /// The last bytes of the file, in hexadecimal.
        found: String,
    },
}
