//! Tiny checkpoints in the released layout, made from a seed.

mod config;
mod generate;
mod shards;
mod spec;
mod tokenizer;

use std::fs;
use std::path::{Path, PathBuf};

use k3_formats::{KimiK3Config, MemoryFile};

pub use shards::FileImage;
pub use spec::{Dtypes, ExpertOrder, ExpertPlacement, FloatDtype, Layout, NamePrefix, TinySpec};
pub use tokenizer::TinyTokenizer;

use crate::error::TestkitError;
use crate::reference::Reference;
use crate::tensor::{Tensor, TensorSet};

/// A checkpoint in memory, as its files and as its tensors.
#[derive(Clone, Debug)]
pub struct TinyCheckpoint {
    /// What it was made from.
    pub spec: TinySpec,
    /// config.json as the engine reads it.
    pub config: KimiK3Config,
    /// Every tensor by its full name, fillers included.
    pub tensors: TensorSet,
    /// config.json, the shards and the index if there is one.
    pub files: Vec<FileImage>,
    /// Where it was written, if it was.
    pub dir: Option<PathBuf>,
}

impl TinySpec {
    /// Makes the checkpoint in memory.
    ///
    /// # Panics
    /// When the spec contradicts itself (for example top-k above the experts).
    #[must_use]
    pub fn generate(&self) -> TinyCheckpoint {
        self.generate_with(|_| {})
    }

    /// Makes a checkpoint with a fault or a special value in it: `edit` gets
    /// the tensors of each shard, in file order, and may change, drop, add or
    /// reorder them. Files, index and in-memory tensors all follow.
    ///
    /// # Panics
    /// As [`TinySpec::generate`]; also when a tensor's bytes no longer fit its
    /// shape, or a name stands twice.
    #[must_use]
    pub fn generate_with(&self, edit: impl FnMut(&mut Vec<Tensor>)) -> TinyCheckpoint {
        self.check();
        let mut shards = shards::distribute(self, generate::groups(self));
        shards.iter_mut().for_each(edit);
        let config = format!("{:#}\n", config::config_json(self)).into_bytes();
        let parsed = KimiK3Config::parse(Path::new("config.json"), &config)
            .expect("a spec that passed its check makes a valid config");
        let mut files = vec![FileImage {
            name: "config.json".to_owned(),
            bytes: config,
        }];
        for (index, tensors) in shards.iter().enumerate() {
            files.push(FileImage {
                name: shards::shard_name(index, shards.len()),
                bytes: shards::shard_bytes(tensors, self.layout.odd_offsets),
            });
        }
        if self.layout.index {
            files.push(FileImage {
                name: "model.safetensors.index.json".to_owned(),
                bytes: shards::index_json(&shards),
            });
        }
        let mut tensors = TensorSet::default();
        for tensor in shards.into_iter().flatten() {
            tensors.push(tensor);
        }
        TinyCheckpoint {
            spec: self.clone(),
            config: parsed,
            tensors,
            files,
            dir: None,
        }
    }

    /// Makes the checkpoint and writes its files into `dir`, which is created
    /// when absent.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_to(&self, dir: &Path) -> Result<TinyCheckpoint, TestkitError> {
        let mut checkpoint = self.generate();
        checkpoint.write_to(dir)?;
        Ok(checkpoint)
    }
}

/// Writes files into `dir`, which is created when absent.
///
/// # Errors
/// A file that cannot be written.
pub fn write_files(dir: &Path, files: &[FileImage]) -> Result<(), TestkitError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TestkitError::Io { path, source }
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    for file in files {
        let path = dir.join(&file.name);
        fs::write(&path, &file.bytes).map_err(failed(&path))?;
    }
    Ok(())
}

impl TinyCheckpoint {
    /// Writes the files into `dir`, which is created when absent.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_to(&mut self, dir: &Path) -> Result<(), TestkitError> {
        write_files(dir, &self.files)?;
        self.dir = Some(dir.to_owned());
        Ok(())
    }

    /// The full name of a decoder tensor, given what follows the prefix:
    /// `layers.0.self_attn.A_log`, `embed_tokens.weight`.
    #[must_use]
    pub fn name(&self, tail: &str) -> String {
        format!("{}{tail}", self.spec.layout.prefix.model())
    }

    /// Values of a BF16 or F32 tensor, by full name.
    ///
    /// # Panics
    /// When there is no such tensor or it holds no floats.
    #[must_use]
    pub fn f32s(&self, name: &str) -> Vec<f32> {
        self.tensor(name).to_f32()
    }

    /// Stored bytes of a tensor, by full name.
    ///
    /// # Panics
    /// When there is no such tensor.
    #[must_use]
    pub fn bytes(&self, name: &str) -> &[u8] {
        &self.tensor(name).bytes
    }

    fn tensor(&self, name: &str) -> &Tensor {
        let tensor = self.tensors.get(name);
        tensor.unwrap_or_else(|| panic!("the checkpoint has no tensor {name}"))
    }

    /// The shard files, for readers that take positional reads.
    #[must_use]
    pub fn shard_files(&self) -> Vec<MemoryFile> {
        self.files
            .iter()
            .filter(|file| file.name.ends_with(".safetensors"))
            .map(|file| MemoryFile::new(&file.name, file.bytes.clone()))
            .collect()
    }

    /// The index file, if there is one.
    #[must_use]
    pub fn index_file(&self) -> Option<MemoryFile> {
        self.files
            .iter()
            .find(|file| file.name == "model.safetensors.index.json")
            .map(|file| MemoryFile::new(&file.name, file.bytes.clone()))
    }

    /// The oracle bound to these tensors.
    ///
    /// # Panics
    /// When a tensor was edited away or into another shape.
    #[must_use]
    pub fn reference(&self) -> Reference {
        Reference::new(self.spec.shape.clone(), &self.tensors)
            .expect("every tensor the config calls for")
    }
}
