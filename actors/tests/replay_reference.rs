//! The replay of a trace recorded from the released model. Runs when
//! `K3_REFERENCE_DATA` names the folder that holds `real/expert_trace.bin`.

use k3_actors::sim::{AccessModel, ReplayPolicy, ReplayReport, ReplaySettings, replay};
use k3_config::CachePolicy;
use k3_formats::ExpertTrace;

const EXPERT_BYTES: u64 = 17_547_264;

/// 16 picks in 92 layers.
const PICKS_PER_POSITION: u64 = 1472;

fn trace() -> Option<ExpertTrace> {
    let path = k3_testkit::gates::reference_data()?.join("real/expert_trace.bin");
    let bytes = std::fs::read(&path).expect("K3_REFERENCE_DATA holds real/expert_trace.bin");
    Some(ExpertTrace::parse(&path, &bytes).unwrap())
}

fn settings(policy: ReplayPolicy, model: AccessModel, slot_counts: &[usize]) -> ReplaySettings {
    ReplaySettings {
        policy,
        slot_counts: slot_counts.to_vec(),
        transit_count: 0,
        top_k: 16,
        last_pass: true,
        prompt_positions: None,
        model,
        expert_bytes: EXPERT_BYTES,
    }
}

/// Slots in `gigabytes` of 10^9 bytes.
fn slots(gigabytes: u64) -> usize {
    usize::try_from(gigabytes * 1_000_000_000 / EXPERT_BYTES).unwrap()
}

fn lru(trace: &ExpertTrace, model: AccessModel, slot_counts: &[usize]) -> ReplayReport {
    let policy = ReplayPolicy::Cache(CachePolicy::Lru);
    replay(trace, &settings(policy, model, slot_counts)).unwrap()
}

fn rounded(value: f64) -> String {
    format!("{value:.2}")
}

#[test]
fn lru_hits_what_the_recorded_run_hit() {
    let Some(trace) = trace() else { return };
    let counts = [2073, 2802, 3531, 4386];
    let report = lru(&trace, AccessModel::Pick, &counts);
    let got: Vec<_> = report
        .rows
        .iter()
        .map(|row| rounded(row.tallies.final_step.hit_percent))
        .collect();
    assert_eq!(got, ["29.89", "32.20", "33.08", "35.53"]);
    assert_eq!(report.position_count, 12);
    assert_eq!(report.prompt_position_count, 5);
    assert_eq!(report.layer_count, 92);
    let row = &report.rows[0];
    assert_eq!(row.steps.len(), 8);
    assert_eq!(row.tallies.all.requests, 12 * PICKS_PER_POSITION);
    assert_eq!(row.tallies.final_step.requests, PICKS_PER_POSITION);
    let gigabytes = |step: usize| rounded(row.steps[step].tally.read_bytes as f64 / 1e9);
    let read = [0, 1, 2, 3].map(gigabytes);
    assert_eq!(read, ["103.88", "16.18", "19.90", "14.07"]);

    let batch = lru(&trace, AccessModel::Batch, &counts);
    let last = rounded(batch.rows[3].tallies.final_step.hit_percent);
    assert_eq!(last, "35.60");
    let prompt = &batch.rows[0].steps[0].tally;
    assert_eq!((prompt.hits, prompt.requests), (0, 5682), "each id once");
}

#[test]
fn deep_layers_hit_from_the_first_gigabytes_on() {
    let Some(trace) = trace() else { return };
    let counts = [slots(8), slots(13), slots(36)];
    for model in [AccessModel::Pick, AccessModel::Batch] {
        let deep = ReplaySettings {
            transit_count: 16,
            ..settings(ReplayPolicy::default(), model, &counts)
        };
        let deep = replay(&trace, &deep).unwrap();
        let decode = |row: usize| deep.rows[row].tallies.decode.hit_percent;
        assert!(decode(0) >= 8.5, "{model}: {}", decode(0));
        assert!(decode(1) >= 14.5, "{model}: {}", decode(1));
        let lru = lru(&trace, model, &counts);
        assert_eq!(lru.rows[0].tallies.decode.hits, 0, "{model}");
        assert!(
            decode(2) >= lru.rows[2].tallies.decode.hit_percent,
            "{model}"
        );
    }
}

/// No policy can have at hand what the trace never named before.
#[test]
fn the_bound_is_what_repeats() {
    let Some(trace) = trace() else { return };
    let all = [slots(2), slots(8), slots(26), slots(1000)];
    for model in [AccessModel::Pick, AccessModel::Batch] {
        let report = replay(&trace, &settings(ReplayPolicy::Belady, model, &all)).unwrap();
        let decode: Vec<_> = report.rows.iter().map(|row| row.tallies.decode).collect();
        assert_eq!(decode[0].requests, 7 * PICKS_PER_POSITION);
        assert_eq!(decode[3].hits, decode[3].requests - 4328);
        assert!(decode.is_sorted_by(|a, b| a.hits < b.hits));
    }
}
