//! A small model as a hub has it, and what is told on the way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k3_formats::manifest::MANIFEST_NAME;
use k3_formats::{Manifest, ManifestPlan, ReadAt, ShardIndex};
use k3_integrity::check::{Check, CheckReport, CheckSettings, Selection};
use k3_integrity::fetch::{FetchSettings, FetchSummary, fetch};
use k3_integrity::http::{HttpSettings, RetrySettings};
use k3_integrity::repair::RepairSettings;
use k3_integrity::{IntegrityError, Silent, Watch};
use k3_io::{CheckpointFiles, Digest, HashKind};
use k3_testkit::hub::{HUB_REPO, Hub};
use k3_testkit::{FileImage, TinySpec};

/// Bytes of a part: every shard of the model has several.
pub(crate) const PART_BYTES: u64 = 20_000;

/// The files of a model with several shards, and some beside it.
pub(crate) fn model() -> Vec<FileImage> {
    let mut files = TinySpec::small(5).shards(4).generate().files;
    let mut add = |name: &str, bytes: &[u8]| {
        files.push(FileImage {
            name: name.to_owned(),
            bytes: bytes.to_vec(),
        });
    };
    add("tiktoken.model", b"AA== 0\n");
    add("figures/a picture.svg", b"<svg/>");
    add(".gitattributes", b"*.safetensors filter=lfs\n");
    add("empty.txt", b"");
    files
}

pub(crate) fn hub() -> Hub {
    Hub::start(&model())
}

/// Name and bytes of the model's largest shard.
pub(crate) fn largest() -> (String, Vec<u8>) {
    let files = model();
    let file = files
        .into_iter()
        .max_by_key(|file| file.bytes.len())
        .unwrap();
    assert!(file.bytes.len() as u64 > 3 * PART_BYTES);
    (file.name, file.bytes)
}

/// Waits that suit loopback.
pub(crate) fn quick() -> (HttpSettings, RetrySettings) {
    let http = HttpSettings {
        connect: Duration::from_secs(10),
        response: Duration::from_secs(10),
        stall: Duration::from_secs(10),
        proxies: false,
    };
    let retry = RetrySettings {
        tries: 5,
        first_pause: Duration::from_millis(2),
        longest_pause: Duration::from_millis(10),
        patience: Duration::from_secs(20),
    };
    (http, retry)
}

pub(crate) fn settings(hub: &Hub, directory: &Path) -> FetchSettings {
    let (http, retry) = quick();
    FetchSettings {
        endpoint: hub.endpoint(),
        repo: HUB_REPO.to_owned(),
        parallel: 3,
        part_bytes: PART_BYTES,
        reserve_bytes: 0,
        http,
        retry,
        ..FetchSettings::new(directory.to_owned())
    }
}

/// Notes everything, and can be told to stop after so many bytes.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) messages: Mutex<Vec<String>>,
    pub(crate) bytes: AtomicI64,
    pub(crate) stop_after: Option<i64>,
    pub(crate) stopped: AtomicBool,
}

impl Notes {
    /// Bytes done in the last phase.
    pub(crate) fn done(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::SeqCst)).expect("more is done than undone")
    }

    pub(crate) fn text(&self) -> String {
        self.messages.lock().unwrap().join("\n")
    }
}

impl Watch for Notes {
    fn go_on(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst)
    }

    fn phase(&self, label: &'static str, _total_bytes: u64) {
        self.messages.lock().unwrap().push(format!("[{label}]"));
        self.bytes.store(0, Ordering::SeqCst);
    }

    fn bytes(&self, count: u64) {
        let count = i64::try_from(count).unwrap();
        let now = self.bytes.fetch_add(count, Ordering::SeqCst) + count;
        if self.stop_after.is_some_and(|limit| now >= limit) {
            self.stopped.store(true, Ordering::SeqCst);
        }
    }

    fn undone(&self, count: u64) {
        self.bytes
            .fetch_sub(i64::try_from(count).unwrap(), Ordering::SeqCst);
    }

    fn message(&self, text: &str) {
        self.messages.lock().unwrap().push(text.to_owned());
    }
}

/// A download, and what was told.
pub(crate) fn run(settings: &FetchSettings) -> (Result<FetchSummary, IntegrityError>, Arc<Notes>) {
    run_with(settings, Notes::default())
}

pub(crate) fn run_with(
    settings: &FetchSettings,
    notes: Notes,
) -> (Result<FetchSummary, IntegrityError>, Arc<Notes>) {
    let notes = Arc::new(notes);
    let watch: Arc<dyn Watch> = notes.clone();
    (fetch(settings, &watch), notes)
}

/// Every file below a directory but what `fetch` keeps for itself.
pub(crate) fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(directory: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in directory.read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(directory, "", &mut found);
    found.remove("k3-fetch.json");
    found
}

pub(crate) fn published() -> BTreeMap<String, Vec<u8>> {
    model()
        .into_iter()
        .map(|file| (file.name, file.bytes))
        .collect()
}

/// Writes the model into a directory, with a manifest.
pub(crate) fn checkpoint() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in model().into_iter().filter(|file| !file.name.contains('/')) {
        std::fs::write(dir.path().join(&file.name), &file.bytes).unwrap();
    }
    make_manifest(dir.path());
    dir
}

/// A manifest made of bytes in memory: by other means than the command's.
pub(crate) fn make_manifest(directory: &Path) -> Manifest {
    let files = CheckpointFiles::open(directory, &[]).unwrap();
    let index = ShardIndex::build(&files.views(), files.index_view()).unwrap();
    let (_, config) = files.config().unwrap();
    let others = [
        "config.json",
        "model.safetensors.index.json",
        "tiktoken.model",
        "empty.txt",
    ];
    let length = |name: &str| std::fs::metadata(directory.join(name)).unwrap().len();
    let others = others.map(|name| (name.to_owned(), length(name))).to_vec();
    let plan = ManifestPlan::new(&index, others);
    let hashes: Vec<[u8; 32]> = plan
        .ranges()
        .iter()
        .map(|range| {
            let name = &plan.files()[range.file].name;
            let bytes = std::fs::read(directory.join(name)).unwrap();
            let start = usize::try_from(range.offset).unwrap();
            let mut digest = Digest::new(HashKind::Blake3);
            digest.update(&bytes[start..start + usize::try_from(range.bytes).unwrap()]);
            digest.finish()
        })
        .collect();
    let manifest = plan.finish(index.identity(&config), &hashes);
    std::fs::write(directory.join(MANIFEST_NAME), manifest.to_bytes()).unwrap();
    assert!(files.shards.iter().all(|shard| shard.len_bytes() > 0));
    manifest
}

pub(crate) fn check_settings(model: &Path, selection: Selection) -> CheckSettings {
    CheckSettings {
        model: model.to_owned(),
        roots: Vec::new(),
        manifest: None,
        selection,
        threads: Some(2),
    }
}

pub(crate) fn check(model: &Path) -> CheckReport {
    let check = Check::new(check_settings(model, Selection::All)).unwrap();
    check.run(&Silent).unwrap()
}

pub(crate) fn repair_settings(hub: &Hub, model: &Path) -> RepairSettings {
    let (http, retry) = quick();
    RepairSettings {
        model: model.to_owned(),
        roots: Vec::new(),
        manifest: None,
        from: Some(hub.files_address()),
        endpoint: hub.endpoint(),
        token: None,
        bad: None,
        dry_run: false,
        http,
        retry,
    }
}

/// Changes one bit.
pub(crate) fn flip(path: &Path, offset: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[usize::try_from(offset).unwrap()] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}

pub(crate) fn shard(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("model-{number:05}-of-00004.safetensors"))
}
