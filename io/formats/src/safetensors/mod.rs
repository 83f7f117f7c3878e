//! The safetensors container: eight bytes of header length, a JSON header, data.
//!
//! The readers are as strict as the format's description and agree with its
//! reference implementation on every valid file: tensors follow one another
//! without holes, nothing follows the last one, and every range has the length
//! of its shape. Beyond that they refuse a name that stands twice and more than
//! [`MAX_DIMENSIONS`](crate::MAX_DIMENSIONS) dimensions.

mod entry;
mod header;
mod index;
mod layout;
mod names;
mod weight_map;
pub mod writer;

pub use header::{HEADER_BYTES_MAX, ShardHeader};
pub use index::{ShardIndex, ShardInfo};
pub use weight_map::{MappedShard, ShardList};
