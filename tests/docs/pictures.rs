//! Pictures in the documents: drawn from what the program says now, they are the same
//! bytes. Nothing in them is measured.
//!
//! With `K3_UPDATE_PICTURES` set they are written instead of compared.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::chart::{Axis, Chart};
use crate::released::{checkpoint, k3};

/// Budgets of a plan, GB.
const BUDGETS_GB: [u32; 15] = [2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224];
/// Tokens of the trace that is replayed, and what each position and layer picks.
const TOKENS: &str = "400";
const PICKS: &str = "4";
const SLOTS: &str = "8,16,24,32,48,64,80,96,112,128";
const POLICIES: [&str; 4] = ["deep-layers", "lru", "decayed-frequency", "belady"];

/// Every picture is what is drawn now.
pub(crate) fn are_what_is_drawn_now() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let drawn = [
        ("bytes-per-token.svg", bytes_per_token().draw()),
        ("hit-rate.svg", hit_rate().draw()),
        ("memory-ladder.svg", memory_ladder().draw()),
    ];
    let update = std::env::var_os("K3_UPDATE_PICTURES").is_some();
    let mut stale = Vec::new();
    for (name, picture) in &drawn {
        let path = directory.join(name);
        if update {
            fs::write(&path, picture).unwrap();
        } else if fs::read_to_string(&path).ok().as_ref() != Some(picture) {
            stale.push(*name);
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?} would be drawn otherwise now; K3_UPDATE_PICTURES=1 cargo test -p k3 --test docs \
         pictures draws them"
    );
    let kept = fs::read_dir(directory).unwrap().count();
    assert_eq!(kept, drawn.len(), "a picture that nothing draws");
}

fn printed(args: &[&str]) -> Vec<u8> {
    let output = k3(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&printed(args)).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Bytes a token reads from the disk, by memory budget: the plan's prediction.
fn bytes_per_token() -> Chart {
    let config = checkpoint().join("config.json");
    let config = config.to_str().unwrap();
    let point = |gigabytes: u32| {
        let budget = format!("{gigabytes}G");
        let args = [
            "plan",
            "--config",
            config,
            "--memory",
            &budget,
            "--threads",
            "8",
            "--disk-gbps",
            "3",
            "--json",
        ];
        let bytes = number(&json(&args)["forecasts"][0]["bytes_per_token"]);
        (f64::from(gigabytes), bytes / 1e9)
    };
    let points = BUDGETS_GB.into_iter().map(point).collect();
    Chart {
        title: "GB read for a token of Kimi K3 (predicted, no expert in memory)".to_owned(),
        series: vec![(String::new(), points)],
        x_axis: Axis {
            end: 224.0,
            step: 32.0,
        },
        y_axis: Axis {
            end: 140.0,
            step: 20.0,
        },
        x_label: "memory budget, GB",
    }
}

/// How often experts are found in memory, by the number that have a slot: a trace of the
/// built-in model, replayed with each policy and with one that knows the future.
fn hit_rate() -> Chart {
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace");
    let trace = trace.to_str().unwrap();
    printed(&[
        "--gen",
        TOKENS,
        "--ignore-eos",
        "--quiet",
        "--dump-trace",
        trace,
    ]);
    let line = |policy: &str| {
        let args = [
            "replay", trace, "--topk", PICKS, "--policy", policy, "--slots", SLOTS, "--json",
        ];
        let told = json(&args);
        let rows = told["rows"].as_array().unwrap().iter();
        let point = |row: &Value| {
            let hits = number(&row["decode"]["hit_percent"]);
            (number(&row["slot_count"]), hits)
        };
        (policy.to_owned(), rows.map(point).collect())
    };
    Chart {
        title: format!("% of experts found in memory, {TOKENS} tokens of the built-in model"),
        series: POLICIES.map(line).to_vec(),
        x_axis: Axis {
            end: 128.0,
            step: 16.0,
        },
        y_axis: Axis {
            end: 100.0,
            step: 20.0,
        },
        x_label: "experts with a slot, of 128",
    }
}

/// What the built-in model reads of its trunk, by the share of it that stays in memory:
/// `k3 demo ladder`, a run for each point.
fn memory_ladder() -> Chart {
    let ladder = json(&["demo", "ladder", "--json", "--quiet"]);
    assert_eq!(
        ladder["same_ids"], true,
        "the runs did not make the same tokens"
    );
    let rows = ladder["rows"].as_array().unwrap();
    let line = |(name, is_packed): (&str, bool)| {
        let rows = rows.iter().filter(|row| row["is_packed"] == is_packed);
        let point = |row: &Value| {
            let read = number(&row["trunk_read_bytes"]) / 1e6;
            (number(&row["pinned_percent"]), read)
        };
        (name.to_owned(), rows.map(point).collect::<Vec<_>>())
    };
    let series = [("as released", false), ("packed", true)]
        .map(line)
        .to_vec();
    let values = series.iter().flat_map(|(_, points)| points);
    let most = values.fold(0.0, |most: f64, (_, value)| most.max(*value));
    let count = rows[0]["generated_ids"].as_array().unwrap().len();
    Chart {
        title: format!("MB of trunk read for the same {count} tokens of the built-in model"),
        series,
        x_axis: Axis {
            end: 100.0,
            step: 20.0,
        },
        y_axis: Axis {
            end: 100.0 * (most / 100.0).ceil(),
            step: 100.0,
        },
        x_label: "% of the trunk in memory",
    }
}
