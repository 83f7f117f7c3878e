//! `k3 compare`.

use std::path::Path;

use insta::assert_snapshot;

use crate::common::{json, refusal, run};

fn dump(dir: &Path, name: &str, values: &[f32]) -> String {
    let path = dir.join(name);
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

/// 32 values with no two alike, in no order.
fn values() -> Vec<f32> {
    (0..32u8)
        .map(|index| f32::from(index * 7 % 32) * 0.25 - 3.0)
        .collect()
}

#[test]
fn identical_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        dump(dir.path(), "a", &values()),
        dump(dir.path(), "b", &values()),
    );
    let output = run(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(0));
    assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    let output = run(&["compare", &a, &b, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let found = json(&output.stdout);
    assert_eq!(
        (&found["identical"], &found["differing"]),
        (&true.into(), &0.into())
    );
}

#[test]
fn different_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = values();
    other[4] += 0.5;
    other[9] = 9.0;
    let (a, b) = (
        dump(dir.path(), "a", &values()),
        dump(dir.path(), "b", &other),
    );
    let output = run(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_snapshot!(text);

    let found = json(&run(&["compare", &a, &b, "--json"]).stdout);
    assert_eq!(found["differing"], 2);
    // Id 9 was 63 mod 32 = 31 quarters less 3: 4.75.
    assert_eq!(found["max_abs_difference"], 4.25);
    assert_eq!(found["max_relative"], 4.25 / 9.0);
    assert_eq!(found["rows"][0]["argmax_a"], 9);
    assert_eq!(found["rows"][0]["max_at"], 9);
    assert_eq!(found["argmax_differs"], 0);
}

#[test]
fn a_difference_in_the_sign_of_zero_is_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        dump(dir.path(), "a", &[0.0, 1.0]),
        dump(dir.path(), "b", &[-0.0, 1.0]),
    );
    let output = run(&["compare", &a, &b, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = json(&output.stdout);
    assert_eq!(
        (&found["differing"], &found["max_abs_difference"]),
        (&1.into(), &0.0.into())
    );
}

#[test]
fn several_positions() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [values(), values(), values()].concat();
    let mut other = rows.clone();
    other[32 + 9] = -9.0;
    other[64] += 1e-3;
    let (a, b) = (dump(dir.path(), "a", &rows), dump(dir.path(), "b", &other));
    let output = run(&["compare", &a, &b, "--vocab", "32"]);
    assert_eq!(output.status.code(), Some(1));
    assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    let found = json(&run(&["compare", &a, &b, "--vocab", "32", "--json"]).stdout);
    assert_eq!(found["rows"].as_array().unwrap().len(), 3);
    assert_eq!(found["rows"][0]["differing"], 0);
    assert_eq!(found["argmax_differs"], 1);
}

#[test]
fn values_that_are_not_finite_do_not_break_it() {
    let dir = tempfile::tempdir().unwrap();
    let a = dump(dir.path(), "a", &[1.0, f32::NAN, f32::INFINITY]);
    let b = dump(dir.path(), "b", &[1.0, f32::NAN, f32::NEG_INFINITY]);
    let output = run(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 values in A, 2 in B"), "{text}");
    assert!(text.contains("not finite at id 2"), "{text}");
    let found = json(&run(&["compare", &a, &b, "--json"]).stdout);
    assert_eq!(found["differing"], 1);
    assert_eq!(
        (&found["non_finite_a"], &found["non_finite_b"]),
        (&2.into(), &2.into())
    );
    assert_eq!(run(&["compare", &a, &a]).status.code(), Some(0));
}

#[test]
fn a_nan_against_a_number_is_no_small_difference() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = values();
    other[5] = f32::NAN;
    let (a, b) = (
        dump(dir.path(), "a", &values()),
        dump(dir.path(), "b", &other),
    );
    for (left, right) in [(&a, &b), (&b, &a)] {
        let output = run(&["compare", left, right, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let found = json(&output.stdout);
        for of in [&found, &found["rows"][0]] {
            // Neither a number nor null, which some languages take for 0.
            assert_eq!(of["max_abs_difference"], "inf");
            assert_eq!(of["max_relative"], "inf");
        }
    }
}

#[test]
fn dumps_without_vocab_are_said_to_be_taken_for_one_position() {
    let dir = tempfile::tempdir().unwrap();
    let a = dump(dir.path(), "a", &values());
    let plain = String::from_utf8(run(&["compare", &a, &a]).stdout).unwrap();
    assert!(plain.contains("one position of 32 values"), "{plain}");
    assert!(plain.contains("--vocab"), "{plain}");
    assert_eq!(
        json(&run(&["compare", &a, &a, "--json"]).stdout)["one_row_assumed"],
        true
    );
    let told = run(&["compare", &a, &a, "--vocab", "16"]).stdout;
    assert!(!String::from_utf8(told).unwrap().contains("note"));
    let told = run(&["compare", &a, &a, "--vocab", "32", "--json"]).stdout;
    assert_eq!(json(&told)["one_row_assumed"], false);
}

#[test]
fn dumps_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let good = dump(dir.path(), "good", &values());
    let short = dump(dir.path(), "short", &[1.0]);
    let said = refusal(2, &["compare", &good, &short]);
    assert!(
        said.contains("has 32 values") && said.contains("has 1"),
        "{said}"
    );
    let odd = dir.path().join("odd");
    std::fs::write(&odd, [0; 7]).unwrap();
    let said = refusal(2, &["compare", &good, odd.to_str().unwrap()]);
    assert!(said.contains("7 bytes"), "{said}");
    let empty = dump(dir.path(), "empty", &[]);
    refusal(2, &["compare", &empty, &empty]);
    refusal(2, &["compare", &good, "/no/such/dump"]);
    refusal(2, &["compare", &good, dir.path().to_str().unwrap()]);
    let said = refusal(2, &["compare", &good, &good, "--vocab", "5"]);
    assert!(said.contains("--vocab"), "{said}");
    refusal(2, &["compare", &good, &good, "--vocab", "0"]);
    refusal(2, &["compare", &good]);
}
