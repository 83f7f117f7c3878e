//! Expert traces: sweeps, strictness and round trips.

use std::path::Path;

use k3_formats::trace::{TracePair, TraceWriter};
use k3_formats::{ExpertTrace, FormatError, TraceFault};

fn bytes(pairs: &[(i32, i32)]) -> Vec<u8> {
    let numbers = pairs.iter().flat_map(|(layer, expert)| [layer, expert]);
    numbers.flat_map(|number| number.to_le_bytes()).collect()
}

fn parse(bytes: &[u8]) -> Result<ExpertTrace, FormatError> {
    ExpertTrace::parse(Path::new("dir/trace.bin"), bytes)
}

fn check(pairs: &[(i32, i32)]) -> Result<(), FormatError> {
    let trace = parse(&bytes(pairs)).unwrap();
    trace.check(Path::new("dir/trace.bin"), 1..3, 8, 2)
}

fn fault(error: FormatError) -> (TraceFault, u64) {
    assert!(
        error.to_string().contains("dir/trace.bin: offset"),
        "{error}"
    );
    match error {
        FormatError::Trace { fault, offset, .. } => (fault, offset),
        other => panic!("{other}"),
    }
}

#[test]
fn sweeps_begin_where_the_layer_falls() {
    let mut writer = TraceWriter::new(Vec::new());
    writer.layer(1, &[5, 4, 3, 2]).unwrap();
    writer.layer(2, &[7, 0, 1, 6]).unwrap();
    writer.layer(1, &[1, 0]).unwrap();
    writer.layer(2, &[3, 2]).unwrap();
    let trace = parse(&writer.finish().unwrap()).unwrap();
    let sizes: Vec<_> = trace.sweeps().map(|sweep| sweep.pairs().len()).collect();
    assert_eq!(sizes, [8, 4]);
    let first = trace.sweeps().next().unwrap();
    let layers: Vec<Vec<u32>> = first
        .layers()
        .map(|picks| picks.iter().map(|pair| pair.expert).collect())
        .collect();
    assert_eq!(layers, [[5, 4, 3, 2], [7, 0, 1, 6]]);
    assert_eq!(
        trace.pairs()[8],
        TracePair {
            layer: 1,
            expert: 1
        }
    );
    trace.check(Path::new("t"), 1..3, 8, 2).unwrap();
    assert_eq!(parse(&[]).unwrap().sweeps().len(), 0);
}

#[test]
fn partial_pairs_and_negative_numbers() {
    let whole = bytes(&[(1, 2), (1, 3)]);
    for length in [1, 4, 7, 9, 15] {
        let (kind, offset) = fault(parse(&whole[..length]).unwrap_err());
        let remainder = length as u64 % 8;
        assert_eq!(
            (kind, offset),
            (
                TraceFault::PartialPair { remainder },
                length as u64 - remainder
            )
        );
    }
    for pair in [(-1, 0), (0, -1), (i32::MIN, i32::MIN)] {
        let (kind, offset) = fault(parse(&bytes(&[(0, 0), pair])).unwrap_err());
        let (layer, expert) = pair;
        assert_eq!((kind, offset), (TraceFault::Negative { layer, expert }, 8));
    }
}

#[test]
fn traces_of_another_model_are_refused() {
    check(&[(1, 0), (1, 1), (2, 0), (2, 7)]).unwrap();
    for pair in [(0, 0), (3, 0), (1, 8)] {
        let (kind, offset) = fault(check(&[(1, 0), pair]).unwrap_err());
        assert!(matches!(kind, TraceFault::OutOfRange { .. }), "{kind}");
        assert_eq!(offset, 8);
    }
    let (kind, offset) = fault(check(&[(1, 0), (1, 1), (2, 0)]).unwrap_err());
    assert!(
        matches!(
            kind,
            TraceFault::UnevenLayer {
                layer: 2,
                pairs: 1,
                top_k: 2
            }
        ),
        "{kind}"
    );
    assert_eq!(offset, 16);
    let missing_last = [(1, 0), (1, 1)];
    let (kind, _) = fault(check(&missing_last).unwrap_err());
    assert_eq!(
        kind,
        TraceFault::PositionCount {
            layer: 2,
            expected: 1,
            found: 0
        }
    );
    let (kind, _) = fault(check(&[(2, 0), (2, 1)]).unwrap_err());
    assert_eq!(
        kind,
        TraceFault::PositionCount {
            layer: 1,
            expected: 1,
            found: 0
        }
    );
    let uneven = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)];
    let (kind, _) = fault(check(&uneven).unwrap_err());
    assert_eq!(
        kind,
        TraceFault::PositionCount {
            layer: 2,
            expected: 1,
            found: 2
        }
    );
}

#[test]
fn the_writer_refuses_numbers_beyond_the_format() {
    let mut writer = TraceWriter::new(Vec::new());
    assert!(writer.layer(1, &[1 << 31]).is_err());
    assert!(writer.layer(u32::MAX, &[0]).is_err());
}
