//! What is read for whom, and what happens when it cannot be.

use super::*;

#[test]
fn shares_of_the_bytes_add_up_to_what_was_read() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let mut source = Counting::all(&mut bench.source);
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut source,
        &bench.pool,
        settings(5, 6),
        cancel,
    );
    for request in requests(vocab) {
        scheduler.submit(request).unwrap();
    }
    let mut answers = Answers::new();
    let reports = finish(&mut scheduler, &mut answers);
    let read: u64 = reports.iter().map(|report| report.read.total_bytes()).sum();
    let ended = answers
        .values()
        .map(|answer| answer.ended.as_ref().unwrap());
    let counts: Vec<_> = ended.map(|ended| ended.counts).collect();
    let shared: u64 = counts.iter().map(|counts| counts.read_bytes).sum();
    assert_eq!((shared, read > 0), (read, true));
    let positions: u64 = reports.iter().map(|report| report.positions).sum();
    let computed: u64 = counts.iter().map(|counts| counts.positions).sum();
    assert_eq!(computed, positions);
    assert_eq!(scheduler.counts().positions, positions);
    // Everything a request computes: its prompt and all tokens but the last.
    for (counts, request) in counts.iter().zip(requests(vocab)) {
        let own = request.prompt_ids.len() + request.gen_count - 1;
        assert_eq!(counts.positions, own as u64);
    }
}

#[test]
fn a_sweep_that_fails_ends_its_own_and_the_next_goes_on() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = |id| GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(vec![id, 2], 4, SamplingSettings::default())
    };
    let want = bench.run(settings(1, 8), (1..5).map(request).collect());
    let mut source = Counting::all(&mut bench.source);
    source.fails_at = Some(40);
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut source,
        &bench.pool,
        settings(2, 8),
        cancel,
    );
    for id in 1..5 {
        scheduler.submit(request(id)).unwrap();
    }
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    let answers: Vec<_> = answers.into_values().collect();
    for (index, (got, want)) in answers.iter().zip(&want).enumerate() {
        if index < 2 {
            assert_eq!(got.reason(), FinishReason::Failed);
            let error = got.ended.as_ref().unwrap().error.as_ref().unwrap();
            assert!(error.to_string().contains("the disk is gone"), "{error}");
            assert_eq!(got.ids[..], want.ids[..got.ids.len()]);
        } else {
            same(got, want, &index);
        }
    }
}

#[test]
fn stopping_everything_gives_everybody_a_last_event() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings(3, 4),
        cancel.clone(),
    );
    for request in requests(vocab) {
        scheduler.submit(request).unwrap();
    }
    let mut events = Vec::new();
    for _ in 0..4 {
        scheduler.step(&mut events).unwrap();
    }
    cancel.request();
    assert!(matches!(
        scheduler.step(&mut events),
        Err(RunError::Cancelled)
    ));
    let mut answers = Answers::new();
    take(&mut answers, &mut events);
    assert_eq!(answers.len(), 8);
    assert!(answers.values().all(|answer| answer.ended.is_some()));
    assert!(scheduler.is_idle());
}
