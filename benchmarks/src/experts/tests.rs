use super::*;
use crate::values::Random;

/// A matrix whose values are close to normal and whose scales are `scales` in
/// turn.
fn matrix(seed: u64, rows: usize, columns: usize, scales: &[u8]) -> ExpertMatrix {
    let normal = Random::new(seed).normal(rows * columns);
    let half = |value: f32| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 7"
        )]
        let magnitude = (value.abs() * 2.0).min(7.0) as u8;
        magnitude | u8::from(value < 0.0) << 3
    };
    let packed = normal
        .chunks(2)
        .map(|pair| half(pair[0]) | half(pair[1]) << 4);
    let count = rows * columns / MXFP4_GROUP;
    let scales = (0..count).map(|index| scales[index % scales.len()]);
    ExpertMatrix::new(packed.collect(), scales.collect(), columns)
}

fn found(report: &CodingReport, part: Part, method: &str) -> Coding {
    let mut codings = report.codings.iter();
    let coding = codings.find(|coding| coding.part == part && coding.method == method);
    coding.unwrap_or_else(|| panic!("{method}")).clone()
}

#[test]
fn known_sources_have_known_bits_and_savings() {
    // Every value equally often, two scales in turn.
    let packed: Vec<u8> = (0..=255).collect();
    let scales = [120, 122].repeat(8);
    let report = statistics(&[ExpertMatrix::new(packed, scales, 64)]).unwrap();
    assert_eq!((report.bytes, report.scale_bytes), (272, 16));
    assert_eq!(report.scale_values, 2);
    let values = found(&report, Part::Values, "entropy");
    assert_eq!((values.bits, values.saved_share), (4.0, 0.0));
    let scales = found(&report, Part::Scales, "entropy");
    assert_eq!(scales.bits, 1.0);
    assert!((scales.saved_share - 14.0 / 272.0).abs() < 1e-12);
    // Whoever knows the one before knows the next.
    let next = found(&report, Part::Scales, "entropy given the one before");
    assert_eq!(next.bits, 0.0);
    let both = found(&report, Part::Both, "entropy");
    assert!((both.saved_share - scales.saved_share).abs() < 1e-12);
}

#[test]
fn coders_reach_what_their_entropies_allow_and_decode_to_the_same_bytes() {
    let matrices = [
        matrix(1, 64, 256, &[121, 121, 120, 121]),
        matrix(2, 256, 64, &[121, 120, 3]),
    ];
    let request = CodingRequest {
        isa: Isa::Scalar,
        rounds: 2,
        pass_seconds: 0.0,
        cancel: &Cancel::default(),
    };
    let mut last = 0.0;
    let report = measure(&matrices, &request, &mut |share| last = share).unwrap();
    assert_eq!(last, 1.0);
    let bound = found(&report, Part::Values, "entropy");
    let coder = found(&report, Part::Values, "Huffman, pairs");
    assert!(bound.is_bound && !coder.is_bound);
    assert!(
        (bound.bits - 0.05..bound.bits + 0.1).contains(&coder.bits),
        "{coder:?} {bound:?}"
    );
    let scales = found(&report, Part::Scales, "palette of three");
    assert!((2.0..2.01).contains(&scales.bits), "{scales:?}");
    let both = found(&report, Part::Both, "both coders");
    let sum = coder.saved_share + scales.saved_share;
    assert!((both.saved_share - sum).abs() < 1e-12);
    let rates = report.rates.unwrap();
    assert_eq!(rates.mismatches, 0);
    let (some, all) = (rates.together(8.0, false), rates.together(8.0, true));
    assert!(
        all < some && some < 8.0 * rates.product.median,
        "{some} {all}"
    );
}

#[test]
fn nothing_is_no_measure_and_a_stop_leaves_the_counts() {
    assert!(statistics(&[]).is_none());
    let cancel = Cancel::default();
    cancel.request();
    let request = CodingRequest {
        isa: Isa::Scalar,
        rounds: 2,
        pass_seconds: 0.0,
        cancel: &cancel,
    };
    assert!(matches!(
        measure(&[], &request, &mut |_| ()),
        Err(MeasureError::NoExperts)
    ));
    let report = measure(&[matrix(1, 2, 32, &[1])], &request, &mut |_| ()).unwrap();
    assert!(report.rates.is_none() && report.codings.len() == 9);
}
