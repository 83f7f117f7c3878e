//! Headers of a checkpoint in the released layout, without the data: all
//! 497,220 tensors of the released model over files that need no disk.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::config::KimiK3Config;
use crate::error::FormatError;
use crate::read_at::ReadAt;
use crate::synth::{self, Vision};

pub use crate::synth::{
    RELEASED_SHARD_COUNT, RELEASED_TENSOR_BYTES, RELEASED_TENSOR_COUNT,
    ShardLayout as ReplicaShard, TensorLayout as ReplicaTensor, released_config,
};

impl ReplicaShard {
    /// A file with this header and a hole for the data.
    pub fn open(&self) -> VirtualShard {
        let header = self.header();
        VirtualShard {
            label: PathBuf::from(&self.name),
            file_bytes: header.len() as u64 + self.data_bytes(),
            header,
        }
    }
}

/// A shard whose data are not there: they read as zeros.
#[derive(Debug, Clone)]
pub struct VirtualShard {
    label: PathBuf,
    header: Vec<u8>,
    file_bytes: u64,
}

impl ReadAt for VirtualShard {
    fn label(&self) -> &Path {
        &self.label
    }

    fn len_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let wanted_bytes = buffer.len() as u64;
        let available = self.file_bytes.saturating_sub(offset);
        if wanted_bytes > available {
            return Err(FormatError::ShortRead {
                path: self.label.clone(),
                offset,
                wanted_bytes,
                got_bytes: available,
            });
        }
        buffer.fill(0);
        let stored = usize::try_from(offset)
            .ok()
            .and_then(|start| self.header.get(start..))
            .unwrap_or_default();
        let count = stored.len().min(buffer.len());
        buffer[..count].copy_from_slice(&stored[..count]);
        Ok(())
    }
}

/// The shards of a model with this configuration, in order. With
/// [`released_config`] it is the full replica, vision tower included.
pub fn shards(config: &KimiK3Config) -> impl Iterator<Item = ReplicaShard> {
    synth::shards(config, Vision::Included)
}

/// Writes the index file of [`shards`].
///
/// # Errors
///
/// Those of `out`.
pub fn write_replica_index<W: Write>(config: &KimiK3Config, out: W) -> io::Result<()> {
    synth::write_shard_index(config, Vision::Included, out)
}
