//! Wherever a run ends, nothing opens, and the next one makes the same files.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k3_formats::trunk::CodecChoice;
use k3_pack::PackError;
use k3_pack::error::Exit;
use k3_pack::trunk::{
    Hooks, JOURNAL_NAME, Point, TrunkError, TrunkPlan, TrunkSettings, TrunkSource, pack,
};

use crate::support::{names, small_config};
use crate::trunk_support::{
    Model, all_files, open_trunk, pack_all, pack_with, stripe_paths, trunk_settings, verify,
};

/// Runs until the points reached so far are such that it stops dead there, and
/// gives the last; `None` if the run was complete before.
fn run_until(
    source: &TrunkSource,
    settings: &TrunkSettings,
    is_last: &(dyn Fn(&[Point]) -> bool + Sync),
) -> Option<Point> {
    let reached = Mutex::new(Vec::new());
    let stop = |point: Point| {
        let mut reached = reached.lock().unwrap();
        reached.push(point);
        match is_last(&reached) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    // Slow enough that some blocks are written between two records.
    let hooks = Hooks {
        on_bytes: &|_| std::thread::sleep(Duration::from_millis(1)),
        at_point: &stop,
        ..Hooks::NONE
    };
    let plan = TrunkPlan::new(source, settings).unwrap();
    match pack(source, &plan, &AtomicBool::new(false), &hooks) {
        Ok(_) => None,
        Err(PackError::Trunk(TrunkError::Stopped { .. })) => reached.into_inner().unwrap().pop(),
        Err(error) => panic!("{error}"),
    }
}

/// As [`run_until`], to the `count`th point, whichever it is.
fn run_to(source: &TrunkSource, settings: &TrunkSettings, count: usize) -> Option<Point> {
    run_until(source, settings, &|points| points.len() == count)
}

/// Stops runs of `settings` where `is_last` says, and checks what is left then
/// and what the next run makes of it; `None` if the run was not stopped.
fn stop_and_go_on(
    source: &TrunkSource,
    settings: &TrunkSettings,
    reference: &BTreeMap<(usize, String), Vec<u8>>,
    is_last: &(dyn Fn(&[Point]) -> bool + Sync),
) -> Option<Point> {
    let point = run_until(source, settings, is_last);
    if let Some(point) = point {
        // All has its name before the run is told so.
        let is_whole = matches!(point, Point::Named(0) | Point::Complete);
        let opened = open_trunk(source, &settings.outs);
        assert_eq!(opened.is_ok(), is_whole, "{point:?}: {opened:?}");
        match (pack_all(source, settings), point) {
            (Err(PackError::Trunk(TrunkError::Exists { .. })), Point::Complete) => {}
            (Ok(summary), Point::Recorded(blocks)) => assert_eq!(summary.resumed_blocks, blocks),
            (Ok(_), _) => {}
            (Err(error), _) => panic!("{point:?}: {error}"),
        }
    }
    assert!(all_files(&settings.outs) == *reference, "{point:?}");
    for out in &settings.outs {
        std::fs::remove_dir_all(out).unwrap();
    }
    point
}

#[test]
fn a_stop_at_any_point_leaves_nothing_that_opens_and_is_made_good() {
    let model = Model::new(small_config(6, 8));
    let source = model.source();
    for stripes in [1_u16, 3] {
        let whole = model.outs("whole", stripes.into());
        let mut settings = trunk_settings(&whole, 2);
        settings.record.bytes = 40_000;
        pack_all(&source, &settings).unwrap();
        let reference = all_files(&whole);
        settings.outs = model.outs("part", stripes.into());
        // How many records there are depends on threads, and not on the plan.
        let mut records = 0;
        while stop_and_go_on(&source, &settings, &reference, &|points| {
            let is_record = |point: &&Point| matches!(point, Point::Recorded(_));
            points.iter().filter(is_record).count() > records
        })
        .is_some()
        {
            records += 1;
        }
        assert!(records > 3, "{records}");
        let named = (0..stripes).map(Point::Named);
        let others = [Point::Begun, Point::Table, Point::Headers, Point::Complete];
        for point in named.chain(others) {
            let is_last = |points: &[Point]| points.contains(&point);
            let last = stop_and_go_on(&source, &settings, &reference, &is_last);
            assert_eq!(last, Some(point));
        }
        whole
            .iter()
            .for_each(|out| std::fs::remove_dir_all(out).unwrap());
    }
}

#[test]
fn a_run_that_is_stopped_again_and_again_gets_there() {
    let model = Model::new(small_config(6, 8));
    let source = model.source();
    let whole = model.outs("whole", 2);
    let mut settings = trunk_settings(&whole, 1);
    settings.record.bytes = 40_000;
    pack_all(&source, &settings).unwrap();
    settings.outs = model.outs("part", 2);
    // Each run begins, records once, and is gone.
    let mut runs = 0;
    while run_to(&source, &settings, 2).is_some_and(|point| point != Point::Table) {
        runs += 1;
        assert!(runs < 1000);
    }
    assert!(runs > 5, "{runs}");
    pack_all(&source, &settings).unwrap();
    assert!(all_files(&settings.outs) == all_files(&whole));
}

/// The journal of a packing that was stopped after a few records.
fn stopped(source: &TrunkSource, settings: &TrunkSettings) -> PathBuf {
    assert!(run_to(source, settings, 4).is_some());
    settings.outs[0].join(JOURNAL_NAME)
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_torn_or_damaged_record_is_written_again() {
    let model = Model::new(small_config(6, 8));
    let source = model.source();
    let whole = model.outs("whole", 1);
    let mut settings = trunk_settings(&whole, 2);
    settings.record.bytes = 40_000;
    pack_all(&source, &settings).unwrap();
    let reference = all_files(&whole);
    type Change = fn(&mut Vec<u8>);
    let changes: [Change; 4] = [
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.truncate(bytes.len() - 60),
        |bytes| *bytes.last_mut().unwrap() ^= 1,
        |bytes| bytes.extend_from_slice(&[7; 100]),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        settings.outs = model.outs(&format!("torn{index}-"), 1);
        edit(&stopped(&source, &settings), change);
        let summary = pack_all(&source, &settings).unwrap();
        assert!(summary.resumed_blocks > 0, "{index}");
        assert!(all_files(&settings.outs) == reference, "{index}");
    }
    // Cut within what was asked for: nobody knows what the stripes are.
    settings.outs = model.outs("lost", 1);
    edit(&stopped(&source, &settings), |bytes| bytes.truncate(30));
    let error = pack_all(&source, &settings).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::Leftover { .. })),
        "{error}"
    );
    settings.restart = true;
    pack_all(&source, &settings).unwrap();
    assert!(all_files(&settings.outs) == reference);
}

#[test]
fn stripes_that_lack_what_the_journal_says_are_refused() {
    let model = Model::new(small_config(6, 8));
    let source = model.source();
    for change in ["shorter", "gone"] {
        let outs = model.outs(change, 1);
        let mut settings = trunk_settings(&outs, 2);
        settings.record.bytes = 40_000;
        stopped(&source, &settings);
        let partial = outs[0].join("trunk-00-of-01.k3trunk.partial");
        match change {
            "shorter" => edit(&partial, |bytes| bytes.truncate(8192)),
            _ => std::fs::remove_file(&partial).unwrap(),
        }
        let error = pack_all(&source, &settings).unwrap_err();
        assert!(
            matches!(error, PackError::Trunk(TrunkError::Damaged { .. })),
            "{error}"
        );
        assert_eq!(error.exit(), Exit::Refused);
        assert!(error.to_string().contains("--restart"), "{error}");
    }
}

#[test]
fn other_options_are_refused_and_named() {
    let model = Model::wide(2);
    let source = model.source();
    let outs = model.outs("out", 2);
    let settings = trunk_settings(&outs, 1);
    stopped(&source, &settings);
    let refused = |source: &TrunkSource, edit: &dyn Fn(&mut TrunkSettings), wanted: &str| {
        let mut settings = settings.clone();
        edit(&mut settings);
        let error = pack_all(source, &settings).unwrap_err();
        assert_eq!(error.exit(), Exit::Refused);
        let text = error.to_string();
        assert!(
            text.contains(wanted) && text.contains("--restart"),
            "{wanted}: {text}"
        );
    };
    refused(
        &source,
        &|s| s.codec = CodecChoice::Raw,
        "--codec: auto then, raw now",
    );
    refused(
        &source,
        &|s| s.weights = vec![2, 1],
        "--stripe-weights: 1,1 then, 2,1 now",
    );
    refused(&source, &|s| s.outs.truncate(1), "OUT 2:");
    refused(&source, &|s| s.outs.reverse(), "whose journal is not in");
    let recut = model.source().recut(source.block_bytes() / 2);
    refused(&recut, &|_| (), "--block-bytes:");
    let other = Model::new(small_config(2, 4));
    refused(&other.source(), &|_| (), "checkpoint:");
    // Threads and intervals do not decide the output.
    let mut settings = settings.clone();
    settings.threads = NonZeroUsize::new(4).unwrap();
    settings.record.bytes = 1;
    pack_all(&source, &settings).unwrap();
    verify(&model.path(), &outs).unwrap();
    refused(&source, &|_| (), "is there already");
    settings.restart = true;
    settings.codec = CodecChoice::Raw;
    settings.outs.truncate(1);
    settings.weights.clear();
    std::fs::remove_dir_all(&outs[1]).unwrap();
    pack_all(&source, &settings).unwrap();
    verify(&model.path(), &outs[..1]).unwrap();
    assert_eq!(names(&outs[0]), ["trunk-00-of-01.k3trunk"]);
}

#[test]
fn a_request_to_stop_keeps_what_is_written() {
    let model = Model::wide(3);
    let source = model.source();
    let whole = model.outs("whole", 1);
    pack_all(&source, &trunk_settings(&whole, 2)).unwrap();
    let outs = model.outs("part", 1);
    let plan = TrunkPlan::new(&source, &trunk_settings(&outs, 2)).unwrap();
    let cancel = AtomicBool::new(false);
    let seen = AtomicUsize::new(0);
    let hooks = Hooks {
        on_bytes: &|_| {
            if seen.fetch_add(1, Ordering::Relaxed) == 9 {
                cancel.store(true, Ordering::Relaxed);
            }
        },
        ..Hooks::NONE
    };
    let error = pack(&source, &plan, &cancel, &hooks).unwrap_err();
    let PackError::Trunk(TrunkError::Stopped { done, total }) = &error else {
        panic!("{error}");
    };
    assert!(*done >= 10 && done < total, "{done} of {total}");
    assert_eq!(error.exit(), Exit::Interrupted);
    assert!(error.to_string().contains("same command"), "{error}");
    open_trunk(&source, &outs).unwrap_err();
    let summary = pack_all(&source, &trunk_settings(&outs, 1)).unwrap();
    assert_eq!(summary.resumed_blocks, *done);
    assert!(all_files(&outs) == all_files(&whole));
}

#[test]
fn two_runs_do_not_write_to_one_place() {
    let model = Model::new(small_config(2, 4));
    let source = model.source();
    let outs = model.outs("out", 2);
    let settings = trunk_settings(&outs, 1);
    let other = |point: Point| {
        if point == Point::Begun {
            let error = pack_all(&source, &settings).unwrap_err();
            assert!(matches!(error, PackError::Busy { .. }), "{error}");
        }
        ControlFlow::Continue(())
    };
    pack_with(&source, &settings, &other).unwrap();
    let twice = trunk_settings(&[outs[0].clone(), outs[0].clone()], 1);
    let error = pack_all(&source, &twice).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::SameDirectory { .. })),
        "{error}"
    );
    let mut weighted = settings.clone();
    weighted.weights = vec![1];
    let error = pack_all(&source, &weighted).unwrap_err();
    assert!(
        matches!(error, PackError::Trunk(TrunkError::Weights { .. })),
        "{error}"
    );
    let nowhere = trunk_settings(&[model.dir.path().join("no/out")], 1);
    let error = pack_all(&source, &nowhere).unwrap_err();
    assert!(matches!(error, PackError::NoParent { .. }), "{error}");
    assert_eq!(stripe_paths(&outs).len(), 2);
}
