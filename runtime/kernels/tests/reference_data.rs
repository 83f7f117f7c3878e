//! Checks against data from outside: the accumulation order of other engines
//! and bytes of a released checkpoint. They run when `K3_REFERENCE_DATA` names
//! the folder that holds them.

mod gates;

use k3_kernels::{Isa, KernelSet, e2m1_value, e8m0_scale};
use serde_json::Value;
use std::fs;

/// The parsed file, or `None` when the data is not there to be used.
fn load(name: &str) -> Option<Value> {
    let path = gates::reference_data()?.join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn numbers(value: &Value, pointer: &str) -> Vec<u64> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    let list = list.unwrap_or_else(|| panic!("no list at {pointer}"));
    list.iter().map(|n| n.as_u64().expect("a number")).collect()
}

fn bytes(value: &Value, pointer: &str) -> Vec<u8> {
    let numbers = numbers(value, pointer).into_iter();
    numbers.map(|n| u8::try_from(n).expect("a byte")).collect()
}

fn words(value: &Value, pointer: &str) -> Vec<u32> {
    let numbers = numbers(value, pointer).into_iter();
    numbers
        .map(|n| u32::try_from(n).expect("32 bits"))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn sets() -> impl Iterator<Item = &'static KernelSet> {
    Isa::ALL.into_iter().filter_map(KernelSet::for_isa)
}

#[test]
fn every_set_has_the_accumulation_order_of_the_probe() {
    let Some(probe) = load("k3tiny/kernel_order_probe.json") else {
        return;
    };
    let x: Vec<f32> = words(&probe, "/x")
        .into_iter()
        .map(f32::from_bits)
        .collect();
    let packed = bytes(&probe, "/mxfp4/packed");
    let scales = bytes(&probe, "/mxfp4/scales");
    let mxfp4 = words(&probe, "/mxfp4/expected");
    let weights: Vec<u8> = numbers(&probe, "/bf16/weights_u16")
        .into_iter()
        .flat_map(|n| u16::try_from(n).expect("16 bits").to_le_bytes())
        .collect();
    let widened: Vec<u8> = weights
        .chunks_exact(2)
        .flat_map(|pair| [0, 0, pair[0], pair[1]])
        .collect();
    let bf16 = words(&probe, "/bf16/expected");
    for set in sets() {
        let mut out = vec![0.0; mxfp4.len()];
        (set.matmul_mxfp4)(&packed, &scales, &x, 1, &mut out);
        assert_eq!(bits(&out), mxfp4, "mxfp4, {}", set.isa);
        let mut out = vec![0.0; bf16.len()];
        (set.matmul_bf16)(&weights, &x, 1, &mut out);
        assert_eq!(bits(&out), bf16, "bf16, {}", set.isa);
        (set.matmul_f32)(&widened, &x, 1, &mut out);
        assert_eq!(bits(&out), bf16, "widened bf16, {}", set.isa);
    }
}

/// Every weight through the kernels: column `i` alone is multiplied by one. And
/// the same with the nibbles of every byte swapped, which must not pass.
#[test]
fn released_mxfp4_bytes_decode_exactly() {
    let Some(real) = load("real/mxfp4.json") else {
        return;
    };
    let packed = bytes(&real, "/packed/data");
    let scales = bytes(&real, "/scales/data");
    let expected: Vec<f64> = real
        .pointer("/expected/data")
        .and_then(Value::as_array)
        .expect("expected values")
        .iter()
        .map(|n| n.as_f64().expect("a number"))
        .collect();
    let rows = usize::try_from(real["rows"].as_u64().expect("rows")).expect("small");
    let cols = expected.len() / rows;
    let swapped: Vec<u8> = packed.iter().map(|byte| byte.rotate_left(4)).collect();

    assert_eq!(decode(&packed, &scales), expected);
    assert_ne!(decode(&swapped, &scales), expected);
    for set in sets() {
        let column = |packed: &[u8], i: usize| {
            let mut x = vec![0.0; cols];
            x[i] = 1.0;
            let mut out = vec![0.0; rows];
            let skipped = (set.matmul_mxfp4)(packed, &scales, &x, 1, &mut out);
            assert_eq!(skipped, 0);
            out
        };
        let is_column = |found: &[f32], i: usize| {
            found
                .iter()
                .zip(expected[i..].iter().step_by(cols))
                .all(|(&found, &expected)| f64::from(found) == expected)
        };
        // A few columns of every group, all places in turn.
        let columns = (0..cols).step_by(11);
        let right = columns.clone().all(|i| is_column(&column(&packed, i), i));
        assert!(right, "{}", set.isa);
        let wrong = columns
            .filter(|&i| is_column(&column(&swapped, i), i))
            .count();
        assert!(
            wrong < 10,
            "{}: swapped nibbles pass in {wrong} columns",
            set.isa
        );
    }
}

/// By the public element functions, low nibble = even element.
fn decode(packed: &[u8], scales: &[u8]) -> Vec<f64> {
    packed
        .iter()
        .enumerate()
        .flat_map(|(index, byte)| {
            let scale = e8m0_scale(scales[index / 16]).expect("no NaN scale");
            [byte & 15, byte >> 4].map(|nibble| e2m1_value(nibble) * scale)
        })
        .collect()
}
