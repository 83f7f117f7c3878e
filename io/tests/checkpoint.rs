//! Files and checkpoint directories, whole and broken.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use k3_formats::safetensors::writer::{HeaderBuilder, HeaderPadding, write_index};
use k3_formats::{Dtype, FormatError, ReadAt, ShardIndex};
use k3_io::{CheckpointFiles, FileReader, INDEX_NAME, IoError, read_small, read_vocabulary};

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

fn layer_name(layer: usize) -> String {
    format!("language_model.model.layers.{layer}.input_layernorm.weight")
}

fn shard_name(number: usize) -> String {
    format!("model-{number:05}-of-000003.safetensors")
}

/// Three shards of one tensor each (10, 20 and 30 bytes), layer L in shard
/// L + 1, and their index.
fn checkpoint() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut entries = Vec::new();
    for number in 1..=3 {
        let mut header = HeaderBuilder::new();
        header.tensor(layer_name(number - 1), Dtype::U8, &[10 * number as u64]);
        let file = header.build_file(HeaderPadding::Spaces(1), &vec![1; 10 * number]);
        write(&folder.path().join(shard_name(number)), &file);
        entries.push((layer_name(number - 1), shard_name(number)));
    }
    let mut index = Vec::new();
    let pairs = entries
        .iter()
        .map(|(name, shard)| (name.as_str(), shard.as_str()));
    write_index(&mut index, 60, pairs).unwrap();
    write(&folder.path().join(INDEX_NAME), &index);
    folder
}

fn open_error(folder: &Path) -> IoError {
    CheckpointFiles::open(folder, &[]).unwrap_err()
}

#[test]
fn a_whole_checkpoint_opens_with_and_without_its_index() {
    let folder = checkpoint();
    let files = CheckpointFiles::open(folder.path(), &[]).unwrap();
    let index = ShardIndex::build(&files.views(), files.index_view()).unwrap();
    assert_eq!(index.get(&layer_name(2)).unwrap().bytes, 30);
    fs::remove_file(folder.path().join(INDEX_NAME)).unwrap();
    let files = CheckpointFiles::open(folder.path(), &[]).unwrap();
    assert!(files.index.is_none());
    let names: Vec<String> = files.shards.iter().map(ReadAt::file_name).collect();
    assert_eq!(names, [shard_name(1), shard_name(2), shard_name(3)]);
}

#[test]
fn a_missing_shard_is_named_with_its_layer_and_size() {
    let folder = checkpoint();
    fs::remove_file(folder.path().join(shard_name(2))).unwrap();
    let error = open_error(folder.path());
    let message = error.to_string();
    assert!(
        matches!(
            error,
            IoError::MissingShards {
                missing_count: 1,
                ..
            }
        ),
        "{message}"
    );
    for part in [
        &shard_name(2),
        "of layer 1",
        "20 bytes",
        "fetch them again",
        INDEX_NAME,
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    fs::remove_file(folder.path().join(shard_name(3))).unwrap();
    let message = open_error(folder.path()).to_string();
    assert!(
        message.contains(&shard_name(2)) && message.contains(&shard_name(3)),
        "{message}"
    );
}

#[test]
fn a_shard_may_lie_in_another_root() {
    let folder = checkpoint();
    let other = tempfile::tempdir().unwrap();
    let name = shard_name(3);
    fs::rename(folder.path().join(&name), other.path().join(&name)).unwrap();
    let roots = [other.path().to_path_buf()];
    let files = CheckpointFiles::open(folder.path(), &roots).unwrap();
    ShardIndex::build(&files.views(), files.index_view()).unwrap();
    assert_eq!(files.shards[2].label(), other.path().join(name));
    let gone = [other.path().join("gone")];
    let error = CheckpointFiles::open(folder.path(), &gone).unwrap_err();
    assert!(matches!(error, IoError::NoDirectory { .. }), "{error}");
}

#[test]
fn paths_that_are_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_error(&folder.path().join("gone"));
    assert!(matches!(error, IoError::NoDirectory { .. }), "{error}");
    let file = folder.path().join("file");
    write(&file, b"x");
    let error = open_error(&file);
    assert!(matches!(error, IoError::NotADirectory { .. }), "{error}");
    let error = open_error(folder.path());
    assert!(matches!(error, IoError::NoShards { .. }), "{error}");
    write(
        &folder.path().join(INDEX_NAME),
        b"{\"weight_map\":{\"a\":\"../x\"}}",
    );
    let error = open_error(folder.path());
    assert!(
        matches!(error, IoError::Format(FormatError::Index { .. })),
        "{error}"
    );
    fs::remove_file(folder.path().join(INDEX_NAME)).unwrap();
    fs::create_dir(folder.path().join("d.safetensors")).unwrap();
    let error = open_error(folder.path());
    assert!(matches!(error, IoError::NotAFile { .. }), "{error}");
}

#[test]
fn configuration_and_vocabulary_are_asked_for_by_name() {
    let folder = checkpoint();
    let files = CheckpointFiles::open(folder.path(), &[]).unwrap();
    let no_config = files.config().unwrap_err();
    assert!(
        matches!(no_config, IoError::NoSuchFile { .. }),
        "{no_config}"
    );
    let message = no_config.to_string();
    assert!(
        message.contains("config.json") && message.contains("--config"),
        "{message}"
    );
    let message = files.vocabulary().unwrap_err().to_string();
    assert!(
        message.contains("tiktoken.model") && message.contains("--ids"),
        "{message}"
    );

    write(&folder.path().join("config.json"), b"");
    let error = files.config().unwrap_err();
    assert!(matches!(error, IoError::Empty { .. }), "{error}");
    write(&folder.path().join("config.json"), b"{}");
    let (path, bytes) = files.config().unwrap();
    assert_eq!(
        (path, bytes.as_slice()),
        (folder.path().join("config.json"), &b"{}"[..])
    );
    write(&folder.path().join("tiktoken.model"), b"IQ== 0\n");
    assert_eq!(read_vocabulary(folder.path()).unwrap().1, b"IQ== 0\n");
}

#[test]
fn small_files_are_capped_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = read_small(&path, 100).unwrap_err();
    assert!(
        matches!(error, IoError::TooLarge { found_bytes, limit_bytes: 100, .. }
            if found_bytes == 1 << 40),
        "{error}"
    );
    assert!(matches!(
        read_small(folder.path(), 9),
        Err(IoError::NotAFile { .. })
    ));
}

#[test]
fn reads_beyond_four_gibibytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let length = (5_u64 << 30) + 7;
    let file = File::create(&path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"end", length - 3).unwrap();
    file.write_all_at(b"mid", (1 << 31) + 1).unwrap();
    let reader = FileReader::open(&path).unwrap();
    assert_eq!(reader.len_bytes(), length);
    let mut buffer = [0; 3];
    reader.read_exact_at(length - 3, &mut buffer).unwrap();
    assert_eq!(&buffer, b"end");
    reader.read_exact_at((1 << 31) + 1, &mut buffer).unwrap();
    assert_eq!(&buffer, b"mid");
}

#[test]
fn a_file_cut_while_open_gives_an_error_not_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("shard");
    write(&path, &[7; 8192]);
    let reader = FileReader::open(&path).unwrap();
    reader.recheck_len().unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let mut buffer = [0; 200];
    let error = reader.read_exact_at(4000, &mut buffer).unwrap_err();
    assert!(
        matches!(
            error,
            FormatError::ShortRead {
                offset: 4000,
                wanted_bytes: 200,
                got_bytes: 96,
                ..
            }
        ),
        "{error}"
    );
    let message = error.to_string();
    assert!(
        message.contains("shard") && message.contains("truncated while in use"),
        "{message}"
    );
    let error = reader.recheck_len().unwrap_err();
    assert!(
        matches!(
            error,
            IoError::LengthChanged {
                opened_bytes: 8192,
                current_bytes: 4096,
                ..
            }
        ),
        "{error}"
    );
}
