//! Tables of predictions: every cell is what `k3 plan` says now.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::released::plan;

/// The rates in the headers of the tables, GB/s.
const SLOW: f64 = 2.5;
const FAST: f64 = 7.0;
/// Sequences in the header of the table of batches.
const SEQUENCES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A table of predictions: where it is, how its header begins, and what the row of a
/// budget has to be.
struct Table {
    document: &'static str,
    header: &'static str,
    row: fn(&str) -> Vec<String>,
}

const TABLES: &[Table] = &[
    Table {
        document: "README.md",
        header: "| budget | of the trunk in memory |",
        row: |budget| {
            let plan = needed(budget);
            let share = match share_percent(&plan) {
                share if share >= 100.0 => "all".to_owned(),
                share => format!("{share:.1} %"),
            };
            let bytes = bytes_per_token(&plan);
            let [slow, fast] = seconds(&plan);
            vec![share, format!("{:.1}", bytes / 1e9), slow, fast]
        },
    },
    Table {
        document: "docs/hardware.md",
        header: "| budget | trunk in memory |",
        row: |budget| {
            let plan = needed(budget);
            let share = match share_percent(&plan) {
                share if share >= 100.0 => "100 %".to_owned(),
                share => format!("{share:.1} %"),
            };
            let read = |field: &str| match number(&plan["plan"]["prediction"][field]) / 1e9 {
                0.0 => "0".to_owned(),
                gigabytes => format!("{gigabytes:.2}"),
            };
            let [slow, fast] = seconds(&plan);
            let [trunk, experts] = ["trunk_bytes_per_sweep", "expert_bytes_per_token"].map(read);
            vec![share, trunk, experts, slow, fast]
        },
    },
    Table {
        document: "docs/batching.md",
        header: "| budget | 1 | 2 | 4 |",
        row: |budget| {
            let cell = |count: u32| {
                let count = count.to_string();
                let plan = at(budget, &["--sequences", &count]);
                plan.map_or("–".to_owned(), |plan| {
                    format!("{:.1}", bytes_per_token(&plan) / 1e9)
                })
            };
            SEQUENCES.map(cell).to_vec()
        },
    },
];

/// Figures in the text of a document that the plan of a budget tells.
struct Said {
    document: &'static str,
    budget: &'static str,
    text: fn(&Value) -> String,
}

const SAID: &[Said] = &[
    Said {
        document: "docs/hardware.md",
        budget: "128 GB",
        text: |plan| {
            let slots = &plan["plan"]["slots"];
            let all = grouped(&slots["expert_count"]);
            format!("({} of {all} at 128 GB", grouped(&slots["cache_count"]))
        },
    },
    Said {
        document: "docs/hardware.md",
        budget: "256 GB",
        text: |plan| {
            let count = grouped(&plan["plan"]["slots"]["cache_count"]);
            format!("{count} at 256 GB)")
        },
    },
];

/// Every cell of every table, and the figures said beside them.
pub(crate) fn agree_with_the_plan() {
    let mut wrong = Vec::new();
    for table in TABLES {
        let text = read(table.document);
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with(table.header));
        let header = lines.next();
        assert!(header.is_some(), "{}: no {}", table.document, table.header);
        let mut rows = 0;
        for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
            let budget = line.split('|').nth(1).unwrap().trim();
            let cells = (table.row)(budget).join(" | ");
            let expected = format!("| {budget} | {cells} |");
            if line != expected {
                wrong.push(format!(
                    "{}\n  says {line}\n  is   {expected}",
                    table.document
                ));
            }
            rows += 1;
        }
        assert!(rows > 1, "{}: {rows} rows", table.document);
    }
    for said in SAID {
        let Said {
            document,
            budget,
            text,
        } = said;
        let expected = text(&needed(budget));
        let text = read(document)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if !text.contains(&expected) {
            wrong.push(format!("{document}: does not say {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn read(document: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(document)).unwrap()
}

/// The plan at a budget as a table spells it.
fn at(budget: &str, more: &[&str]) -> Option<Value> {
    let budget = budget.replace(' ', "");
    let rate = FAST.to_string();
    plan(&[&["--memory", &budget, "--disk-gbps", &rate], more].concat())
}

fn needed(budget: &str) -> Value {
    at(budget, &[]).unwrap_or_else(|| panic!("{budget} is refused"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn bytes_per_token(plan: &Value) -> f64 {
    number(&plan["forecasts"][0]["bytes_per_token"])
}

/// To a tenth, cut off as `k3 plan` does: only all of the trunk is 100 %.
fn share_percent(plan: &Value) -> f64 {
    let pins = &plan["plan"]["pins"];
    (1000.0 * number(&pins["bytes"]) / number(&pins["bytes_total"])).floor() / 10.0
}

/// What a token takes at both rates; the plan says one of them.
fn seconds(plan: &Value) -> [String; 2] {
    let said = number(&plan["forecasts"][0]["floor_seconds_per_token"]);
    let bytes = bytes_per_token(plan);
    assert!((said - bytes / (FAST * 1e9)).abs() < 1e-6 * said, "{said}");
    [SLOW, FAST].map(|rate| format!("{:.1} s", bytes / (rate * 1e9)))
}

/// With commas between thousands.
fn grouped(value: &Value) -> String {
    let digits = value.as_u64().unwrap().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
