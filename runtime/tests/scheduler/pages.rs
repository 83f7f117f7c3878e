//! Sequences that share a pool of pages: who waits, and that nothing is lost.

use super::*;
use k3_testkit::Rng;

/// `sequences_max` of 200 positions each, which share `pages` pages of 64.
fn shared(sequences_max: usize, chunk: usize, pages: usize) -> SchedulerSettings {
    SchedulerSettings {
        context_positions: 200,
        context_total: Some(pages * 64),
        ..settings(sequences_max, chunk)
    }
}

/// A request for `gen_count` tokens after `len`, with so many choices.
fn ask(len: usize, gen_count: usize, choices: u32, vocab: usize) -> GenerateRequest {
    let choice = |index| Choice { index, watch: None };
    GenerateRequest {
        choices: (0..choices).map(choice).collect(),
        token_rows: true,
        ..GenerateRequest::new(
            prompt(len, vocab, len as u64),
            gen_count,
            SamplingSettings {
                temperature: 0.8,
                seed: len as u64,
                ..SamplingSettings::default()
            },
        )
    }
}

/// Requests whose lengths lie around the ends of pages and anywhere else.
fn random_requests(random: &mut Rng, vocab: usize) -> Vec<GenerateRequest> {
    let lengths = [1, 2, 30, 60, 63, 64, 65, 100, 126, 128, 130, 170];
    let requests = (0..16).map(|_| {
        let len = lengths[random.below(lengths.len())];
        let choices = 1 + u32::from(random.below(4) == 0);
        ask(len, 1 + random.below(8), choices, vocab)
    });
    requests.collect()
}

#[test]
fn pages_that_come_and_go_in_any_order_change_nothing() {
    for (spec, guesses_max) in [(TinySpec::odd(2), 0), (TinySpec::small(1), 3)] {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        for seed in 0..4 {
            let random = &mut Rng::new(seed);
            let mut bench = Bench::new(&checkpoint, Way::default());
            // Each alone, on a scheduler of its own.
            let asked = random_requests(random, vocab);
            let again = random_requests(&mut Rng::new(seed), vocab);
            let alone: Vec<_> = again
                .into_iter()
                .flat_map(|request| {
                    let choices = request.choices.len();
                    bench.run(shared(choices, 64, 99), vec![request])
                })
                .collect();
            let mut settings = shared(4, 32, 6 + random.below(4));
            settings.guesses_max = guesses_max;
            let (source, cancel) = (&mut bench.source, Cancel::default());
            let mut scheduler = Scheduler::new(&bench.model, source, &bench.pool, settings, cancel);
            let (mut answers, mut events) = (Answers::new(), Vec::new());
            let mut called_off = Vec::new();
            for request in asked {
                let cancel = request.cancel.clone();
                let id = scheduler.submit(request).unwrap();
                for _ in 0..random.below(6) {
                    scheduler.step(&mut events).unwrap();
                    take(&mut answers, &mut events);
                }
                // Some go while they wait, some while they run.
                if random.below(4) == 0 {
                    cancel.request();
                    called_off.push(id);
                }
            }
            finish(&mut scheduler, &mut answers);
            let (free, all) = scheduler.free_pages();
            assert_eq!(free, all, "seed {seed}");
            for ((key, got), want) in answers.iter().zip(&alone) {
                let what = (seed, guesses_max, key);
                if got.reason() != FinishReason::Cancelled {
                    same(got, want, &what);
                    continue;
                }
                assert!(called_off.contains(&key.0), "{what:?}");
                let so_far = got.ids.len();
                assert_eq!(got.ids, want.ids[..so_far], "{what:?}");
                assert!(got.rows == want.rows[..so_far], "{what:?}");
            }
        }
    }
}

/// Ids of the requests that have been admitted.
fn admitted(events: &[Event]) -> Vec<u64> {
    let admitted = |event: &&Event| matches!(event.update, Update::Admitted { .. });
    let ids = events.iter().filter(admitted);
    ids.map(|event| event.request.0).collect()
}

#[test]
fn a_request_waits_for_its_pages_and_is_not_overtaken() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let (source, cancel) = (&mut bench.source, Cancel::default());
    let settings = shared(4, 64, 6);
    let mut scheduler = Scheduler::new(&bench.model, source, &bench.pool, settings, cancel);
    // Four pages; three, which are not there; one, which is.
    for (len, gen_count) in [(190, 3), (128, 1), (10, 2)] {
        scheduler.submit(ask(len, gen_count, 1, vocab)).unwrap();
    }
    let mut events = Vec::new();
    scheduler.step(&mut events).unwrap();
    assert_eq!(admitted(&events), [0]);
    assert_eq!(scheduler.free_pages(), (2, 6));
    assert_eq!(
        (scheduler.running_count(), scheduler.waiting_count()),
        (1, 2)
    );
    while scheduler.running_count() > 0 && scheduler.waiting_count() == 2 {
        scheduler.step(&mut events).unwrap();
    }
    let ended = |event: &Event| matches!(event.update, Update::Ended(_));
    let first_end = events.iter().position(ended).unwrap();
    assert_eq!(events[first_end].request.0, 0);
    while !scheduler.is_idle() {
        scheduler.step(&mut events).unwrap();
    }
    // Both others at once, after the first had gone.
    assert_eq!(admitted(&events), [0, 1, 2]);
    assert_eq!(admitted(&events[first_end..]), [1, 2]);
    assert_eq!(scheduler.free_pages(), (6, 6));
}

#[test]
fn all_choices_of_a_request_have_their_pages_or_none_has() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let (source, cancel) = (&mut bench.source, Cancel::default());
    let settings = shared(4, 64, 6);
    let mut scheduler = Scheduler::new(&bench.model, source, &bench.pool, settings, cancel);
    scheduler.submit(ask(60, 4, 1, vocab)).unwrap();
    scheduler.submit(ask(60, 5, 3, vocab)).unwrap();
    let mut events = Vec::new();
    scheduler.step(&mut events).unwrap();
    // Six pages for three choices, and one is taken.
    assert_eq!(admitted(&events), [0]);
    assert_eq!(scheduler.free_pages(), (5, 6));
    let mut answers = Answers::new();
    take(&mut answers, &mut events);
    finish(&mut scheduler, &mut answers);
    assert_eq!(answers.len(), 4);
    assert!(answers.values().all(|answer| !answer.ids.is_empty()));
    assert_eq!(scheduler.free_pages(), (6, 6));
    // What all pages together do not hold is refused at once.
    let Err(refused) = scheduler.submit(ask(128, 1, 3, vocab)) else {
        panic!("nine pages of six");
    };
    assert_eq!(
        refused.why,
        RefusalReason::Pages {
            choices: 3,
            positions: 129,
            needed: 9,
            pages: 6
        }
    );
    let text = refused.to_string();
    assert!(text.contains("raise --context-total to 576"), "{text}");
    // A single one of them may have its whole context.
    scheduler.submit(ask(199, 1, 1, vocab)).unwrap();
    finish(&mut scheduler, &mut answers);
    assert_eq!(scheduler.free_pages(), (6, 6));
}

#[test]
fn a_sweep_that_fails_gives_its_pages_back() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let mut source = Counting::all(&mut bench.source);
    source.fails_at = Some(30);
    let settings = shared(3, 16, 5);
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let mut scheduler = Scheduler::new(&bench.model, &mut source, &bench.pool, settings, cancel);
    for len in [100, 20, 70, 60] {
        scheduler.submit(ask(len, 3, 1, vocab)).unwrap();
    }
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    let failed = |answer: &&Answer| answer.reason() == FinishReason::Failed;
    let count = answers.values().filter(failed).count();
    assert!((1..4).contains(&count), "{count}");
    assert_eq!(scheduler.free_pages(), (5, 5));
    // Nor does a scheduler that is stopped keep any.
    scheduler.submit(ask(100, 3, 1, vocab)).unwrap();
    let mut events = Vec::new();
    scheduler.step(&mut events).unwrap();
    assert_eq!(scheduler.free_pages(), (3, 5));
    stop.request();
    assert!(scheduler.step(&mut events).is_err());
    assert_eq!(scheduler.free_pages(), (5, 5));
}
