//! How weights get into memory, and when they do not.

mod common;

use std::ops::ControlFlow;

use common::{open, write};
use k3_kernels::KernelSet;
use k3_models::ModelFamily;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_runtime::{
    Checkpoint, POSITIONS_MAX, ResidentSource, RunError, SessionBytes, SessionSettings,
};
use k3_testkit::TinySpec;

fn bind(checkpoint: &Checkpoint, form: AttentionForm) -> KimiK3 {
    let layout = checkpoint.bind(None).unwrap();
    let read = |tensor: &_, out: &mut [u8]| checkpoint.read_tensor(tensor, out);
    KimiK3::new::<RunError>(layout, form, KernelSet::detect(), 4096, read).unwrap()
}

fn load(
    model: &KimiK3,
    checkpoint: &Checkpoint,
    beside: SessionBytes,
    progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<ResidentSource, RunError> {
    let layers = model.layout().layer_count();
    ResidentSource::load(model, checkpoint, layers, beside, progress)
}

#[test]
fn progress_starts_at_nothing_and_ends_at_everything() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let model = bind(&checkpoint, AttentionForm::Latent);
    let mut told = Vec::new();
    load(
        &model,
        &checkpoint,
        SessionBytes::default(),
        |done, total| {
            told.push((done, total));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    let total = told[0].1;
    assert_eq!(
        (told[0], *told.last().unwrap()),
        ((0, total), (total, total))
    );
    assert!(told.iter().all(|(_, of)| *of == total));
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
fn a_load_ends_wherever_it_is_stopped() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let model = bind(&checkpoint, AttentionForm::Latent);
    let stop_at = |stop: usize| {
        let mut calls = 0;
        let loaded = load(&model, &checkpoint, SessionBytes::default(), |_, _| {
            calls += 1;
            if calls == stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        (loaded, calls)
    };
    let (whole, calls) = stop_at(usize::MAX);
    whole.unwrap();
    // The start, the embedding, blocks and experts.
    assert!(calls > 50, "{calls}");
    for stop in 1..=calls {
        let (loaded, told) = stop_at(stop);
        assert!(matches!(loaded, Err(RunError::Cancelled)), "{stop}");
        assert_eq!(told, stop, "went on after the stop");
    }
}

#[test]
fn room_for_the_session_is_asked_before_anything_is_read() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let model = bind(&checkpoint, AttentionForm::Latent);
    for beside in [
        SessionBytes {
            state_bytes: 1 << 62,
            workspace_bytes: 0,
        },
        SessionBytes {
            state_bytes: 0,
            workspace_bytes: 1 << 62,
        },
        SessionBytes {
            state_bytes: u64::MAX,
            workspace_bytes: u64::MAX,
        },
    ] {
        let never = |_, _| panic!("the load has started");
        match load(&model, &checkpoint, beside, never) {
            Err(RunError::DoesNotFit { need, .. }) => {
                assert!(need.weights_bytes > 0);
                assert_eq!(need.state_bytes, beside.state_bytes);
                assert_eq!(need.workspace_bytes, beside.workspace_bytes);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_session_plans_what_it_reserves() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    for form in [AttentionForm::Latent, AttentionForm::Expanded] {
        let model = bind(&checkpoint, form);
        let settings = |context, chunk, all_logits| SessionSettings {
            context_positions: context,
            chunk_positions: chunk,
            all_logits,
        };
        let planned = |settings: SessionSettings| settings.planned_bytes(&model, 2).unwrap();
        let base = planned(settings(100, 8, false));
        assert_eq!(base.state_bytes, model.footprint().state_bytes(100));
        // A chunk is no longer than the context, and every row of logits counts.
        assert_eq!(
            planned(settings(100, 100, false)),
            planned(settings(100, POSITIONS_MAX, false))
        );
        let rows = planned(settings(100, 8, true)).workspace_bytes - base.workspace_bytes;
        assert!(rows >= 7 * model.footprint().logit_row_bytes, "{rows}");
        let largest = planned(settings(POSITIONS_MAX, POSITIONS_MAX, true));
        assert!(largest.state_bytes > base.state_bytes);
        for count in [0, POSITIONS_MAX + 1, usize::MAX] {
            let refused = settings(count, 8, false).planned_bytes(&model, 2);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(&count.to_string()), "{error}");
        }
    }
}
