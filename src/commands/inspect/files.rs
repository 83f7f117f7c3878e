//! The files of a checkpoint, as far as they are there.

use std::path::{Path, PathBuf};

use k3_formats::config::MAX_CONFIG_BYTES;
use k3_formats::safetensors::MappedShard;
use k3_formats::{KimiK3Config, ShardList};
use k3_io::{CONFIG_NAME, FileReader, INDEX_NAME, IoError, VOCABULARY_NAME, read_small};

use crate::error::CliError;

/// A shard that could be opened.
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) reader: FileReader,
}

/// What lies in the directories.
pub(super) struct Files {
    pub(super) directory: PathBuf,
    /// Configuration and its bytes, if it is there and of this model.
    pub(super) config: Option<(KimiK3Config, Vec<u8>)>,
    pub(super) index: Option<FileReader>,
    pub(super) shards: Vec<Shard>,
    /// Shards that the index names and no directory has.
    pub(super) missing_shards: Vec<MappedShard>,
    pub(super) has_vocabulary: bool,
    pub(super) problems: Vec<String>,
}

impl Files {
    /// Opens what can be opened.
    ///
    /// # Errors
    ///
    /// A directory that cannot be listed.
    pub(super) fn gather(
        directory: &Path,
        roots: &[PathBuf],
        config: Option<&Path>,
    ) -> Result<Self, CliError> {
        let mut files = Self {
            directory: directory.to_owned(),
            config: None,
            index: None,
            shards: Vec::new(),
            missing_shards: Vec::new(),
            has_vocabulary: directory.join(VOCABULARY_NAME).exists(),
            problems: Vec::new(),
        };
        let config = config.map_or_else(|| directory.join(CONFIG_NAME), Path::to_owned);
        files.read_config(&config);
        let places: Vec<&Path> = std::iter::once(directory)
            .chain(roots.iter().map(PathBuf::as_path))
            .collect();
        let index = directory.join(INDEX_NAME);
        let list = if index.exists() {
            files.read_index(&index)
        } else {
            None
        };
        match list {
            Some(list) => files.open_listed(&list, &places),
            None => files.open_all(&places)?,
        }
        Ok(files)
    }

    fn read_config(&mut self, path: &Path) {
        let read = read_small(path, MAX_CONFIG_BYTES).map_err(|error| error.to_string());
        let parsed = read.and_then(|bytes| {
            let config = KimiK3Config::parse(path, &bytes).map_err(|error| error.to_string());
            config.map(|config| (config, bytes))
        });
        match parsed {
            Ok(found) => self.config = Some(found),
            Err(reason) => self.problems.push(reason),
        }
    }

    fn read_index(&mut self, path: &Path) -> Option<ShardList> {
        let read = FileReader::open(path)
            .map_err(|error| error.to_string())
            .and_then(|index| match ShardList::read(&index) {
                Ok(list) => Ok((index, list)),
                Err(error) => Err(error.to_string()),
            });
        match read {
            Ok((index, list)) => {
                self.index = Some(index);
                Some(list)
            }
            Err(reason) => {
                self.problems.push(reason);
                None
            }
        }
    }

    fn open_listed(&mut self, list: &ShardList, places: &[&Path]) {
        for shard in &list.shards {
            let mut paths = places.iter().map(|place| place.join(&shard.name));
            match paths.find(|path| path.exists()) {
                Some(path) => self.open(path, shard.name.clone()),
                None => self.missing_shards.push(shard.clone()),
            }
        }
    }

    fn open_all(&mut self, places: &[&Path]) -> Result<(), CliError> {
        let mut paths = Vec::new();
        for place in places {
            let system = |source| IoError::System {
                path: place.to_path_buf(),
                action: "list the directory",
                source,
            };
            for entry in place.read_dir().map_err(system)? {
                let path = entry.map_err(system)?.path();
                if path.extension().is_some_and(|end| end == "safetensors") {
                    paths.push(path);
                }
            }
        }
        if paths.is_empty() {
            let directory = self.directory.clone();
            let none = IoError::NoShards { directory };
            self.problems.push(none.to_string());
        }
        paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
        for path in paths {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            self.open(path, name.unwrap_or_default());
        }
        Ok(())
    }

    fn open(&mut self, path: PathBuf, name: String) {
        match FileReader::open(&path) {
            Ok(reader) => self.shards.push(Shard { name, reader }),
            Err(error) => self.problems.push(error.to_string()),
        }
    }
}
