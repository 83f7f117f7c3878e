//! Reads a checkpoint directory without the engine's readers.

use std::fs;
use std::path::{Path, PathBuf};

use k3_formats::{Dtype, KimiK3Config};
use serde_json::Value;

use super::Reference;
use crate::error::TestkitError;
use crate::shape::ModelShape;
use crate::tensor::{Tensor, TensorSet};

impl Reference {
    /// Opens any directory of `config.json` and `*.safetensors` files.
    ///
    /// The shards are read by a few lines of their own, so a fault in the
    /// engine's index is not shared with its oracle; the config goes through
    /// k3-formats, whose lookup rules are the definition.
    ///
    /// # Errors
    /// Unreadable or malformed files, a refused config, missing tensors and
    /// tensors of another shape.
    pub fn open(dir: &Path) -> Result<Self, TestkitError> {
        let path = dir.join("config.json");
        let config = KimiK3Config::parse(&path, &read_file(&path)?)?;
        Self::new(ModelShape::of_config(&config), &read_tensors(dir)?)
    }
}

/// All tensors of a directory's `*.safetensors` files, in file order.
///
/// # Errors
/// Unreadable files, and headers that do not describe the file.
pub fn read_tensors(dir: &Path) -> Result<TensorSet, TestkitError> {
    let io = |source| TestkitError::Io {
        path: dir.to_owned(),
        source,
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|ext| ext == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    let mut set = TensorSet::default();
    for path in files {
        let bytes = read_file(&path)?;
        for tensor in parse_shard(&bytes).ok_or_else(|| TestkitError::Malformed {
            path: path.clone(),
            reason: "not a safetensors file, or one whose header does not fit it".to_owned(),
        })? {
            set.push(tensor);
        }
    }
    Ok(set)
}

fn read_file(path: &Path) -> Result<Vec<u8>, TestkitError> {
    fs::read(path).map_err(|source| TestkitError::Io {
        path: path.to_owned(),
        source,
    })
}

fn parse_shard(file: &[u8]) -> Option<Vec<Tensor>> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: Value = serde_json::from_slice(rest.get(..length)?).ok()?;
    let data = &rest[length..];
    let mut tensors = Vec::new();
    for (name, entry) in header.as_object()? {
        if name == "__metadata__" {
            continue;
        }
        let numbers = |key: &str| -> Option<Vec<u64>> {
            entry
                .get(key)?
                .as_array()?
                .iter()
                .map(Value::as_u64)
                .collect()
        };
        let offsets = numbers("data_offsets")?;
        let [begin, end] = offsets[..] else {
            return None;
        };
        let (begin, end) = (usize::try_from(begin).ok()?, usize::try_from(end).ok()?);
        tensors.push(Tensor {
            name: name.clone(),
            dtype: Dtype::from_name(entry.get("dtype")?.as_str()?)?,
            shape: numbers("shape")?,
            bytes: data.get(begin..end)?.to_vec(),
        });
    }
    Some(tensors)
}
