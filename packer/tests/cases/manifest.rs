//! `k3-pack manifest`: what it covers, replaces and refuses.

use std::fs;
use std::path::Path;

use k3_formats::manifest::MANIFEST_NAME;
use k3_formats::{Manifest, MemoryFile};

use crate::command::{k3_pack, output};
use crate::support::{made, names};

fn manifest(path: &Path) -> Manifest {
    let bytes = fs::read(path).unwrap();
    Manifest::read(&MemoryFile::new(path, bytes)).unwrap()
}

#[test]
fn every_byte_of_a_checkpoint_is_hashed_and_the_same_one_gives_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let model = made(dir.path());
    fs::write(model.join("tiktoken.model"), "AA== 0\n").unwrap();
    fs::write(model.join("notes.md"), "not a part").unwrap();
    fs::write(model.join("k3-fetch.json"), "{}").unwrap();
    fs::write(model.join(".hidden.json"), "{}").unwrap();
    let (code, stdout, stderr) = output(k3_pack().arg("manifest").arg(&model));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    for part in ["identity", "root", "hashed", "ranges", "GB/s"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let path = model.join(MANIFEST_NAME);
    let first = manifest(&path);
    let covered: Vec<_> = first.files().iter().map(|file| file.name.clone()).collect();
    let mut wanted = names(&model);
    wanted.retain(|name| {
        !["notes.md", "k3-fetch.json", ".hidden.json", MANIFEST_NAME].contains(&name.as_str())
    });
    let mut sorted = covered.clone();
    sorted.sort();
    assert_eq!(sorted, wanted);
    for range in first.ranges() {
        let bytes = fs::read(model.join(&covered[range.file])).unwrap();
        let start = usize::try_from(range.offset).unwrap();
        let mut digest = k3_io::Digest::new(k3_io::HashKind::Blake3);
        digest.update(&bytes[start..start + usize::try_from(range.bytes).unwrap()]);
        assert_eq!(digest.finish(), range.hash, "{}", range.content);
    }
    // Not over what is there, unless asked to; with any number of threads.
    let (code, _, stderr) = output(k3_pack().arg("manifest").arg(&model));
    assert!(code == 2 && stderr.contains("--force"), "{code}: {stderr}");
    let bytes = fs::read(&path).unwrap();
    let out = dir.path().join("elsewhere.bin");
    let (code, _, stderr) = output(
        k3_pack()
            .arg("manifest")
            .arg(&model)
            .arg("--out")
            .arg(&out)
            .args(["--threads", "3", "-q"]),
    );
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(fs::read(&out).unwrap() == bytes);
    fs::write(&path, "former").unwrap();
    let (code, _, _) = output(k3_pack().arg("manifest").arg(&model).arg("--force"));
    assert_eq!(code, 0);
    assert!(fs::read(&path).unwrap() == bytes);
    assert!(!names(&model).iter().any(|name| name.ends_with(".partial")));
}

#[test]
fn shards_on_another_root_are_hashed_too() {
    let dir = tempfile::tempdir().unwrap();
    let model = made(dir.path());
    output(k3_pack().arg("manifest").arg(&model).arg("-q"));
    let whole = fs::read(model.join(MANIFEST_NAME)).unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let shard = names(&model)
        .into_iter()
        .find(|name| name.ends_with(".safetensors"))
        .unwrap();
    fs::rename(model.join(&shard), root.join(&shard)).unwrap();
    let mut command = k3_pack();
    command.arg("manifest").arg(&model).args(["--force", "-q"]);
    let (code, _, stderr) = output(&mut command);
    assert!(code == 2 && stderr.contains(&shard), "{code}: {stderr}");
    let (code, _, stderr) = output(command.arg("--root").arg(&root));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(fs::read(model.join(MANIFEST_NAME)).unwrap() == whole);
}

#[test]
fn what_is_no_checkpoint_or_broken_has_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, stderr) = output(k3_pack().arg("manifest").arg(dir.path()));
    assert!(
        code == 2 && stderr.contains("safetensors"),
        "{code}: {stderr}"
    );
    let model = made(dir.path());
    let shard = names(&model)
        .into_iter()
        .find(|name| name.ends_with(".safetensors"))
        .unwrap();
    let path = model.join(&shard);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (code, _, stderr) = output(k3_pack().arg("manifest").arg(&model));
    assert!(code == 2 && stderr.contains(&shard), "{code}: {stderr}");
    assert!(!names(&model).contains(&MANIFEST_NAME.to_owned()));
    fs::write(&path, &bytes).unwrap();
    let (code, _, stderr) = output(
        k3_pack()
            .arg("manifest")
            .arg(&model)
            .args(["--out", "/proc/x.bin"]),
    );
    assert!(code == 3, "{code}: {stderr}");
}
