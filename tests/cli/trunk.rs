//! Runs from packed trunks: the same bytes, fewer read, and refusals that say
//! what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_pack::trunk::{Hooks, SourcePaths, TrunkPlan, TrunkSettings, TrunkSource, pack};
use k3_testkit::TinySpec;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{json, refusal, run, stdout_of};
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
        let outs: Vec<_> = (0..count)
            .map(|index| self.path(&format!("packed-{count}-{index}")))
            .collect();
        pack_into(&self.path("model"), &outs);
        outs
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

/// Packs the trunk of the checkpoint in `model` into `outs`.
pub(crate) fn pack_into(model: &Path, outs: &[PathBuf]) {
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    let source = TrunkSource::open(&paths, Some(BLOCK_BYTES)).unwrap();
    let mut settings = TrunkSettings::new(outs.to_vec());
    settings.reserve_bytes = 0;
    let plan = TrunkPlan::new(&source, &settings).unwrap();
    pack(&source, &plan, &AtomicBool::new(false), &Hooks::NONE).unwrap();
}

fn flag(directory: &Path) -> String {
    directory.display().to_string()
}

#[test]
fn packed_trunks_give_the_same_bytes_in_fewer_reads() {
    let model = Model::new(3);
    let (raw, logits) = model.run(&[], &["--memory", "60M", "--block-bytes", "32768"]);
    assert!(raw["streaming"]["trunk"].is_null());
    for count in 1..=3 {
        let trunk = model.packed(count);
        for extra in [
            &["--memory", "60M"][..],
            &["--memory", "1G", "--engine", "pread"],
            &["--memory", "60M", "--isa", "scalar", "--threads", "2"],
            &["--memory", "60M", "--no-checksums"],
            &["--resident"],
        ] {
            let (report, found) = model.run(&trunk, extra);
            assert_eq!(found, logits, "{count} stripes, {extra:?}");
            assert_eq!(report["generated_ids"], raw["generated_ids"]);
            let told = &report["streaming"]["trunk"];
            if extra.contains(&"--resident") {
                continue;
            }
            assert_eq!(told["files"].as_array().unwrap().len(), count);
            let [stored, all] = ["stored_bytes", "raw_bytes"].map(|name| number(&told[name]));
            assert!(stored * 100 < all * 80, "{stored} of {all}");
            assert_eq!(
                all,
                number(&raw["counts"]["trunk_bytes"]) / number(&raw["counts"]["sweeps"])
            );
            let checked = number(&told["checked_bytes"]);
            let read = number(&report["streaming"]["bytes"]["trunk_read_bytes"]);
            match extra.contains(&"--no-checksums") {
                true => assert_eq!(checked, 0),
                false => assert!(checked >= read, "{checked} of {read}"),
            }
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

/// Commands that read no trunk do not mind where one is said to be.
#[test]
fn a_trunk_that_is_not_there_stops_no_command_that_needs_none() {
    let model = Model::new(3);
    let mut command = crate::common::k3();
    command.env("K3_TRUNK", model.path("nowhere"));
    let output = command.arg("inspect").arg(model.path("model")).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}
