//! Runs from packed trunks: the same bytes, fewer read, and refusals that say
//! what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_pack::trunk::{
    Hooks, SourcePaths, TrunkPlan, TrunkSettings, TrunkSource, TrunkSummary, pack,
};
use k3_testkit::TinySpec;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{json, refusal, run, stdout_of, tiny};
use crate::streaming::number;

/// Blocks of which packing saves pages.
const BLOCK_BYTES: u64 = 32 << 10;

struct Model {
    dir: TempDir,
}

impl Model {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("model")).unwrap();
        let mut tiny = TinySpec::packable(seed).generate();
        tiny.write_to(&dir.path().join("model")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Packed into `count` directories, which are given back.
    fn packed(&self, count: usize) -> Vec<PathBuf> {
        self.packed_with(count).0
    }

    fn packed_with(&self, count: usize) -> (Vec<PathBuf>, TrunkSummary) {
        let outs: Vec<_> = (0..count)
            .map(|index| self.path(&format!("packed-{count}-{index}")))
            .collect();
        let summary = pack_into(&self.path("model"), &outs);
        (outs, summary)
    }

    /// Arguments of a run with `extra`, its logits in `dump`.
    fn args(&self, trunk: &[PathBuf], extra: &[&str]) -> Vec<String> {
        let own = ["--ids", "5,6,7,8", "--gen", "5", "--ignore-eos", "--quiet"];
        let mut args: Vec<String> = own.iter().chain(extra).map(|&arg| arg.to_owned()).collect();
        for directory in trunk {
            args.extend(["--trunk".to_owned(), directory.display().to_string()]);
        }
        args.push(self.path("model").display().to_string());
        args
    }

    /// Report and logits of a run.
    fn run(&self, trunk: &[PathBuf], extra: &[&str]) -> (Value, Vec<u8>) {
        let dump = self.path("logits.bin");
        let shown = dump.display().to_string();
        let own = ["--json", "--dump-logits", &shown];
        let extra: Vec<_> = own.iter().chain(extra).copied().collect();
        let report = json(&stdout_of(&self.args(trunk, &extra)));
        (report, fs::read(dump).unwrap())
    }
}

/// A directory with the packed trunk of the tiny fixture, and where that is in it.
pub(crate) fn packed_tiny() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let packed = dir.path().join("packed");
    pack_into(tiny().as_ref(), std::slice::from_ref(&packed));
    (dir, flag(&packed))
}

/// Packs the trunk of the checkpoint in `model` into `outs`.
fn pack_into(model: &Path, outs: &[PathBuf]) -> TrunkSummary {
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    let source = TrunkSource::open(&paths, Some(BLOCK_BYTES)).unwrap();
    let mut settings = TrunkSettings::new(outs.to_vec());
    settings.reserve_bytes = 0;
    let plan = TrunkPlan::new(&source, &settings).unwrap();
    pack(&source, &plan, &AtomicBool::new(false), &Hooks::NONE).unwrap()
}

fn flag(directory: &Path) -> String {
    directory.display().to_string()
}

#[test]
fn packed_trunks_give_the_same_bytes_in_fewer_reads() {
    let model = Model::new(3);
    let (raw, logits) = model.run(&[], &["--memory", "60M", "--block-bytes", "32768"]);
    assert!(raw["trunk"].is_null());
    for count in 1..=3 {
        let (trunk, summary) = model.packed_with(count);
        for extra in [
            &["--memory", "60M"][..],
            &["--memory", "1G", "--engine", "pread"],
            &["--memory", "60M", "--isa", "scalar", "--threads", "2"],
            &["--memory", "60M", "--no-checksums"],
            &["--resident"],
            &["--resident", "--no-checksums"],
        ] {
            let (report, found) = model.run(&trunk, extra);
            assert_eq!(found, logits, "{count} stripes, {extra:?}");
            assert_eq!(report["generated_ids"], raw["generated_ids"]);
            let told = &report["trunk"];
            assert_eq!(told["source"], "packed");
            assert_eq!(told["files"].as_array().unwrap().len(), count);
            let [stored, all] = ["stored_bytes", "raw_bytes"].map(|name| number(&told[name]));
            assert!(stored * 100 < all * 80, "{stored} of {all}");
            assert_eq!(
                all,
                number(&raw["counts"]["trunk_bytes"]) / number(&raw["counts"]["sweeps"])
            );
            let extents = number(&told["extent_bytes"]);
            // One definition of each, in the packer and in the run.
            let packed = [
                summary.raw_bytes,
                summary.stored_bytes,
                summary.extent_bytes,
            ];
            assert_eq!(packed, [all, stored, extents]);
            assert!(extents > stored && extents < all, "{extents}");
            let checked = number(&told["checked_bytes"]);
            let seconds = told["check_seconds"].as_f64().unwrap();
            if extra.contains(&"--no-checksums") {
                assert_eq!((checked, seconds), (0, 0.0));
                assert_eq!(told["checksums"], "off");
                continue;
            }
            assert_eq!(told["checksums"], "compared");
            assert!(seconds > 0.0);
            if extra.contains(&"--resident") {
                // Every block once.
                assert_eq!(checked, extents);
                continue;
            }
            let read = number(&report["streaming"]["bytes"]["trunk_read_bytes"]);
            assert!(checked >= read, "{checked} of {read}");
        }
    }
}

#[test]
fn a_plan_counts_the_bytes_of_the_packed_trunk() {
    let model = Model::new(3);
    let trunk = model.packed(1);
    let path = flag(&model.path("model"));
    let per_sweep = |extra: &[&str]| {
        let mut args = vec!["plan", "--json", "--memory", "60M"];
        args.extend(extra);
        args.push(&path);
        let plan = json(&stdout_of(&args));
        let trunk = plan["plan"]["lines"].as_array().unwrap().iter();
        let pinned = trunk
            .filter(|line| line["kind"] == "pinned trunk")
            .map(|line| number(&line["bytes"]));
        pinned.sum::<u64>()
    };
    let raw = per_sweep(&["--block-bytes", "32768"]);
    let packed = per_sweep(&["--trunk", &flag(&trunk[0])]);
    assert!(packed > 0 && packed * 100 < raw * 85, "{packed} of {raw}");
}

#[test]
fn what_is_not_the_trunk_of_this_checkpoint_is_refused() {
    let model = Model::new(3);
    let another = Model::new(4);
    let other = another.packed(1);
    let trunk = model.packed(2);
    let with = |trunk: &[PathBuf], extra: &[&str]| model.args(trunk, extra);

    let said = refusal(2, &with(&other, &[]));
    assert!(said.contains("another checkpoint"), "{said}");
    let said = refusal(2, &with(&trunk[..1], &[]));
    assert!(
        said.contains("missing") && said.contains("every directory"),
        "{said}"
    );
    let said = refusal(2, &with(&[model.path("nowhere")], &[]));
    assert!(
        said.contains("--trunk") && said.contains("no such directory"),
        "{said}"
    );
    let said = refusal(2, &with(&[model.path("model")], &[]));
    assert!(said.contains("no packed trunk"), "{said}");
    let said = refusal(2, &with(&trunk, &["--block-bytes", "4096"]));
    assert!(
        said.contains("--block-bytes") && said.contains("packed"),
        "{said}"
    );
    let (report, _) = model.run(&[], &["--no-checksums"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("--no-checksums changes nothing"), "{notes}");
}

#[test]
fn a_damaged_block_ends_the_run_and_names_its_place() {
    let model = Model::new(3);
    let trunk = model.packed(1);
    let file = trunk[0].join("trunk-00-of-01.k3trunk");
    let mut bytes = fs::read(&file).unwrap();
    // The first block lies behind the header's page.
    bytes[4096 + 77] ^= 4;
    fs::write(&file, bytes).unwrap();
    for extra in [&["--memory", "60M"][..], &["--resident"]] {
        let output = run(&model.args(&trunk, extra));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("trunk-00-of-01.k3trunk"), "{said}");
        assert!(said.contains("4096"), "{said}");
    }
}

/// What nobody compares may be no packed block at all: the file is named, not a
/// number of it.
#[test]
fn a_block_that_is_none_is_named_by_its_file() {
    let model = Model::new(3);
    let trunk = model.packed(2);
    for directory in &trunk {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            // The first block of each stripe begins with its directory, which is 0.
            bytes[4096..4100].fill(0xFF);
            fs::write(&path, bytes).unwrap();
        }
    }
    for extra in [&["--memory", "60M"][..], &["--resident"]] {
        let extra = [extra, &["--no-checksums"]].concat();
        let output = run(&model.args(&trunk, &extra));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("-of-02.k3trunk: the bf16-x3 block"), "{said}");
        assert!(said.contains("packed-2-"), "{said}");
    }
}

/// A trunk packed from a shard that was damaged then is told from one of the shard
/// as it is now, without reading a weight, where there is a manifest.
#[test]
fn a_trunk_of_a_shard_that_was_mended_since_is_refused() {
    let model = Model::new(3);
    let path = model.path("model");
    let (_, logits) = model.run(&[], &["--memory", "60M"]);
    let (damaged, place) = first_block_of(&path);
    flip(&damaged, place);
    let trunk = model.packed(1);
    flip(&damaged, place);
    // Without a manifest nobody can tell.
    let (report, found) = model.run(&trunk, &["--memory", "60M"]);
    assert_ne!(found, logits);
    assert!(report["trunk"]["manifest_matrices"].is_null());
    make_manifest(&path);
    let shown = flag(&path);
    let dirs = flag(&trunk[0]);
    for extra in [&["--memory", "60M"][..], &["--resident"]] {
        let said = refusal(2, &model.args(&trunk, extra));
        assert!(said.contains("packed from other bytes"), "{said}");
        assert!(said.contains("k3-pack trunk --restart"), "{said}");
        assert!(said.contains("k3-manifest.bin"), "{said}");
    }
    let said = refusal(2, &["plan", "--memory", "60M", "--trunk", &dirs, &shown]);
    assert!(said.contains("packed from other bytes"), "{said}");
    // Packed again it is as the manifest says.
    fs::remove_dir_all(&trunk[0]).unwrap();
    let trunk = model.packed(1);
    let (report, found) = model.run(&trunk, &["--memory", "60M"]);
    assert_eq!(found, logits);
    assert!(number(&report["trunk"]["manifest_matrices"]) > 10);
    // One that cannot be read might be all that tells a changed shard.
    let manifest = path.join("k3-manifest.bin");
    let mut damaged = fs::read(&manifest).unwrap();
    damaged[300] ^= 1;
    for bytes in [&b"no manifest"[..], b"", &damaged] {
        fs::write(&manifest, bytes).unwrap();
        let said = refusal(1, &model.args(&trunk, &["--memory", "60M"]));
        assert!(said.contains("k3-manifest.bin"), "{said}");
    }
    // Without a packed trunk nobody asks it.
    model.run(&[], &["--memory", "60M"]);
}

/// Shard and offset of the first block of the sweep.
fn first_block_of(model: &Path) -> (PathBuf, u64) {
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    let source = TrunkSource::open(&paths, Some(BLOCK_BYTES)).unwrap();
    let block = &source.blocks()[0];
    let shard = source.shard(block);
    (k3_formats::ReadAt::label(shard).to_owned(), block.offset)
}

/// Changes the lowest bit of the sign's byte of the weight at `place`.
fn flip(path: &Path, place: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(place).unwrap() + 1] ^= 0x80;
    fs::write(path, bytes).unwrap();
}

/// Writes the manifest of the checkpoint in `model`.
fn make_manifest(model: &Path) {
    let job = k3_pack::manifest::ManifestJob::new(model, &[]).unwrap();
    let (out, cancel) = (model.join("k3-manifest.bin"), AtomicBool::new(false));
    k3_pack::manifest::make(job, &out, false, None, &cancel, &|_| ()).unwrap();
}

/// A stripe that is not finished is told beside the one that is missing.
#[test]
fn an_unfinished_stripe_is_named() {
    let model = Model::new(3);
    let trunk = model.packed(2);
    let name = "trunk-00-of-02.k3trunk";
    let partial = trunk[0].join(format!("{name}.partial"));
    fs::rename(trunk[0].join(name), &partial).unwrap();
    let said = refusal(2, &model.args(&trunk, &[]));
    assert!(said.contains("0 is missing"), "{said}");
    assert!(said.contains(&partial.display().to_string()), "{said}");
    assert!(said.contains("same k3-pack trunk again"), "{said}");
}

/// `k3 plan` takes what a run takes of reading, and says who cut the blocks.
#[test]
fn a_plan_names_the_trunk_as_the_one_who_cut_the_blocks() {
    let model = Model::new(3);
    let trunk = model.packed(1);
    let (path, dirs) = (flag(&model.path("model")), flag(&trunk[0]));
    let plan = |extra: &[&str]| {
        let own = ["plan", "--json", "--memory", "60M", "--trunk", &dirs, &path];
        let plan = json(&stdout_of(&[&own[..], extra].concat()));
        let mut rows = plan["settings"].as_array().unwrap().clone().into_iter();
        let row = rows.find(|row| row["key"] == "block_bytes").unwrap();
        row.to_string()
    };
    let said = plan(&["--no-checksums"]);
    assert!(
        said.contains("trunk") && !said.contains("default"),
        "{said}"
    );
    let said = plan(&["--block-bytes", "32768"]);
    assert!(said.contains("--block-bytes"), "{said}");
}

/// A variable that names a trunk is not passed over in silence.
#[test]
fn measurements_say_that_they_do_not_use_it() {
    let model = Model::new(3);
    let trunk = model.packed(1);
    let path = flag(&model.path("model"));
    let mut command = crate::common::k3();
    command.env("K3_TRUNK", &trunk[0]);
    command.args(["bench", "decode", &path, "--buffer", "8M", "--rounds", "1"]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("K3_TRUNK names a packed trunk"), "{said}");
}

/// What a trunk is, by itself and beside the checkpoint.
#[test]
fn a_trunk_is_inspected() {
    let model = Model::new(3);
    let (trunk, summary) = model.packed_with(2);
    let [path, first, second] = [&model.path("model"), &trunk[0], &trunk[1]].map(|path| flag(path));
    let alone = stdout_of(&["inspect", "--json", &first, "--trunk", &second]);
    let alone = json(&alone)["trunk"].clone();
    let own = [
        "inspect", "--json", &path, "--trunk", &first, "--trunk", &second,
    ];
    let census = json(&stdout_of(&own));
    let beside = &census["trunk"];
    for found in [&alone, beside] {
        assert_eq!(found["identity"], census["identity"]);
        for (name, bytes) in [
            ("raw_bytes", summary.raw_bytes),
            ("stored_bytes", summary.stored_bytes),
            ("extent_bytes", summary.extent_bytes),
            ("blocks", summary.blocks.into()),
        ] {
            assert_eq!(number(&found[name]), bytes, "{name}");
        }
        assert_eq!(found["stripes"].as_array().unwrap().len(), 2);
        let codecs = found["codecs"].as_array().unwrap().iter();
        let blocks = codecs.map(|row| number(&row["blocks"])).sum::<u64>();
        assert_eq!(blocks, u64::from(summary.blocks));
    }
    assert!(alone["is_of_this_checkpoint"].is_null());
    assert_eq!(beside["is_of_this_checkpoint"], true);
    let text = String::from_utf8(stdout_of(&["inspect", &first, "--trunk", &second])).unwrap();
    for part in [
        "bf16-x3",
        "trunk-01-of-02",
        "of raw",
        summary.identity.as_str(),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A setting is as good as the option; a trunk of another model is a problem.
    let mut command = crate::common::k3();
    command.env("K3_TRUNK", &first).arg("inspect").arg(&path);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("note:") && said.contains("1 is missing"),
        "{said}"
    );
    let another = Model::new(4);
    let other = another.packed(1);
    let output = run(&["inspect", &path, "--trunk", &flag(&other[0])]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("another checkpoint"), "{said}");
}

/// Commands that read no trunk do not mind where one is said to be.
#[test]
fn a_trunk_that_is_not_there_stops_no_command_that_needs_none() {
    let model = Model::new(3);
    let mut command = crate::common::k3();
    command.env("K3_TRUNK", model.path("nowhere"));
    let output = command.arg("inspect").arg(model.path("model")).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}
