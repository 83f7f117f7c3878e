//! Checkpoints of released dimensions within real memory limits.
//!
//! Minutes in an optimised build, an hour without:
//! `K3_SLOW=1 cargo test --release -p k3 --test cli released`.

use std::time::Duration;

use k3_testkit::gates;
use serde_json::Value;

use crate::common::{json, k3};
use crate::synth::Synthetic;

/// Far beyond what the slowest disk needs.
const HOURS: Duration = Duration::from_secs(3 * 3600);

/// The ladder of `model` over `rungs`, held by control groups; says that a test
/// is not run where none can be made.
fn ladder(model: &Synthetic, rungs: &str, count: &str) -> Option<Value> {
    let path = model.path().display().to_string();
    let mut command = k3();
    command.timeout(HOURS);
    // As on the machine at hand.
    command.env_remove("K3_THREADS");
    command.args(["ladder", &path, "--rungs", rungs, "--repeats", "1"]);
    command.args(["--ids", "1,2,3", "--gen", count, "--limits", "group"]);
    let output = command.args(["--quiet", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && said.contains("control group: ") {
        gates::not_run(said.lines().nth(1).unwrap_or_default());
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    Some(json(&output.stdout))
}

/// Each rung kept to its plan and to its limit, and all made the same ids.
fn check(report: &Value, rungs: usize, count: usize) {
    assert_eq!(report["ids"]["agree"], true, "{}", report["ids"]);
    let seen = report["ids"]["seen"].as_array().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["generated_ids"].as_array().unwrap().len(), count);
    let rows = report["rungs"].as_array().unwrap();
    assert_eq!(rows.len(), rungs);
    for row in rows {
        assert_eq!(row["status"], "ok", "{row}");
        assert_eq!(row["group"]["oom_kills"], 0, "{row}");
        let peak = row["figures"]["peak_bytes"].as_u64().unwrap();
        let planned = row["planned_bytes"].as_u64().unwrap();
        assert!(peak <= planned, "{row}");
        // A plan that nothing was close to says nothing.
        assert!(peak > planned / 2, "{row}");
    }
}

#[test]
fn released_dimensions_within_four_limits() {
    if !gates::slow_only() {
        return;
    }
    let Some(model) = Synthetic::released() else {
        return;
    };
    if let Some(report) = ladder(&model, "1.5Gi,2Gi,4Gi,8Gi", "3") {
        check(&report, 4, 3);
    }
}

#[test]
fn the_whole_model_with_holes_for_weights_within_1_5_gib() {
    if !gates::slow_only() {
        return;
    }
    let model = Synthetic::sparse();
    if let Some(report) = ladder(&model, "1.5Gi", "2") {
        check(&report, 1, 2);
    }
}
