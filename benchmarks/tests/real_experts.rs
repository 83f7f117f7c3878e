//! What coding bytes of a released expert would save. Runs when
//! `K3_REFERENCE_DATA` names the folder that holds them; prints the figures of
//! docs/performance.md.

#![allow(clippy::print_stdout, reason = "the figures of a document")]

use k3_benchmarks::experts::{CodingRequest, ExpertMatrix, Part, measure};
use k3_formats::gates;
use k3_kernels::KernelSet;
use k3_runtime::Cancel;
use serde_json::Value;

fn bytes(value: &Value, pointer: &str) -> Vec<u8> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    let list = list.unwrap_or_else(|| panic!("no list at {pointer}"));
    let byte = |n: &Value| u8::try_from(n.as_u64().expect("a number")).expect("a byte");
    list.iter().map(byte).collect()
}

#[test]
fn a_released_expert_has_little_to_save() {
    let Some(path) = gates::reference_data().map(|data| data.join("real/mxfp4.json")) else {
        return;
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let columns = value["logical_width"].as_u64().expect("a number");
    let columns = usize::try_from(columns).expect("a width");
    let matrix = ExpertMatrix::new(
        bytes(&value, "/packed/data"),
        bytes(&value, "/scales/data"),
        columns,
    );
    let request = CodingRequest {
        isa: KernelSet::detect().isa,
        rounds: 3,
        pass_seconds: 0.02,
        cancel: &Cancel::default(),
    };
    let report = measure(&[matrix], &request, &mut |_| ()).expect("there are bytes");
    for coding in &report.codings {
        println!(
            "{:?}: {}: {:.3} bits, saves {:.1} % of all",
            coding.part,
            coding.method,
            coding.bits,
            100.0 * coding.saved_share
        );
    }
    assert_eq!(report.rates.expect("not stopped").mismatches, 0);
    for coding in &report.codings {
        let range = match coding.part {
            Part::Scales => 0.04..0.06,
            Part::Values => 0.05..0.08,
            Part::Both => 0.09..0.13,
        };
        assert!(range.contains(&coding.saved_share), "{coding:?}");
    }
}
