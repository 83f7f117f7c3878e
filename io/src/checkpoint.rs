//! The files of a checkpoint directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use k3_formats::config::MAX_CONFIG_BYTES;
use k3_formats::manifest::{MANIFEST_NAME, Manifest};
use k3_formats::safetensors::MappedShard;
use k3_formats::{Identity, KimiK3Config, RANK_FILE_BYTES_MAX, ReadAt, ShardIndex, ShardList};

use crate::error::IoError;
use crate::file::{FileReader, read_small};

/// Name of the configuration.
pub const CONFIG_NAME: &str = "config.json";
/// Name of the shard index.
pub const INDEX_NAME: &str = "model.safetensors.index.json";
/// Name of the vocabulary.
pub const VOCABULARY_NAME: &str = "tiktoken.model";

/// Missing shards described in a message.
const DESCRIBED_SHARDS_MAX: usize = 10;

/// A checkpoint's files, opened: the configuration and the shards.
#[derive(Debug)]
pub struct CheckpointFiles {
    directory: PathBuf,
    /// The shards, by name.
    pub shards: Vec<FileReader>,
    /// `model.safetensors.index.json`, when there is one.
    pub index: Option<FileReader>,
}

/// What the headers and the configuration of a checkpoint say.
#[derive(Debug)]
pub struct Description {
    /// The configuration in force.
    pub config: KimiK3Config,
    /// Every tensor of every shard.
    pub index: ShardIndex,
    /// What makes this checkpoint this one.
    pub identity: Identity,
}

impl CheckpointFiles {
    /// Opens the shards of `directory`: those its index names, or without an
    /// index all `*.safetensors`. Shards that are not in `directory` are looked
    /// for in `roots`, in order.
    ///
    /// # Errors
    ///
    /// A path that is no directory, an unreadable index, and shards that are
    /// missing, all of them together.
    pub fn open(directory: &Path, roots: &[PathBuf]) -> Result<Self, IoError> {
        for root in std::iter::once(directory).chain(roots.iter().map(PathBuf::as_path)) {
            require_directory(root)?;
        }
        let index_path = directory.join(INDEX_NAME);
        let index = match index_path.try_exists() {
            Ok(false) => None,
            // Anything but "not there" is for the opening to report.
            Ok(true) | Err(_) => Some(FileReader::open(&index_path)?),
        };
        let shards = match &index {
            Some(index) => open_listed(index, directory, roots)?,
            None => open_all(directory, roots)?,
        };
        Ok(Self {
            directory: directory.to_path_buf(),
            shards,
            index,
        })
    }

    /// The shards as the format readers take them.
    pub fn views(&self) -> Vec<&dyn ReadAt> {
        self.shards
            .iter()
            .map(|shard| shard as &dyn ReadAt)
            .collect()
    }

    /// The index as the format readers take it.
    pub fn index_view(&self) -> Option<&dyn ReadAt> {
        self.index.as_ref().map(|index| index as &dyn ReadAt)
    }

    /// Path and bytes of `config.json`.
    ///
    /// # Errors
    ///
    /// [`IoError::NoSuchFile`] when there is none: no model runs on built-in
    /// constants.
    pub fn config(&self) -> Result<(PathBuf, Vec<u8>), IoError> {
        read_named(
            &self.directory,
            CONFIG_NAME,
            MAX_CONFIG_BYTES,
            "fetch it from where the weights came from, or name one with --config",
        )
    }

    /// The configuration in `config`, or the checkpoint's own, and every tensor of
    /// the shards.
    ///
    /// # Errors
    ///
    /// A configuration that cannot be read, is incomplete or of another model, and
    /// every fault of headers and index.
    pub fn describe(&self, config: Option<&Path>) -> Result<Description, IoError> {
        let (path, bytes) = match config {
            None => self.config()?,
            Some(path) => (path.to_path_buf(), read_small(path, MAX_CONFIG_BYTES)?),
        };
        // The configuration first: it tells at once whether the model is one
        // this program runs, before the shards are looked at.
        let config = KimiK3Config::parse(&path, &bytes)?;
        let index = ShardIndex::build(&self.views(), self.index_view())?;
        Ok(Description {
            identity: index.identity(&bytes),
            config,
            index,
        })
    }

    /// Path and bytes of `tiktoken.model`.
    ///
    /// # Errors
    ///
    /// [`IoError::NoSuchFile`] when there is none.
    pub fn vocabulary(&self) -> Result<(PathBuf, Vec<u8>), IoError> {
        read_vocabulary(&self.directory)
    }
}

/// The manifest in the directory of the checkpoint `identity`, with its path; `None`
/// where there is none.
///
/// # Errors
///
/// One that cannot be read, is damaged, or is of another checkpoint.
pub fn read_manifest(
    directory: &Path,
    identity: Identity,
) -> Result<Option<(PathBuf, Manifest)>, IoError> {
    let path = directory.join(MANIFEST_NAME);
    if let Ok(false) = path.try_exists() {
        return Ok(None);
    }
    let manifest = Manifest::read(&FileReader::open(&path)?)?;
    if manifest.identity() != identity {
        return Err(IoError::OtherManifest { path });
    }
    Ok(Some((path, manifest)))
}

/// Path and bytes of a directory's `tiktoken.model`.
///
/// # Errors
///
/// [`IoError::NoSuchFile`] when there is none, and those of [`read_small`].
pub fn read_vocabulary(directory: &Path) -> Result<(PathBuf, Vec<u8>), IoError> {
    require_directory(directory)?;
    read_named(
        directory,
        VOCABULARY_NAME,
        RANK_FILE_BYTES_MAX,
        "fetch it from where the weights came from (all Kimi K2 and K3 models have the same), \
         name its directory with --tokenizer, or give token ids with --ids",
    )
}

fn read_named(
    directory: &Path,
    name: &'static str,
    limit_bytes: u64,
    remedy: &'static str,
) -> Result<(PathBuf, Vec<u8>), IoError> {
    let path = directory.join(name);
    match read_small(&path, limit_bytes) {
        Ok(bytes) => Ok((path, bytes)),
        Err(IoError::System { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Err(IoError::NoSuchFile {
                directory: directory.to_path_buf(),
                name,
                remedy,
            })
        }
        Err(error) => Err(error),
    }
}

fn require_directory(path: &Path) -> Result<(), IoError> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(IoError::NotADirectory {
            path: path.to_path_buf(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(IoError::NoDirectory {
            path: path.to_path_buf(),
        }),
        Err(source) => Err(IoError::System {
            path: path.to_path_buf(),
            action: "read the directory",
            source,
        }),
    }
}

/// Every `*.safetensors` of the directories, by file name.
fn open_all(directory: &Path, roots: &[PathBuf]) -> Result<Vec<FileReader>, IoError> {
    let mut paths = Vec::new();
    for root in std::iter::once(directory).chain(roots.iter().map(PathBuf::as_path)) {
        let system = |source| IoError::System {
            path: root.to_path_buf(),
            action: "list the directory",
            source,
        };
        for entry in root.read_dir().map_err(system)? {
            let path = entry.map_err(system)?.path();
            if path.extension().is_some_and(|end| end == "safetensors") {
                paths.push(path);
            }
        }
    }
    if paths.is_empty() {
        return Err(IoError::NoShards {
            directory: directory.to_path_buf(),
        });
    }
    paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()).then_with(|| a.cmp(b)));
    paths.iter().map(|path| FileReader::open(path)).collect()
}

/// The shards an index names, each from the first directory that has it.
fn open_listed(
    index: &FileReader,
    directory: &Path,
    roots: &[PathBuf],
) -> Result<Vec<FileReader>, IoError> {
    let list = ShardList::read(index)?;
    let mut shards = Vec::with_capacity(list.shards.len());
    let mut missing = Vec::new();
    for shard in &list.shards {
        let mut places = std::iter::once(directory)
            .chain(roots.iter().map(PathBuf::as_path))
            .map(|root| root.join(&shard.name));
        match places.find(|path| path.exists()) {
            Some(path) => shards.push(FileReader::open(&path)?),
            None => missing.push(shard),
        }
    }
    if missing.is_empty() {
        return Ok(shards);
    }
    Err(IoError::MissingShards {
        index: index.label().to_path_buf(),
        missing_count: missing.len(),
        shards: missing
            .iter()
            .take(DESCRIBED_SHARDS_MAX)
            .map(|shard| describe(shard, missing_data_bytes(&list, &shards, missing.len())))
            .collect(),
    })
}

/// What a single missing shard holds: the index states the sum of all.
fn missing_data_bytes(list: &ShardList, present: &[FileReader], missing: usize) -> Option<u64> {
    if missing != 1 {
        return None;
    }
    let mut rest = list.total_bytes?;
    for shard in present {
        let mut length = [0; 8];
        shard.read_exact_at(0, &mut length).ok()?;
        let data_offset = u64::from_le_bytes(length).checked_add(8)?;
        let data_bytes = shard.len_bytes().checked_sub(data_offset)?;
        rest = rest.checked_sub(data_bytes)?;
    }
    Some(rest)
}

fn describe(shard: &MappedShard, data_bytes: Option<u64>) -> String {
    let MappedShard {
        name,
        tensor_count,
        first_tensor,
        layers,
    } = shard;
    let layers = match layers {
        Some(range) if range.start() == range.end() => format!(" of layer {}", range.start()),
        Some(range) => format!(" of layers {} to {}", range.start(), range.end()),
        None => String::new(),
    };
    let size = match data_bytes {
        Some(bytes) => format!("; its data are {bytes} bytes"),
        None => String::new(),
    };
    format!("{name}: {tensor_count} tensors{layers}, the first {first_tensor:?}{size}")
}
