//! The same bytes from packed, striped and foreign trunks, and fewer of them.

mod common;

use std::fs;
use std::path::PathBuf;

use common::check::check;
use common::{BASE, Case, Way, trunks};
use k3_actors::{ActorError, Supervisor};
use k3_config::{CachePolicy, Pins};
use k3_formats::trunk::Codec;
use k3_io::EnginePreference;
use k3_kernels::Isa;
use k3_models::{LogitRows, ModelFamily as _};
use k3_runtime::{Cancel, Checksums, ComputePool, RunError, Session, SessionSettings};
use k3_testkit::TinySpec;

/// Blocks of which packing saves pages.
const BLOCK_BYTES: u64 = 32 << 10;

fn spec() -> TinySpec {
    TinySpec::packable(7)
}

fn case() -> Case {
    Case::new(&spec()).shortened(5)
}

/// The model with each trunk there is: one file, two and three stripes, foreign.
fn cases() -> Vec<(&'static str, Case)> {
    let with = |name, trunk: &dyn Fn(&Case) -> Vec<PathBuf>| {
        let case = case();
        let directories = trunk(&case);
        (name, case.with_trunk(&directories, Checksums::Compared))
    };
    vec![
        with("packed", &|case| trunks::packed(case, 1, BLOCK_BYTES)),
        with("two stripes", &|case| trunks::packed(case, 2, BLOCK_BYTES)),
        with("three stripes", &|case| {
            trunks::packed(case, 3, BLOCK_BYTES)
        }),
        with("foreign", &|case| trunks::foreign(case)),
    ]
}

#[test]
fn nearly_every_product_meets_a_packed_block() {
    let (_, case) = cases().remove(0);
    let model = case.model(BLOCK_BYTES);
    let blocks = &model.program().blocks;
    let ops = |codec| -> std::collections::BTreeSet<u8> {
        let blocks = blocks.iter().filter(|block| block.codec == codec);
        blocks.map(|block| block.op).collect()
    };
    let all: std::collections::BTreeSet<u8> = blocks.iter().map(|block| block.op).collect();
    let packed = ops(Codec::Bf16X3);
    // Too narrow to save a page: the steps of the decay and beta. Never: kv_b.
    assert_eq!(all.len() - packed.len(), 4, "{all:?} {packed:?}");
    assert!(!ops(Codec::Raw).is_empty());
    let sum = |of: fn(&k3_models::Block) -> u64| blocks.iter().map(of).sum::<u64>();
    assert!(sum(|block| block.bytes) * 100 < sum(|block| block.raw_bytes) * 80);
}

#[test]
fn budgets_from_the_smallest_up() {
    for (name, case) in cases() {
        for budget_twelfths in 0..=12 {
            let pins = [Pins::Spread, Pins::Prefix];
            for pins in pins {
                let way = Way {
                    budget_twelfths,
                    pins,
                    block_bytes: BLOCK_BYTES,
                    ..BASE
                };
                let reads = check(&case, &way);
                if budget_twelfths == 12 {
                    let last = reads.last().unwrap();
                    assert_eq!(last.trunk.read_bytes, 0, "{name}: all of it is pinned");
                }
            }
        }
    }
}

#[test]
fn engines_threads_chunks_and_delays() {
    for (_, case) in cases() {
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            for delay in [false, true] {
                for (threads, chunk) in [(1, 1), (2, 3), (2, 16)] {
                    let way = Way {
                        engine,
                        delay,
                        threads,
                        chunk,
                        budget_twelfths: 4,
                        block_bytes: BLOCK_BYTES,
                        ..BASE
                    };
                    check(&case, &way);
                }
            }
        }
    }
}

#[test]
fn policies_slots_and_lookahead() {
    for (_, case) in cases() {
        let config = &case.tiny.config;
        let all = (config.moe_layer_count() * config.num_experts) as u64;
        for &policy in CachePolicy::ALL {
            for (slots, lookahead) in [(4, 0), (9, 2), (all / 2, 4), (all, 0)] {
                let way = Way {
                    policy,
                    slots: Some(slots),
                    lookahead,
                    chunk: 1,
                    block_bytes: BLOCK_BYTES,
                    ..BASE
                };
                check(&case, &way);
            }
        }
    }
}

/// Late and disordered answers, with slots for almost nothing, while routers are
/// packed and stay pinned.
#[test]
fn lookahead_with_delays_and_few_slots() {
    for (_, case) in cases() {
        let picks = case.tiny.config.num_experts_per_token as u64;
        for (engine, slots) in [(EnginePreference::Pread, 4), (EnginePreference::Uring, 7)] {
            let way = Way {
                engine,
                slots: Some(slots),
                lookahead: picks,
                delay: true,
                chunk: 3,
                block_bytes: BLOCK_BYTES,
                ..BASE
            };
            check(&case, &way);
        }
    }
}

#[test]
fn lookahead_with_either_engine_and_several_threads_and_positions() {
    for (_, case) in cases().into_iter().step_by(2) {
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            for (threads, chunk) in [(2, 1), (1, 2), (2, 4), (1, 5)] {
                for budget_twelfths in [0, 6, 12] {
                    let way = Way {
                        engine,
                        threads,
                        chunk,
                        budget_twelfths,
                        lookahead: 2,
                        block_bytes: BLOCK_BYTES,
                        ..BASE
                    };
                    check(&case, &way);
                }
            }
        }
    }
}

/// The kernels of every instruction set there is here, alone and on several
/// threads, with blocks that are read and blocks that are pinned.
#[test]
fn every_instruction_set() {
    let available = Isa::ALL.into_iter().filter(|isa| isa.is_available());
    let isas: Vec<Isa> = available.collect();
    assert!(isas.contains(&Isa::Scalar));
    // Striped and foreign; each kernel meets the same blocks in the others.
    for (_, case) in cases().into_iter().skip(1).step_by(2) {
        for &isa in &isas {
            for (threads, chunk, lookahead) in [(1, 1, 2), (2, 3, 0), (2, 16, 0)] {
                for budget_twelfths in [0, 6, 12] {
                    let way = Way {
                        isa: Some(isa),
                        threads,
                        chunk,
                        lookahead,
                        budget_twelfths,
                        block_bytes: BLOCK_BYTES,
                        ..BASE
                    };
                    check(&case, &way);
                }
            }
        }
    }
}

#[test]
fn blocks_from_the_longest_row_up() {
    for block_bytes in [1, 9_000, 1 << 20] {
        for stripes in [1, 3] {
            let case = case();
            let directories = trunks::packed(&case, stripes, block_bytes);
            let case = case.with_trunk(&directories, Checksums::Compared);
            for budget_twelfths in [0, 6] {
                let way = Way {
                    budget_twelfths,
                    ..BASE
                };
                check(&case, &way);
            }
        }
    }
}

/// A packed trunk is read in fewer bytes, and more of it is pinned by as much.
#[test]
fn a_budget_pins_more_of_a_packed_trunk() {
    let raw = case();
    let directories = trunks::packed(&raw, 1, BLOCK_BYTES);
    let way = Way {
        budget_twelfths: 2,
        block_bytes: BLOCK_BYTES,
        ..BASE
    };
    let (_, raw_plan) = raw.prepare(&way);
    let packed = raw.with_trunk(&directories, Checksums::Compared);
    let model = packed.model(BLOCK_BYTES);
    let plan = packed.plan(&model, raw_plan.budget.total.0, &way).unwrap();
    let share = |plan: &k3_config::BudgetPlan| plan.pins.bytes * 1000 / plan.pins.bytes_total;
    assert!((1..1000).contains(&share(&raw_plan)));
    assert!(share(&plan) > share(&raw_plan));
    let streamed = plan.prediction.trunk_bytes_per_sweep;
    assert!(streamed * 10 < raw_plan.prediction.trunk_bytes_per_sweep * 8);
}

/// What a run of one sweep gives, and what it says when it cannot.
fn one_sweep(case: &Case) -> Result<Vec<f32>, RunError> {
    let way = Way {
        block_bytes: BLOCK_BYTES,
        ..BASE
    };
    let (model, plan) = case.prepare(&way);
    let mut supervisor: Supervisor = case.start(&model, &plan, &way, None);
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: 16,
        chunk_positions: 4,
        all_logits: true,
    };
    let mut logits = Vec::new();
    let result = {
        let source = supervisor.source();
        let mut session = Session::new(&model, source, &pool, settings, Cancel::default());
        let keep = |_, rows: &[f32]| logits.extend_from_slice(rows);
        session.append(&case.ids[..4], LogitRows::All, keep)
    };
    let down = supervisor.shutdown();
    assert!(down.failures.is_empty(), "{:?}", down.failures);
    result.map(|()| logits)
}

/// A byte that changed on the disk is never multiplied: the sweep ends with an
/// error that names file and block, wherever in the block the byte is.
#[test]
fn a_flipped_byte_anywhere_in_a_block_ends_the_sweep() {
    let case = case();
    let directories = trunks::packed(&case, 2, BLOCK_BYTES);
    let case = case.with_trunk(&directories, Checksums::Compared);
    let good = one_sweep(&case).unwrap();
    let model = case.model(BLOCK_BYTES);
    let files = trunks::stripe_files(&directories);
    let shards = case.checkpoint.shards().len();
    for (index, block) in model.program().blocks.iter().enumerate().step_by(5) {
        let path = &case.checkpoint.trunk().unwrap().paths()[block.place.file as usize - shards];
        assert!(files.contains(path));
        let kept = fs::read(path).unwrap();
        let places = [0, block.bytes - 1, block.place.read_bytes - 1];
        for place in places {
            let mut bytes = kept.clone();
            bytes[usize::try_from(block.place.offset + place).unwrap()] ^= 1;
            fs::write(path, &bytes).unwrap();
            let error = one_sweep(&case).unwrap_err();
            let RunError::Source(source) = &error else {
                panic!("{error}");
            };
            let damaged = source.downcast_ref::<ActorError>();
            assert!(matches!(damaged, Some(ActorError::Damaged(_))), "{error}");
            let text = error.to_string();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(text.contains(name), "block {index}: {text}");
            assert!(text.contains(&block.place.offset.to_string()), "{text}");
        }
        fs::write(path, &kept).unwrap();
    }
    assert_eq!(one_sweep(&case).unwrap(), good);
}

/// Without checksums nothing is compared: padding may hold anything.
#[test]
fn checksums_can_be_ignored() {
    let case = case();
    let directories = trunks::packed(&case, 1, BLOCK_BYTES);
    let case = case.with_trunk(&directories, Checksums::Compared);
    let good = one_sweep(&case).unwrap();
    let model = case.model(BLOCK_BYTES);
    let blocks = &model.program().blocks;
    let padded = blocks
        .iter()
        .find(|block| block.place.read_bytes > block.bytes);
    let place = padded.unwrap().place;
    let path = &trunks::stripe_files(&directories)[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(place.offset + place.read_bytes - 1).unwrap()] ^= 1;
    fs::write(path, &bytes).unwrap();
    assert!(one_sweep(&case).is_err());
    let case = case.with_trunk(&directories, Checksums::Ignored);
    assert_eq!(one_sweep(&case).unwrap(), good);
}

/// A foreign trunk lacks the output head and nothing else.
#[test]
fn a_foreign_trunk_that_lacks_a_matrix_is_refused() {
    let case = case();
    let directories = trunks::foreign(&case);
    let json = directories[0].join("trunk.json");
    let text = fs::read_to_string(&json).unwrap();
    let mut trunk: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tensors = trunk["layers"][1]["tensors"].as_object_mut().unwrap();
    let name = tensors.keys().find(|name| name.ends_with("o_proj.weight"));
    let name = name.unwrap().clone();
    tensors.remove(&name);
    fs::write(&json, trunk.to_string()).unwrap();
    let case = case.with_trunk(&directories, Checksums::Compared);
    let layout = case.checkpoint.bind(None).unwrap();
    let error = case.checkpoint.place(&mut layout.program(BLOCK_BYTES));
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("layer 1") && text.contains("in the trunk is missing"),
        "{text}"
    );
}

/// What a foreign trunk says about its source must be so: the message has the field, what
/// it says and what is so.
#[test]
fn a_foreign_trunk_of_another_place_or_of_other_weights_is_refused() {
    let case = case();
    let directories = trunks::foreign(&case);
    let json = directories[0].join("trunk.json");
    let text = fs::read_to_string(&json).unwrap();
    let own = text.split("\"shard\":\"").nth(1).unwrap();
    let own = own.split('"').next().unwrap().to_owned();
    let open = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut trunk: serde_json::Value = serde_json::from_str(&text).unwrap();
        change(&mut trunk["layers"][1]);
        fs::write(&json, trunk.to_string()).unwrap();
        common::open(case.dir.path())
            .with_trunk(&directories, Checksums::Compared)
            .map_err(|error| error.to_string())
    };
    open(&|layer| layer["shard"] = format!("/elsewhere/{own}").into()).unwrap();
    open(&|layer| layer["shard"] = 3.into()).unwrap();
    let refused = |change: &dyn Fn(&mut serde_json::Value), parts: &[&str]| {
        let said = open(change).unwrap_err();
        for part in [
            "trunk.json",
            "(layer 1)",
            "in the checkpoint",
            "run without it",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
    };
    refused(
        &|layer| layer["shard"] = "x.safetensors".into(),
        &["`shard`", "x.safetensors", &own],
    );
    refused(
        &|layer| layer["run_start"] = 1.into(),
        &["`run_start` + `off`", &own],
    );
    // One tensor alone, with the place that it has.
    let alone = |layer: &mut serde_json::Value, more: u64| {
        let tensors = layer["tensors"].as_object_mut().unwrap();
        let (name, tensor) = tensors.iter().next_back().unwrap();
        let (name, tensor) = (name.clone(), tensor.clone());
        tensors.retain(|other, _| *other == name);
        let mut all = case.checkpoint.index().tensors();
        let place = all.find(|(other, _)| *other == name).unwrap().1.offset;
        layer["run_start"] = (place - tensor["off"].as_u64().unwrap() + more).into();
    };
    open(&|layer| alone(layer, 0)).unwrap();
    refused(&|layer| alone(layer, 1), &["`run_start` + `off`"]);
    // Other weights: the bytes that differ, in both files.
    fs::write(&json, &text).unwrap();
    let bin = directories[0].join("trunk.bin");
    let mut bytes = fs::read(&bin).unwrap();
    bytes[3] ^= 1;
    fs::write(&bin, bytes).unwrap();
    let said = common::open(case.dir.path())
        .with_trunk(&directories, Checksums::Compared)
        .unwrap_err()
        .to_string();
    for part in [
        "trunk.bin",
        "the weights of",
        "at offset 3 of trunk.bin",
        &own,
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}
