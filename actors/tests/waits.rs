//! What counts as a wait for reads.

mod common;

use common::{BASE, Case, Way};
use k3_io::EnginePreference;
use k3_testkit::TinySpec;

/// Blocks and experts change hands between threads in every sweep. That is no
/// wait for reads: a sweep that reads none has waited for none, to the bit.
#[test]
fn a_model_in_memory_waits_for_no_read_after_its_first_sweep() {
    for engine in [EnginePreference::Pread, EnginePreference::Uring] {
        for delay in [false, true] {
            let case = Case::new(&TinySpec::odd(2));
            let way = Way {
                budget_twelfths: 12,
                engine,
                delay,
                ..BASE
            };
            let run = case.run(&way);
            assert!(run.logits == case.want, "other logits");
            let (first, later) = run.reads.split_first().unwrap();
            assert!(first.trunk.read_bytes > 0 && first.experts.read_bytes > 0);
            for (sweep, reads) in later.iter().enumerate() {
                let trunk = reads.trunk;
                assert_eq!(trunk.read_bytes, 0, "sweep {sweep}");
                assert!(trunk.wait_seconds == 0.0, "sweep {sweep}: {trunk:?}");
            }
            // By the second time through, every expert has been asked for.
            let again = &run.reads[run.reads.len() / 2..];
            for (sweep, reads) in again.iter().enumerate() {
                let experts = reads.experts;
                assert!(
                    experts.hits > 0 && experts.misses == 0,
                    "sweep {sweep}: {experts:?}"
                );
                assert!(experts.wait_seconds == 0.0, "sweep {sweep}: {experts:?}");
            }
        }
    }
}

/// What is read in every sweep is waited for, by a disk that takes its time.
#[test]
fn a_streamed_model_waits_for_its_reads() {
    let case = Case::new(&TinySpec::odd(2));
    let run = case.run(&Way {
        delay: true,
        ..BASE
    });
    let last = run.reads.last().unwrap();
    assert!(last.trunk.read_bytes > 0 && last.experts.read_bytes > 0);
    let trunk: f64 = run.reads.iter().map(|reads| reads.trunk.wait_seconds).sum();
    let experts: f64 = run
        .reads
        .iter()
        .map(|reads| reads.experts.wait_seconds)
        .sum();
    assert!(trunk > 0.0 && experts > 0.0, "{trunk} {experts}");
}
