//! Outputs that would overwrite what a run reads, or each other.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use k3_config::Settings;
use k3_io::{CONFIG_NAME, INDEX_NAME, VOCABULARY_NAME};
use k3_runtime::{Checkpoint, Trunk};

use super::request::Request;
use crate::cli::args::{GenerateArgs, ModelArgs, OutputArgs};
use crate::cli::memory::MemoryArgs;
use crate::commands::running::setup::Setup;
use crate::error::CliError;
use crate::settings;
use crate::vocabulary::SPECIALS_FILE;

/// Extension of shards.
const SHARD_EXTENSION: &str = "safetensors";
/// The other names that the files of a checkpoint have.
const CHECKPOINT_NAMES: [&str; 4] = [CONFIG_NAME, INDEX_NAME, VOCABULARY_NAME, SPECIALS_FILE];
/// Standard streams, as files they may have been redirected to.
const STREAMS: [(&str, &str); 2] = [
    ("standard output", "/dev/stdout"),
    ("standard error", "/dev/stderr"),
];

/// What a run reads.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Files, and what they are.
    files: Vec<(&'static str, PathBuf)>,
    /// Directories in which files of a checkpoint are looked for.
    directories: Vec<PathBuf>,
}

impl Inputs {
    /// Everything that a run of `setup` has been read from or will read, but for
    /// its prompts. `model` and `memory` are what it was made from.
    pub(crate) fn of_setup(setup: &Setup, model: &ModelArgs, memory: &MemoryArgs) -> Self {
        let roots = [&setup.settings.root, &setup.settings.trunk]
            .into_iter()
            .flatten();
        let roots = roots.flat_map(|roots| roots.value.0.iter().cloned());
        let mut directories = vec![setup.model_dir.clone()];
        directories.extend(roots);
        let mut files = weights(&setup.checkpoint);
        if let Some(place) = &setup.settings.tokenizer {
            let directory = if place.value.is_dir() {
                Some(place.value.as_path())
            } else {
                files.push(("the vocabulary", place.value.clone()));
                place.value.parent()
            };
            directories.extend(directory.map(|path| in_here(path).to_owned()));
        }
        for directory in &directories {
            files.extend(parts_of(directory).map(|part| ("a file of the checkpoint", part)));
        }
        let settings = settings::file(memory.settings.as_deref());
        let inputs = Self { files, directories };
        let inputs = inputs.and("the configuration", model.config.clone());
        inputs.and("the settings", settings)
    }

    /// And the prompt of `args`.
    pub(super) fn of(request: &Request, args: &GenerateArgs) -> Self {
        let (model, memory, prompt) = (&args.model, &args.memory, &args.prompt);
        let inputs = Self::of_setup(&request.setup, model, memory);
        let inputs = inputs.and("the prompt", prompt.prompt_file.clone());
        // A conversation may be saved where it came from.
        let answer = &args.answer;
        let place = |path: &Option<PathBuf>| Place::of(path.as_deref()?);
        let same = place(&answer.load_state) == place(&answer.save_state);
        let loaded = answer.load_state.clone().filter(|_| !same);
        let inputs = inputs.and("the saved conversation", loaded);
        inputs.and("the token ids", prompt.ids_file.clone())
    }

    /// And `path`, if there is one: `what` it is.
    pub(crate) fn and(mut self, what: &'static str, path: Option<PathBuf>) -> Self {
        self.files.extend(path.map(|path| match path.to_str() {
            Some("-") => (what, PathBuf::from("/dev/stdin")),
            _ => (what, path),
        }));
        self
    }

    /// Files that are read, and nothing else.
    pub(crate) fn of_files(files: &[PathBuf]) -> Self {
        let files = files.iter();
        Self {
            files: files.map(|file| ("a file", file.clone())).collect(),
            directories: Vec::new(),
        }
    }

    /// The files of `checkpoint` and of the directories it was looked for in.
    pub(crate) fn of_checkpoint(checkpoint: &Checkpoint, settings: &Settings) -> Self {
        let roots = [&settings.root, &settings.trunk].into_iter().flatten();
        let roots = roots.flat_map(|roots| roots.value.0.iter().cloned());
        let mut directories = vec![checkpoint.path().to_owned()];
        directories.extend(roots);
        let mut files = weights(checkpoint);
        for directory in &directories {
            files.extend(parts_of(directory).map(|part| ("a file of the checkpoint", part)));
        }
        Self { files, directories }
    }
}

/// Every file that weights are read from.
fn weights(checkpoint: &Checkpoint) -> Vec<(&'static str, PathBuf)> {
    let shards = checkpoint.shard_paths();
    let shards = shards.map(|shard| ("a shard", shard.to_owned()));
    let trunk = checkpoint.trunk().map_or(&[][..], Trunk::paths);
    let trunk = trunk.iter().map(|file| ("the packed trunk", file.clone()));
    shards.chain(trunk).collect()
}

/// Files of `directory` that have the name of a part of a checkpoint.
fn parts_of(directory: &Path) -> impl Iterator<Item = PathBuf> {
    // A directory that cannot be listed has been refused where it matters.
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| is_part_name(path))
}

fn is_part_name(path: &Path) -> bool {
    let lower = |text: &std::ffi::OsStr| text.to_string_lossy().to_ascii_lowercase();
    let shard = path
        .extension()
        .is_some_and(|extension| lower(extension) == SHARD_EXTENSION);
    let name = path.file_name().map(lower).unwrap_or_default();
    shard || CHECKPOINT_NAMES.contains(&name.as_str())
}

/// Refuses outputs that are inputs, that would become part of the checkpoint,
/// or that are one file. Nothing has been opened for writing yet.
///
/// # Errors
///
/// The first such output, with what it collides with.
pub(super) fn check(
    args: &OutputArgs,
    save_state: Option<&Path>,
    inputs: &Inputs,
) -> Result<(), CliError> {
    let named = [
        ("--save-state", save_state),
        ("--out", args.out.as_deref()),
        ("--dump-logits", args.dump_logits.as_deref()),
        ("--dump-trace", args.dump_trace.as_deref()),
    ];
    let given = named
        .into_iter()
        .filter_map(|(option, path)| Some((option, path?)));
    check_all(given, inputs)
}

/// The same for outputs that options, or arguments, name.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_all<'a>(
    given: impl Iterator<Item = (&'static str, &'a Path)>,
    inputs: &Inputs,
) -> Result<(), CliError> {
    let mut taken: Vec<_> = STREAMS
        .iter()
        .filter_map(|(what, path)| Some((*what, Place::of(Path::new(path))?)))
        .collect();
    for (option, path) in given {
        // Devices and pipes are no places: several may go to /dev/null.
        let Some(place) = Place::of(path) else {
            continue;
        };
        check_inputs(option, path, &place, inputs)?;
        if let Some((first, _)) = taken.iter().find(|(_, other)| *other == place) {
            return Err(CliError::SameOutput {
                first,
                second: option,
                path: path.to_owned(),
            });
        }
        taken.push((option, place));
    }
    Ok(())
}

/// The same for a command's only output.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_one(
    option: &'static str,
    path: &Path,
    inputs: &Inputs,
) -> Result<(), CliError> {
    Place::of(path).map_or(Ok(()), |place| check_inputs(option, path, &place, inputs))
}

fn check_inputs(
    option: &'static str,
    path: &Path,
    place: &Place,
    inputs: &Inputs,
) -> Result<(), CliError> {
    let same = |(_, input): &&(&str, PathBuf)| Place::of(input).as_ref() == Some(place);
    if let Some((what, input)) = inputs.files.iter().find(same) {
        return Err(CliError::OutputIsInput {
            option,
            path: path.to_owned(),
            what,
            input: input.clone(),
        });
    }
    let directory = parent_of(path).and_then(Place::of_directory);
    let inside = |candidate: &&PathBuf| {
        directory.is_some() && Place::of_directory((*candidate).clone()) == directory
    };
    match inputs.directories.iter().find(inside) {
        Some(directory) if is_part_name(path) => Err(CliError::OutputInCheckpoint {
            option,
            path: path.to_owned(),
            directory: directory.clone(),
        }),
        _ => Ok(()),
    }
}

/// Where a file is, whatever it is called.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Device and inode: the same for links, symbolic and hard.
    Existing { device: u64, inode: u64 },
    /// Not there yet: the directory it would be in, and its name.
    New { path: PathBuf },
}

impl Place {
    /// The place of a regular file, or of one that would be created.
    fn of(path: &Path) -> Option<Self> {
        match path.metadata() {
            Ok(metadata) => metadata.is_file().then(|| Self::existing(&metadata)),
            Err(_) => Some(Self::New {
                path: parent_of(path)?.join(path.file_name()?),
            }),
        }
    }

    fn of_directory(path: PathBuf) -> Option<Self> {
        Some(Self::existing(&path.metadata().ok()?))
    }

    fn existing(metadata: &Metadata) -> Self {
        Self::Existing {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// The directory a file is in, without links.
fn parent_of(path: &Path) -> Option<PathBuf> {
    in_here(path.parent()?).canonicalize().ok()
}

/// The parent of a bare name is the current directory.
fn in_here(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_place_is_the_same_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("soft")).unwrap();
        fs::write(at("other"), "x").unwrap();
        let file = Place::of(&at("file"));
        for name in ["hard", "soft", "./file"] {
            assert_eq!(Place::of(&at(name)), file, "{name}");
        }
        assert_ne!(Place::of(&at("other")), file);
        assert_eq!(Place::of(&at("new")), Place::of(&at("./new")));
        assert_ne!(Place::of(&at("new")), Place::of(&at("newer")));
        assert_eq!(Place::of(Path::new("/dev/null")), None);
        assert_eq!(Place::of(dir.path()), None);
    }

    #[test]
    fn parts_of_a_checkpoint_are_known_by_name() {
        for name in [
            "a/model-00001-of-00002.safetensors",
            "config.json",
            "X.SAFETENSORS",
        ] {
            assert!(is_part_name(Path::new(name)), "{name}");
        }
        for name in CHECKPOINT_NAMES {
            assert!(is_part_name(Path::new(name)), "{name}");
        }
        for name in ["run.json", "safetensors", "logits.bin", "/"] {
            assert!(!is_part_name(Path::new(name)), "{name}");
        }
    }
}
