//! Failing reads, stopped sweeps: a typed error, no hang, no wrong token.

mod common;

use std::time::{Duration, Instant};

use common::{BASE, Case, Way};
use k3_actors::Supervisor;
use k3_io::{EnginePreference, FaultyPlan};
use k3_models::kimi_k3::KimiK3;
use k3_models::{Inline, LogitRows, ModelFamily, SequenceState, Sweep, WorkspaceSize};
use k3_runtime::{Cancel, RunError, SweepObserver, forward};
use k3_testkit::TinySpec;

/// One sweep over all positions of a case.
fn sweep(
    case: &Case,
    model: &KimiK3,
    supervisor: &mut Supervisor,
    observer: &mut dyn SweepObserver,
    cancel: &Cancel,
) -> Result<Vec<f32>, RunError> {
    let mut state = model.new_state(16);
    let mut workspace = model.new_workspace(WorkspaceSize {
        held_positions: 0,
        positions: 16,
        logit_rows: 16,
        context_positions: 16,
        workers: 1,
    });
    let sweep = Sweep::single(case.ids.clone(), LogitRows::All);
    let result = forward(
        model,
        supervisor.source(),
        &sweep,
        vec![&mut state],
        &mut workspace,
        &Inline,
        observer,
        cancel,
    )
    .map(|(finished, _)| finished.logits.to_vec());
    assert_eq!(state.is_poisoned(), result.is_err());
    result
}

fn assert_right(case: &Case, logits: &[f32], what: &str) {
    let differing = logits
        .iter()
        .zip(&case.want)
        .filter(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(
        (logits.len(), differing.count()),
        (case.want.len(), 0),
        "{what}"
    );
}

fn way() -> Way {
    Way {
        chunk: 16,
        budget_twelfths: 3,
        ..BASE
    }
}

/// Few enough positions to look ahead, and slots for little else.
fn guessing() -> (Case, Way) {
    let way = Way {
        lookahead: 3,
        slots: Some(5),
        ..way()
    };
    (Case::new(&TinySpec::wide_union(3)).shortened(2), way)
}

/// An I/O error in any read ends the sweep with an error that names the file;
/// the next sweep is right again.
#[test]
fn an_io_error_anywhere_ends_one_sweep() {
    for (case, way) in [(Case::new(&TinySpec::odd(2)), way()), guessing()] {
        io_errors(&case, &way);
    }
}

fn io_errors(case: &Case, way: &Way) {
    let (model, plan) = case.prepare(way);
    let mut hit = 0;
    for failing in (0..150).step_by(7) {
        let faults = FaultyPlan {
            io_errors: vec![failing],
            ..FaultyPlan::default()
        };
        let mut supervisor = case.start(&model, &plan, way, Some(faults));
        for attempt in 0..3 {
            match sweep(case, &model, &mut supervisor, &mut (), &Cancel::default()) {
                Ok(logits) => assert_right(case, &logits, &format!("read {failing}")),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(".safetensors"), "{text}");
                    assert!(attempt < 2, "one failing read fails one sweep at most");
                    hit += 1;
                }
            }
        }
        let report = supervisor.shutdown();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
    }
    assert!(
        hit > 10,
        "only {hit} of the failing reads were part of a sweep"
    );
}

/// Asks for the end of the run at one step.
struct StopAt<'a>(&'a Cancel, usize);

impl SweepObserver for StopAt<'_> {
    fn progress(&mut self, done: usize, _total: usize) {
        if done == self.1 {
            self.0.request();
        }
    }
}

#[test]
fn a_sweep_stopped_anywhere_leaves_the_next_one_right() {
    let specs = [TinySpec::odd(2), TinySpec::wide_union(3)];
    let cases = specs.iter().map(|spec| (Case::new(spec), way()));
    for (case, way) in cases.chain([guessing()]) {
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            let way = Way { engine, ..way };
            let (model, plan) = case.prepare(&way);
            let mut supervisor = case.start(&model, &plan, &way, None);
            let steps = model.program().steps.len();
            // A wish that comes with the last step is too late.
            for stop in (0..steps - 1).step_by(5) {
                let cancel = Cancel::default();
                let mut observer = StopAt(&cancel, stop);
                let result = sweep(&case, &model, &mut supervisor, &mut observer, &cancel);
                assert!(matches!(result, Err(RunError::Cancelled)), "{stop}");
                if stop % 3 == 0 {
                    let fresh = Cancel::default();
                    let logits = sweep(&case, &model, &mut supervisor, &mut (), &fresh).unwrap();
                    assert_right(&case, &logits, &format!("after a stop at step {stop}"));
                }
            }
            assert!(supervisor.shutdown().failures.is_empty());
        }
    }
}

/// Stopping with everything in motion takes no longer than the reads in
/// flight.
#[test]
fn shutdown_in_the_middle_of_a_sweep_is_clean_and_quick() {
    let case = Case::new(&TinySpec::odd(2));
    let (model, plan) = case.prepare(&way());
    for stop in [0, 10, 60] {
        let delays = FaultyPlan {
            delay_max: Duration::from_millis(2),
            ..FaultyPlan::default()
        };
        let mut supervisor = case.start(&model, &plan, &way(), Some(delays));
        let cancel = Cancel::default();
        let mut observer = StopAt(&cancel, stop);
        let result = sweep(&case, &model, &mut supervisor, &mut observer, &cancel);
        assert!(matches!(result, Err(RunError::Cancelled)));
        let start = Instant::now();
        assert!(supervisor.shutdown().failures.is_empty());
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_shard_cut_during_the_run_is_an_error_that_names_it() {
    for engine in [EnginePreference::Pread, EnginePreference::Uring] {
        let case = Case::new(&TinySpec::odd(2));
        let way = Way { engine, ..way() };
        let (model, plan) = case.prepare(&way);
        let mut supervisor = case.start(&model, &plan, &way, None);
        let logits = sweep(&case, &model, &mut supervisor, &mut (), &Cancel::default()).unwrap();
        assert_right(&case, &logits, "before the cut");
        let shard = case.checkpoint.shard_paths().last().unwrap().to_owned();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&shard)
            .unwrap();
        file.set_len(4096).unwrap();
        // What was read ahead of the cut may still serve one sweep.
        let failed = (0..3)
            .find_map(|_| sweep(&case, &model, &mut supervisor, &mut (), &Cancel::default()).err());
        let text = failed.expect("a cut shard cannot be read").to_string();
        let name = shard.file_name().unwrap().to_string_lossy().into_owned();
        assert!(text.contains(&name) && text.contains("truncated"), "{text}");
        assert!(supervisor.shutdown().failures.is_empty());
    }
}
