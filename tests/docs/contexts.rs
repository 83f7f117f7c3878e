//! Tables of predictions by context: every cell is what `k3 plan` says now.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::released::{checkpoint, k3, plan};

/// Less than any plan of the released model takes: the refusal tells the least.
const TOO_LITTLE: &str = "100M";

/// A table: where it is, how its header begins, and the cells after the first one.
struct Table {
    document: &'static str,
    header: &'static str,
    row: fn(&str) -> Vec<String>,
}

const TABLES: &[Table] = &[
    Table {
        document: "docs/tuning.md",
        header: "| `--context` | state |",
        row: |context| {
            let options = ["--context", context];
            let plan = accepted(&[&options[..], &["--memory", "64G"]].concat());
            vec![gigabytes(state_bytes(&plan)), least(&options)]
        },
    },
    Table {
        document: "docs/tuning.md",
        header: "| `--context` | least `--memory` | with `--spill` |",
        row: |context| {
            let options = ["--context", context];
            let spilled = [&options[..], &["--spill", "."]].concat();
            let plan = accepted(&[&spilled[..], &["--memory", "4G"]].concat());
            let read = number(&plan["plan"]["prediction"]["past_bytes_per_sweep"]);
            vec![least(&options), least(&spilled), gigabytes(read)]
        },
    },
    Table {
        document: "docs/batching.md",
        header: "| `--context-total` | states |",
        row: |total| {
            // The first row is what it is without the option.
            let mut options = vec!["--sequences", "8", "--context", "32768"];
            if !total.starts_with("none") {
                options.extend(["--context-total", total]);
            }
            let more = ["--memory", "32G", "--disk-gbps", "7"];
            let plan = accepted(&[&options[..], &more].concat());
            let pins = &plan["plan"]["pins"];
            let share = 100.0 * number(&pins["bytes"]) / number(&pins["bytes_total"]);
            vec![
                gigabytes(state_bytes(&plan)),
                format!("{:.1} %", (10.0 * share).floor() / 10.0),
                gigabytes(number(&plan["forecasts"][0]["bytes_per_token"])),
                least(&options),
            ]
        },
    },
];

/// Every cell of every table.
pub(crate) fn agree_with_the_plan() {
    let mut wrong = Vec::new();
    for table in TABLES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(table.document);
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(str::trim);
        let header = lines.find(|line| line.starts_with(table.header));
        assert!(header.is_some(), "{}: no {}", table.document, table.header);
        let mut rows = 0;
        for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
            let first = line.split('|').nth(1).unwrap().trim();
            let cells = (table.row)(&first.replace(',', "")).join(" | ");
            let expected = format!("| {first} | {cells} |");
            if line != expected {
                let document = table.document;
                wrong.push(format!("{document}\n  says {line}\n  is   {expected}"));
            }
            rows += 1;
        }
        assert!(rows > 1, "{}: {rows} rows", table.document);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn accepted(options: &[&str]) -> Value {
    plan(options).unwrap_or_else(|| panic!("{options:?} is refused"))
}

fn state_bytes(plan: &Value) -> f64 {
    let lines = plan["plan"]["lines"].as_array().unwrap();
    let state = lines.iter().find(|line| line["kind"] == "sequence states");
    number(&state.unwrap()["bytes"])
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.2} GB", bytes / 1e9)
}

/// The least budget that is accepted, as a refusal of one that is too small says it.
fn least(options: &[&str]) -> String {
    let model = checkpoint();
    let fixed = ["plan", model.to_str().unwrap(), "--threads", "8"];
    let output = k3(&[&fixed[..], &["--memory", TOO_LITTLE], options].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, least) = said.split_once("the smallest plan needs ").expect(&said);
    let mut words = least.split(' ');
    let (amount, unit) = (words.next().unwrap(), words.next().unwrap());
    let amount: f64 = amount.parse().unwrap();
    match unit {
        "GB" => gigabytes(amount * 1e9),
        "MB" => gigabytes(amount * 1e6),
        _ => panic!("{said}"),
    }
}
