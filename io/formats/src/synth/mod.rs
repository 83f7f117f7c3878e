//! Synthetic checkpoints in the released layout, of any depth and expert count.
//!
//! A checkpoint is determined by a configuration, whether it has a vision
//! tower, and a seed. Nothing is stored: [`shards`] lists the tensors, and
//! [`SynthValues::fill`] gives any range of any tensor's bytes, so that threads
//! may write ranges in any order and the bytes are the same. No file is opened
//! here.
//!
//! | module | holds |
//! |---|---|
//! | `layout` | names, types, shapes and order of the tensors |
//! | `released` | the released configuration, and others derived from it |
//! | `config_file` | `config.json` as released |
//! | `statistics` | what released expert weights look like |
//! | `tables`, `values` | numbers out of a seed |

mod config_file;
mod layout;
mod released;
mod statistics;
mod tables;
mod values;

pub use config_file::config_json;
pub use layout::{ShardLayout, TensorLayout, TensorRole, Vision, shards, write_shard_index};
pub use released::{
    RELEASED_SHARD_COUNT, RELEASED_TENSOR_BYTES, RELEASED_TENSOR_COUNT, Resizing, released_config,
};
pub use statistics::{SCALE_COUNT, SCALE_STATISTICS, ScaleStatistics};
pub use values::SynthValues;

#[cfg(test)]
mod tests;
