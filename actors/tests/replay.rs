//! Replays of traces small enough to follow by hand.

use std::path::Path;

use k3_actors::sim::{AccessModel, ReplayError, ReplayPolicy, ReplaySettings, Tally, replay};
use k3_config::CachePolicy;
use k3_formats::ExpertTrace;
use k3_formats::trace::TraceWriter;

/// A trace of sweeps of layers 1 and 2, each layer's picks `[position][2]`.
fn trace(sweeps: &[[&[u32]; 2]]) -> ExpertTrace {
    let mut writer = TraceWriter::new(Vec::new());
    for sweep in sweeps {
        for (layer, picks) in (1..).zip(sweep) {
            writer.layer(layer, picks).unwrap();
        }
    }
    ExpertTrace::parse(Path::new("trace"), &writer.finish().unwrap()).unwrap()
}

fn settings(slot_counts: &[usize]) -> ReplaySettings {
    ReplaySettings {
        policy: ReplayPolicy::Cache(CachePolicy::Lru),
        slot_counts: slot_counts.to_vec(),
        transit_count: 0,
        top_k: 2,
        last_pass: false,
        prompt_positions: None,
        model: AccessModel::Pick,
        expert_bytes: 10,
    }
}

#[test]
fn steps_are_sweeps() {
    let trace = trace(&[
        [&[0, 1, 0, 2], &[5, 6, 7, 5]],
        [&[2, 3], &[5, 6]],
        [&[2, 3], &[5, 0]],
    ]);
    let pick = replay(&trace, &settings(&[100, 4])).unwrap();
    assert_eq!((pick.position_count, pick.prompt_position_count), (4, 2));
    assert_eq!(pick.layer_count, 2);
    let hits = |row: usize| -> Vec<u64> {
        let steps = pick.rows[row].steps.iter();
        steps.map(|step| step.tally.hits).collect()
    };
    assert_eq!(hits(0), [2, 3, 3]);
    // 0 1 | 5 6 || 0 2 | 7 5 ||: 5 is gone when it comes again, 0 is not.
    assert_eq!(hits(1), [1, 2, 3]);
    assert_eq!(pick.rows[0].tallies.decode, Tally::new(8, 6, 10));
    assert_eq!(pick.rows[0].tallies.all, Tally::new(16, 8, 10));
    assert_eq!(pick.rows[0].tallies.final_step.hit_percent, 75.0);
    assert_eq!(pick.rows[0].steps[0].tally.read_bytes, 60);

    let batch = ReplaySettings {
        model: AccessModel::Batch,
        ..settings(&[100])
    };
    let batch = replay(&trace, &batch).unwrap();
    let steps = &batch.rows[0].steps;
    assert_eq!(steps[0].tally, Tally::new(6, 0, 10), "each expert once");
    assert_eq!(steps[1].tally, Tally::new(4, 3, 10));
    assert_eq!(steps[0].position_count, 2);
    assert!(steps[0].is_prompt && !steps[1].is_prompt);
}

#[test]
fn the_last_pass_is_a_prompt_and_single_positions() {
    let first: [&[u32]; 2] = [&[0, 1, 2, 3], &[0, 1, 2, 3]];
    let last: [&[u32]; 2] = [&[0, 1, 2, 3, 1, 0, 4, 5], &[0, 1, 2, 3, 3, 2, 3, 6]];
    let trace = trace(&[first, last]);
    for model in [AccessModel::Pick, AccessModel::Batch] {
        let passes = ReplaySettings {
            last_pass: true,
            model,
            ..settings(&[100])
        };
        let report = replay(&trace, &passes).unwrap();
        let steps = &report.rows[0].steps;
        let counts: Vec<_> = steps
            .iter()
            .map(|step| (step.position_count, step.tally.hits))
            .collect();
        assert_eq!(counts, [(2, 0), (1, 4), (1, 1)], "{model}");
        assert_eq!(report.prompt_position_count, 2);
        let whole = ReplaySettings {
            prompt_positions: Some(4),
            ..passes
        };
        let report = replay(&trace, &whole).unwrap();
        assert_eq!(report.rows[0].steps.len(), 1);
        assert_eq!(report.rows[0].tallies.decode.requests, 0);
        assert_eq!(report.rows[0].tallies.decode.hit_percent, 0.0);
    }
}

#[test]
fn transit_slots_are_not_the_policys() {
    let sweep: [&[u32]; 2] = [&[0, 1], &[2, 3]];
    let trace = trace(&[sweep, sweep, sweep]);
    for (policy, model, decode_hits) in [
        ("lru", AccessModel::Batch, 0),
        ("lru", AccessModel::Pick, 0),
        ("deep-layers", AccessModel::Batch, 4),
        ("decayed-frequency", AccessModel::Batch, 4),
        ("decayed-frequency", AccessModel::Pick, 4),
        ("belady", AccessModel::Pick, 4),
    ] {
        let reserved = ReplaySettings {
            policy: policy.parse().unwrap(),
            transit_count: 3,
            model,
            ..settings(&[5])
        };
        let report = replay(&trace, &reserved).unwrap();
        let row = &report.rows[0];
        assert_eq!((row.slot_count, row.cache_slot_count), (5, 2));
        assert_eq!(row.tallies.decode.hits, decode_hits, "{policy} {model}");
        assert_eq!(row.belady.decode.hits, 4);
        assert_eq!(row.slot_bytes, 50);
    }
}

#[test]
fn a_report_is_plain_data() {
    let trace = trace(&[[&[0, 1], &[2, 3]]]);
    let json = serde_json::to_value(replay(&trace, &settings(&[4])).unwrap()).unwrap();
    assert_eq!(json["policy"], "lru");
    assert_eq!(json["model"], "pick");
    assert_eq!(json["rows"][0]["decode"]["requests"], 0);
    assert_eq!(json["rows"][0]["belady"]["all"]["hit_percent"], 0.0);
    assert_eq!(json["rows"][0]["steps"][0]["read_bytes"], 40);
    assert_eq!(json["rows"][0]["steps"][0]["is_prompt"], true);
}

#[test]
fn what_does_not_fit_is_refused() {
    let good = trace(&[[&[0, 1, 0, 2], &[5, 6, 7, 5]], [&[2, 3], &[5, 6]]]);
    let message = |trace: &ExpertTrace, settings: &ReplaySettings| -> String {
        replay(trace, settings).unwrap_err().to_string()
    };
    let with = |change: &dyn Fn(&mut ReplaySettings)| {
        let mut settings = settings(&[4]);
        change(&mut settings);
        settings
    };
    assert_eq!(
        replay(&ExpertTrace::default(), &settings(&[4])),
        Err(ReplayError::EmptyTrace)
    );
    let few = message(&good, &with(&|settings| settings.transit_count = 5));
    assert!(few.contains("4 slots are fewer than the 5"), "{few}");
    let topk = message(&good, &with(&|settings| settings.top_k = 3));
    assert!(
        topk.contains("4 picks in sweep 0") && topk.contains("multiple of 3"),
        "{topk}"
    );
    for zero in [
        with(&|settings| settings.top_k = 0),
        with(&|settings| settings.prompt_positions = Some(0)),
    ] {
        assert!(message(&good, &zero).contains("at least 1"));
    }
    for prompt in [1, 4] {
        let prompt = with(&|settings| settings.prompt_positions = Some(prompt));
        let text = message(&good, &prompt);
        assert!(text.contains("has 3 positions"), "{text}");
    }
    let uneven = trace(&[[&[0, 1, 0, 2], &[5, 6]]]);
    let uneven = message(&uneven, &settings(&[4]));
    assert!(uneven.contains("expected 4 (2 positions of 2)"), "{uneven}");
    let large = trace(&[[&[0, 1], &[5, 70_000]]]);
    assert!(message(&large, &settings(&[4])).contains("expert 70000 of layer 2"));
    let other = trace(&[[&[0, 1], &[5, 6]], [&[0, 1], &[]]]);
    assert!(message(&other, &settings(&[4])).contains("has 1 layers"));
}
