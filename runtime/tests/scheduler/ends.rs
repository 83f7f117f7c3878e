//! How requests end, and what never begins.

use super::*;

#[test]
fn calling_one_off_disturbs_none() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let want = bench.run(settings(8, 6), requests(vocab));
    for (called_off, after) in [(0, 0), (1, 1), (4, 2), (7, 5), (3, 3)] {
        let mut requests = requests(vocab);
        let off = requests[called_off].cancel.clone();
        let late = requests.len() - 1;
        if called_off != late {
            requests[late].deadline = Some(Instant::now() + Duration::from_secs(3600));
        }
        let cancel = Cancel::default();
        let mut scheduler = Scheduler::new(
            &bench.model,
            &mut bench.source,
            &bench.pool,
            settings(6, 6),
            cancel,
        );
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        let mut answers = Answers::new();
        let mut events = Vec::new();
        for _ in 0..after {
            scheduler.step(&mut events).unwrap();
        }
        off.request();
        take(&mut answers, &mut events);
        finish(&mut scheduler, &mut answers);
        for (index, (got, want)) in answers.values().zip(&want).enumerate() {
            if index == called_off {
                assert_eq!(got.reason(), FinishReason::Cancelled);
                assert_eq!(got.ids[..], want.ids[..got.ids.len()]);
            } else {
                same(got, want, &(called_off, after, index));
            }
        }
    }
}

/// Counts what is alive of it.
struct Token(#[allow(dead_code, reason = "counted by its references")] Arc<()>);

impl TokenWatch for Token {
    fn token(&mut self, _id: u32) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[test]
fn ten_thousand_queued_and_called_off_leave_nothing_behind() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let alive = Arc::new(());
    let cancel = Cancel::default();
    let mut settings = settings(2, 4);
    settings.queue_max = 100;
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings,
        cancel,
    );
    let mut events = Vec::new();
    let mut ended = 0;
    for round in 0..100 {
        let mut cancels = Vec::new();
        for index in 0..100 {
            let watch = Token(Arc::clone(&alive));
            let request = GenerateRequest {
                choices: vec![Choice {
                    index: 0,
                    watch: Some(Box::new(watch)),
                }],
                ..GenerateRequest::new(vec![1, 2, 3], 8, SamplingSettings::default())
            };
            cancels.push(request.cancel.clone());
            if round % 10 == 0 && index == 50 {
                // Two of them get as far as a sweep.
                scheduler.step(&mut events).unwrap();
            }
            scheduler.submit(request).unwrap();
        }
        assert!(Arc::strong_count(&alive) >= 100);
        for cancel in cancels {
            cancel.request();
        }
        assert_eq!(scheduler.step(&mut events).unwrap(), None);
        let last = |event: &Event| matches!(event.update, Update::Ended(_));
        ended += events.drain(..).filter(last).count();
        assert!(scheduler.is_idle());
        assert_eq!(Arc::strong_count(&alive), 1, "round {round}");
        let (free, all) = scheduler.free_pages();
        assert_eq!(free, all, "round {round}");
    }
    assert_eq!(ended, 10_000);
    // All states are free again.
    let both = vec![
        Choice::default(),
        Choice {
            index: 1,
            watch: None,
        },
    ];
    let request = GenerateRequest {
        choices: both,
        ..GenerateRequest::new(vec![1], 1, SamplingSettings::default())
    };
    scheduler.submit(request).unwrap();
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    assert_eq!(answers.len(), 2);
}

/// Stops a choice at its third token.
struct Third(usize);

impl TokenWatch for Third {
    fn token(&mut self, _id: u32) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 == 3 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_choice_ends_at_its_count_its_ids_its_watch_or_its_time() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = || GenerateRequest::new(vec![1, 2, 3], 8, SamplingSettings::default());
    let full = bench.run(settings(1, 2), vec![request()]).remove(0);
    assert_eq!((full.ids.len(), full.reason()), (8, FinishReason::Length));
    let stop = full.ids[4];
    let first = full.ids.iter().position(|id| *id == stop).unwrap();
    let by_id = GenerateRequest {
        stop_ids: vec![stop],
        ..request()
    };
    let by_watch = GenerateRequest {
        choices: vec![Choice {
            index: 0,
            watch: Some(Box::new(Third(0))),
        }],
        ..request()
    };
    let by_time = GenerateRequest {
        deadline: Some(Instant::now()),
        ..request()
    };
    let prompt_only = GenerateRequest {
        gen_count: 0,
        prompt_rows: PromptRows::All,
        ..request()
    };
    let requests = vec![by_id, by_watch, by_time, prompt_only];
    let got = bench.run(settings(3, 2), requests);
    assert_eq!(got[0].ids, full.ids[..=first]);
    assert_eq!(got[0].reason(), FinishReason::StopId);
    assert_eq!(got[1].ids, full.ids[..3]);
    assert_eq!(got[1].reason(), FinishReason::Watch);
    assert!(got[2].ids.is_empty());
    assert_eq!(got[2].reason(), FinishReason::Deadline);
    let vocab = written.tiny.config.vocab_size;
    assert!(got[3].ids.is_empty());
    assert_eq!(got[3].reason(), FinishReason::Length);
    assert_eq!(got[3].prompt_rows.len(), 3 * vocab);
}

#[test]
fn what_could_never_run_is_refused_and_handed_back() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let vocab = written.tiny.config.vocab_size;
    let cancel = Cancel::default();
    let mut settings = settings(2, 4);
    (settings.queue_max, settings.prompt_logits) = (1, false);
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings,
        cancel,
    );
    let good = || GenerateRequest::new(vec![1], 1, SamplingSettings::default());
    let unknown = u32::try_from(vocab).unwrap();
    let three = (0..3).map(|index| Choice { index, watch: None });
    let cases = [
        (
            GenerateRequest {
                prompt_ids: vec![],
                ..good()
            },
            "empty",
        ),
        (
            GenerateRequest {
                prompt_ids: vec![1, unknown],
                ..good()
            },
            "vocabulary",
        ),
        (
            GenerateRequest {
                gen_count: CONTEXT,
                ..good()
            },
            "--context",
        ),
        (
            GenerateRequest {
                gen_count: usize::MAX,
                ..good()
            },
            "--context",
        ),
        (
            GenerateRequest {
                choices: vec![],
                ..good()
            },
            "choices",
        ),
        (
            GenerateRequest {
                choices: three.collect(),
                ..good()
            },
            "choices",
        ),
        (
            GenerateRequest {
                prompt_rows: PromptRows::All,
                ..good()
            },
            "every prompt position",
        ),
        (
            GenerateRequest {
                sampling: SamplingSettings {
                    top_p: 0.0,
                    ..SamplingSettings::default()
                },
                ..good()
            },
            "top-p",
        ),
    ];
    for (request, want) in cases {
        let prompt = request.prompt_ids.clone();
        let refused = scheduler.submit(request).unwrap_err();
        assert!(refused.to_string().contains(want), "{refused}");
        assert_eq!(refused.request.prompt_ids, prompt);
    }
    scheduler.submit(good()).unwrap();
    let refused = scheduler.submit(good()).unwrap_err();
    assert_eq!(refused.why, RefusalReason::QueueFull { queue_max: 1 });
}

#[test]
fn a_request_whose_model_fails_takes_nobody_with_it() {
    const BROKEN: u32 = 7;
    let written = write_with(&TinySpec::odd(2), |tensors| {
        let mut tensors = tensors.iter_mut();
        let embeddings = tensors.find(|tensor| tensor.name.ends_with("embed_tokens.weight"));
        if let Some(embeddings) = embeddings {
            let hidden = usize::try_from(embeddings.shape[1]).unwrap();
            let at = 2 * hidden * BROKEN as usize;
            embeddings.bytes[at..at + 2].copy_from_slice(&[0x80, 0x7F]);
        }
    });
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = |ids: &[u32]| GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(ids.to_vec(), 6, SamplingSettings::default())
    };
    let healthy = [request(&[1, 2, 3, 4]), request(&[5, 6])];
    let want = bench.run(settings(2, 64), healthy.into());
    let choices = (0..2).map(|index| Choice { index, watch: None });
    let broken = GenerateRequest {
        choices: choices.collect(),
        ..request(&[3, BROKEN, 3])
    };
    let requests = vec![request(&[1, 2, 3, 4]), broken, request(&[5, 6])];
    let got = bench.run(settings(4, 64), requests);
    same(&got[0], &want[0], &0);
    same(&got[3], &want[1], &3);
    for failed in &got[1..3] {
        assert_eq!(failed.reason(), FinishReason::Failed);
        let error = failed.ended.as_ref().unwrap().error.as_ref().unwrap();
        assert!(error.to_string().contains("position 1"), "{error}");
    }
}
