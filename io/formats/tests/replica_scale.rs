//! The full-size replica: counts, and what indexing it costs.
//!
//! The costs are measured in a child process, which sees only sparse files on
//! disk: the generator's own memory is not in the figures.

#![allow(
    clippy::print_stdout,
    reason = "the figures are the point of this test"
)]

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use k3_formats::replica::{
    RELEASED_SHARD_COUNT, RELEASED_TENSOR_BYTES, RELEASED_TENSOR_COUNT, released_config, shards,
    write_replica_index,
};
use k3_formats::{Dtype, ExpertPart, FormatError, ReadAt, ShardIndex, ShardList};

const FOLDER_VARIABLE: &str = "K3_REPLICA_FOLDER";
const CPU_SECONDS_MAX: f64 = 1.0;
const GROWTH_BYTES_MAX: u64 = 70_000_000;

struct DiskFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl DiskFile {
    fn open(path: PathBuf) -> Self {
        let file = File::open(&path).unwrap();
        let length = file.metadata().unwrap().len();
        Self { path, file, length }
    }
}

impl ReadAt for DiskFile {
    fn label(&self) -> &Path {
        &self.path
    }

    fn len_bytes(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        self.file
            .read_exact_at(buffer, offset)
            .map_err(|source| FormatError::Read {
                path: self.path.clone(),
                offset,
                wanted_bytes: buffer.len() as u64,
                source,
            })
    }
}

#[test]
fn the_replica_is_indexed_within_its_budget() {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return measure(Path::new(&folder));
    }
    let folder = std::env::temp_dir().join(format!("k3-replica-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    write_files(&folder);
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "the_replica_is_indexed_within_its_budget",
        ])
        .env(FOLDER_VARIABLE, &folder)
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let report = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{report}{errors}");
    let figures = report.lines().find(|line| line.contains("CPU seconds"));
    println!("{}", figures.expect("the child printed its figures"));
}

fn write_files(folder: &Path) {
    let config = released_config();
    for shard in shards(&config) {
        let file = File::create(folder.join(&shard.name)).unwrap();
        let header = shard.header();
        file.write_all_at(&header, 0).unwrap();
        file.set_len(header.len() as u64 + shard.data_bytes())
            .unwrap();
    }
    let index = File::create(folder.join("model.safetensors.index.json")).unwrap();
    write_replica_index(&config, BufWriter::new(index)).unwrap();
}

/// Runs in the child: opens the files the way a program does.
fn measure(folder: &Path) {
    let resident_before = status_bytes("VmRSS:");
    let seconds_before = cpu_seconds();
    let index_file = DiskFile::open(folder.join("model.safetensors.index.json"));
    let list = ShardList::read(&index_file).unwrap();
    let files: Vec<DiskFile> = list
        .shards
        .iter()
        .map(|shard| DiskFile::open(folder.join(&shard.name)))
        .collect();
    let views: Vec<&dyn ReadAt> = files.iter().map(|file| file as &dyn ReadAt).collect();
    let index = ShardIndex::build(&views, Some(&index_file)).unwrap();
    let seconds = cpu_seconds() - seconds_before;
    let growth = status_bytes("VmHWM:") - resident_before;

    println!(
        "replica: {} tensors, {} experts, {} shards: {seconds:.3} CPU seconds, {:.1} MB peak growth",
        index.tensor_count(),
        index.experts().expert_count(),
        index.shards().len(),
        growth as f64 / 1e6,
    );
    assert_eq!(list.tensor_count, RELEASED_TENSOR_COUNT as u64);
    assert_eq!(list.total_bytes, Some(RELEASED_TENSOR_BYTES));
    assert_eq!(list.shards[36].layers, Some(36..=36));
    assert_eq!(index.tensor_count(), RELEASED_TENSOR_COUNT);
    assert_eq!(index.tensor_bytes(), RELEASED_TENSOR_BYTES);
    assert!(growth <= GROWTH_BYTES_MAX, "{growth} bytes");
    if !cfg!(debug_assertions) {
        assert!(seconds <= CPU_SECONDS_MAX, "{seconds} CPU seconds");
    }
}

fn status_bytes(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes * 1024
}

/// User and system time of this process in seconds, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The command name may hold spaces; the fields after it are numbered from 3.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

#[test]
fn the_replica_has_the_released_counts() {
    let config = released_config();
    let files: Vec<_> = shards(&config).map(|shard| shard.open()).collect();
    assert_eq!(files.len(), RELEASED_SHARD_COUNT);
    let views: Vec<&dyn ReadAt> = files.iter().map(|file| file as &dyn ReadAt).collect();
    let index = ShardIndex::build(&views, None).unwrap();
    assert_eq!(index.tensor_count(), RELEASED_TENSOR_COUNT);
    assert_eq!(index.tensor_bytes(), RELEASED_TENSOR_BYTES);
    index.require_experts(&config).unwrap();

    let experts = index.experts();
    assert_eq!(experts.expert_count(), 82_432);
    assert_eq!(experts.total_bytes(), 1_446_456_066_048);
    assert_eq!(experts.experts_of_layer(0), 0);
    assert_eq!(experts.layer_count(), 93);
    assert_eq!(experts.prefix(), "language_model.model.");
    assert!(experts.get(0, 0).is_none() && experts.get(1, 896).is_none());
    assert!(experts.get(93, 0).is_none());
    let mut unaligned = 0;
    for layer in 1..93 {
        for expert in 0..896 {
            let found = experts.get(layer, expert).unwrap();
            assert_eq!(found.total_bytes(), 17_547_264);
            assert_eq!(found.total_bytes(), config.expert_bytes());
            let segments = found.segments();
            assert_eq!(segments.len(), 1);
            assert_eq!(usize::from(segments[0].shard), layer);
            unaligned += usize::from(!segments[0].offset.is_multiple_of(4096));
        }
    }
    // Experts are 4284 x 4096 bytes, so a layer is aligned as a whole or not.
    assert!(unaligned > 80_000, "{unaligned}");
    let name = "language_model.model.layers.92.block_sparse_moe.experts.895.w2.weight_scale";
    let tensor = index.get(name).unwrap();
    assert_eq!(
        tensor,
        experts.get(92, 895).unwrap().part(ExpertPart::W2Scale)
    );
    assert_eq!(tensor.shape.as_slice(), [3584, 96]);
    let head = index.get("language_model.lm_head.weight").unwrap();
    assert_eq!((head.bytes, head.dtype), (2_348_810_240, Dtype::Bf16));
    assert_eq!(
        index.shard_name(head.shard),
        "model-00094-of-000096.safetensors"
    );
    assert!(index.names().all(|name| !name.contains(".experts.")));
    assert_eq!(index.names().count(), RELEASED_TENSOR_COUNT - 6 * 82_432);
}
