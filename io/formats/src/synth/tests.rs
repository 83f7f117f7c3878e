//! What synthetic values look like, and that they follow from the seed alone.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::dtype::Dtype;
use crate::gates::reference_data;

fn tensor(name: &str, dtype: Dtype, shape: &[u64], role: TensorRole) -> TensorLayout {
    TensorLayout {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        role,
    }
}

fn bytes(seed: u64, tensor: &TensorLayout) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(tensor.size_bytes()).unwrap()];
    SynthValues::new(seed).fill(tensor, 0, &mut bytes);
    bytes
}

fn floats(seed: u64, tensor: &TensorLayout) -> Vec<f64> {
    let bytes = bytes(seed, tensor);
    match tensor.dtype {
        Dtype::Bf16 => {
            let pairs = bytes.as_chunks::<2>().0.iter();
            let wide = pairs.map(|pair| u32::from(u16::from_le_bytes(*pair)) << 16);
            wide.map(|bits| f64::from(f32::from_bits(bits))).collect()
        }
        _ => {
            let fours = bytes.as_chunks::<4>().0.iter();
            fours
                .map(|four| f64::from(f32::from_le_bytes(*four)))
                .collect()
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: Vec<f64> = values.iter().map(|x| (x - mean) * (x - mean)).collect();
    self::mean(&squares).sqrt()
}

#[test]
fn experts_have_the_statistics_of_released_ones() {
    // 64 rows of a quarter of a million groups.
    let (rows, groups) = (64, 1 << 18);
    let role = TensorRole::ExpertScale;
    let scales = tensor("e.1.w1.weight_scale", Dtype::U8, &[rows, groups], role);
    let role = TensorRole::ExpertPacked;
    let packed = tensor(
        "e.1.w1.weight_packed",
        Dtype::U8,
        &[rows, groups * 16],
        role,
    );
    let scales = bytes(1, &scales);
    let packed = bytes(1, &packed);

    let mut group_counts = [0_u64; 256];
    let mut joint = [[0_u64; 16]; 256];
    for (scale, group) in scales.iter().zip(packed.as_chunks::<16>().0) {
        group_counts[usize::from(*scale)] += 1;
        for byte in group {
            joint[usize::from(*scale)][usize::from(byte & 15)] += 1;
            joint[usize::from(*scale)][usize::from(byte >> 4)] += 1;
        }
    }
    let sample: u64 = SCALE_STATISTICS
        .iter()
        .map(|entry| u64::from(entry.group_count))
        .sum();
    let near = |found: u64, want: f64, what: &str| {
        let ratio = found as f64 / want;
        assert!((ratio - 1.0).abs() < 0.01, "{what}: {ratio}");
    };
    let mut marginal = [0.0; 8];
    for entry in SCALE_STATISTICS {
        let index = usize::from(entry.scale);
        let share = f64::from(entry.group_count) / sample as f64;
        near(group_counts[index], share * scales.len() as f64, "scale");
        let values: u32 = entry.magnitude_counts.iter().sum();
        for (magnitude, count) in entry.magnitude_counts.into_iter().enumerate() {
            marginal[magnitude] += f64::from(count) / (32 * sample) as f64;
            // Of what is frequent enough to be measured to 1 %, each sign of
            // each magnitude at each scale.
            let want = f64::from(count) / f64::from(values) * group_counts[index] as f64 * 16.0;
            if want > 200_000.0 {
                near(joint[index][magnitude], want, "plus");
                near(joint[index][magnitude + 8], want, "minus");
            }
        }
    }
    // Nothing else occurs.
    let known: u64 = SCALE_STATISTICS
        .map(|entry| group_counts[usize::from(entry.scale)])
        .iter()
        .sum();
    assert_eq!(known, scales.len() as u64);
    for (magnitude, share) in marginal.into_iter().enumerate() {
        let found = |code: usize| joint.iter().map(|counts| counts[code]).sum::<u64>();
        let want = share * packed.len() as f64 * 2.0;
        near(found(magnitude) + found(magnitude + 8), want, "magnitude");
    }
}

#[test]
fn matrices_are_normal_with_log_normal_rows() {
    let (rows, columns) = (1024, 4096);
    let matrix = tensor("m", Dtype::Bf16, &[rows, columns], TensorRole::Matrix);
    let values = floats(5, &matrix);
    let width = usize::try_from(columns).unwrap();
    let rows: Vec<&[f64]> = values.chunks(width).collect();
    let scales: Vec<f64> = rows.iter().map(|row| deviation(row)).collect();
    let logs: Vec<f64> = scales
        .iter()
        .map(|scale| (scale * (columns as f64).sqrt()).ln64())
        .collect();
    // 1024 rows know the spread of 0.25 to 0.006.
    assert!(mean(&logs).abs() < 0.03, "{}", mean(&logs));
    assert!(
        (deviation(&logs) - 0.25).abs() < 0.025,
        "{}",
        deviation(&logs)
    );
    let normalised: Vec<f64> = rows
        .iter()
        .zip(&scales)
        .flat_map(|(row, scale)| row.iter().map(move |value| value / scale))
        .collect();
    assert!(mean(&normalised).abs() < 2e-3);
    let fourth: Vec<f64> = normalised.iter().map(|x| x.powi(4)).collect();
    assert!((mean(&fourth) - 3.0).abs() < 0.02, "{}", mean(&fourth));
    // Rows are not alike: the largest of eight thousand correlations is what
    // chance gives (5 standard errors), not what a shared run of values would.
    let sample: Vec<&[f64]> = normalised.chunks(width).step_by(8).collect();
    for (index, row) in sample.iter().enumerate() {
        for other in &sample[..index] {
            let products: Vec<f64> = row.iter().zip(*other).map(|(a, b)| a * b).collect();
            let correlation = mean(&products) * (columns as f64).sqrt();
            assert!(correlation.abs() < 5.5, "{correlation}");
        }
    }
}

/// The natural logarithm near 1, for tests; the library has no need of one.
trait Ln64 {
    fn ln64(self) -> f64;
}

impl Ln64 for f64 {
    fn ln64(self) -> f64 {
        // Newton's method on the tables' exponential.
        (0..30).fold(0.0, |x, _| x + self / tables::exp(x) - 1.0)
    }
}

#[test]
fn every_role_has_values_its_arithmetic_can_bear() {
    let check = |tensor: &TensorLayout, low: f64, high: f64| {
        let values = floats(9, tensor);
        for value in &values {
            assert!((low..=high).contains(value), "{}: {value}", tensor.name);
        }
        assert!(deviation(&values) > 0.0, "{}", tensor.name);
        values
    };
    check(
        &tensor("n", Dtype::Bf16, &[7168], TensorRole::Norm),
        0.4,
        1.6,
    );
    check(&tensor("o", Dtype::F32, &[128], TensorRole::Norm), 0.4, 1.6);
    check(
        &tensor("d", Dtype::F32, &[12_288], TensorRole::DecayBias),
        -6.0,
        0.0,
    );
    check(
        &tensor("c", Dtype::F32, &[512, 1, 4], TensorRole::ConvTaps),
        -2.5,
        2.5,
    );
    check(
        &tensor("b", Dtype::F32, &[896], TensorRole::RouterBias),
        -0.1,
        0.1,
    );
    let role = TensorRole::ResidualProjection;
    check(&tensor("p", Dtype::Bf16, &[1, 7168], role), -0.1, 0.1);
    let role = TensorRole::DecayRate { head_count: 96 };
    let rates = check(&tensor("a", Dtype::F32, &[128], role), -1.0, 1.0);
    assert!(rates[..96].iter().all(|rate| *rate != 0.0));
    assert!(rates[96..].iter().all(|rate| *rate == 0.0));
}

#[test]
fn values_follow_from_seed_name_and_place() {
    let matrix = |name: &str| tensor(name, Dtype::Bf16, &[16, 60], TensorRole::Matrix);
    let first = bytes(1, &matrix("m"));
    assert_eq!(first, bytes(1, &matrix("m")));
    for other in [bytes(2, &matrix("m")), bytes(1, &matrix("n"))] {
        let equal = first
            .as_chunks::<2>()
            .0
            .iter()
            .zip(other.as_chunks::<2>().0);
        let equal = equal.filter(|(a, b)| a == b).count();
        assert!(equal < 40, "{equal} of 960 values are the same");
    }
    let rows: HashSet<&[u8]> = first.chunks(120).collect();
    assert_eq!(rows.len(), 16);
}

#[test]
fn parts_of_a_tensor_are_parts_of_its_bytes() {
    for (role, dtype) in [
        (TensorRole::Matrix, Dtype::Bf16),
        (TensorRole::ConvTaps, Dtype::F32),
        (TensorRole::DecayBias, Dtype::F32),
        (TensorRole::ExpertPacked, Dtype::U8),
        (TensorRole::ExpertScale, Dtype::U8),
    ] {
        let tensor = tensor("t", dtype, &[7, 208], role);
        let whole = bytes(4, &tensor);
        let values = SynthValues::new(4);
        for step in [1, 13, 256, 4096] {
            for (index, expected) in whole.chunks(step).enumerate() {
                let mut part = vec![0; expected.len()];
                values.fill(&tensor, (index * step) as u64, &mut part);
                assert_eq!(part, expected, "{role:?}: {step} bytes at {index}");
            }
        }
    }
}

#[test]
fn the_language_model_alone_is_the_release_less_vision() {
    let config = released_config();
    let all: Vec<_> = shards(&config, Vision::Included).collect();
    let text: Vec<_> = shards(&config, Vision::Left).collect();
    assert_eq!(
        (all.len(), text.len()),
        (RELEASED_SHARD_COUNT, RELEASED_SHARD_COUNT - 2)
    );
    assert_eq!(text[0].name, "model-00001-of-000094.safetensors");
    for (shard, same) in text.iter().zip(&all) {
        assert_eq!(shard.tensors, same.tensors);
        let header = shard.header().len();
        assert_eq!(header % 8, 0);
        assert_ne!(header % 4096, 0, "{}", shard.name);
    }
    let vision: usize = all[94..].iter().map(|shard| shard.tensors.len()).sum();
    let text: usize = text.iter().map(|shard| shard.tensors.len()).sum();
    assert_eq!(text + vision, RELEASED_TENSOR_COUNT);
}

#[test]
fn a_header_that_ends_a_page_is_moved_off_it() {
    let mut shard = ShardLayout {
        name: String::new(),
        tensors: Vec::new(),
    };
    // One name's length at a time until a plain header fills a page.
    let moved = (3900..4100).any(|len| {
        let name = "x".repeat(len);
        shard.tensors = vec![tensor(&name, Dtype::U8, &[8], TensorRole::ExpertScale)];
        let len = shard.header().len();
        assert!(len.is_multiple_of(8) && !len.is_multiple_of(4096), "{len}");
        len == 4104
    });
    assert!(moved);
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_statistics_are_those_of_real_bytes() {
    let Some(folder) = reference_data() else {
        return;
    };
    let sample = json(folder.join("real/mxfp4.json"));
    let list = |key: &str| -> Vec<u8> {
        let values = sample[key]["data"].as_array().unwrap();
        values
            .iter()
            .map(|value| u8::try_from(value.as_u64().unwrap()).unwrap())
            .collect()
    };
    let (packed, scales) = (list("packed"), list("scales"));
    let mut counted = SCALE_STATISTICS.map(|entry| ScaleStatistics {
        group_count: 0,
        magnitude_counts: [0; 8],
        ..entry
    });
    for (scale, group) in scales.iter().zip(packed.as_chunks::<16>().0) {
        let entry = counted
            .iter_mut()
            .find(|entry| entry.scale == *scale)
            .unwrap();
        entry.group_count += 1;
        for byte in group {
            entry.magnitude_counts[usize::from(byte & 7)] += 1;
            entry.magnitude_counts[usize::from(byte >> 4 & 7)] += 1;
        }
    }
    assert_eq!(counted, SCALE_STATISTICS);
}

/// Keys of the released file that say nothing about the weights.
const NOT_WRITTEN: [&str; 10] = [
    "bos_token_id",
    "pad_token_id",
    "ignore_index",
    "image_placeholder",
    "media_placeholder_token_id",
    "text_config.bos_token_id",
    "text_config.eos_token_id",
    "text_config.pad_token_id",
    "text_config.transformers_version",
    "text_config.initializer_range",
];

#[test]
fn the_configuration_is_the_released_one() {
    let Some(folder) = reference_data() else {
        return;
    };
    let mut released = json(folder.join("k3-config/config.json"));
    for key in NOT_WRITTEN {
        let (map, key) = match key.strip_prefix("text_config.") {
            Some(key) => (&mut released["text_config"], key),
            None => (&mut released, key),
        };
        assert!(map.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    let ours = config_json(&released_config(), Vision::Included);
    let ours: Value = serde_json::from_str(&ours).unwrap();
    assert_eq!(ours, released);
}
