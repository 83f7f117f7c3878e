//! Requests from many threads, run on one.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{BASE, Case, Way};
use k3_actors::scheduler::{Answer, SchedulerHandle, serve};
use k3_models::ModelFamily as _;
use k3_runtime::scheduler::{Choice, FinishReason, RefusalReason, TokenWatch, Update};
use k3_runtime::{
    Cancel, ComputePool, GenerateRequest, RunError, SamplingSettings, Scheduler, SchedulerSettings,
};
use k3_testkit::TinySpec;

const CONTEXT: usize = 16;

fn settings(queue_max: usize) -> SchedulerSettings {
    SchedulerSettings {
        sequences_max: 4,
        queue_max,
        ..SchedulerSettings::single(CONTEXT, 4)
    }
}

/// Serves `clients` from a streamed model on this thread.
fn with_server<R: Send>(
    settings: SchedulerSettings,
    cancel: &Cancel,
    clients: impl FnOnce(SchedulerHandle) -> R + Send,
) -> (R, Result<(), RunError>) {
    let case = Case::new(&TinySpec::small(4));
    let way = Way { chunk: 8, ..BASE };
    let (model, plan) = case.prepare(&way);
    let mut supervisor = case.start(&model, &plan, &BASE, None);
    let pool = ComputePool::new(1).unwrap();
    let (handle, mailbox) = SchedulerHandle::new(settings, model.vocab_size());
    let served = thread::scope(|scope| {
        let clients = scope.spawn(|| clients(handle));
        let source = supervisor.source();
        let mut scheduler = Scheduler::new(&model, source, &pool, settings, cancel.clone());
        let result = serve(&mut scheduler, mailbox);
        (clients.join().unwrap(), result)
    });
    assert!(supervisor.shutdown().failures.is_empty());
    served
}

fn request(seed: u64, gen_count: usize) -> GenerateRequest {
    let sampling = SamplingSettings {
        temperature: 0.8,
        seed,
        ..SamplingSettings::default()
    };
    let id = u32::try_from(seed % 20).unwrap();
    GenerateRequest::new(vec![id, 3, 5], gen_count, sampling)
}

/// All ids, and why it ended.
fn read(answer: &Answer) -> (Vec<u32>, FinishReason) {
    let (mut ids, mut reason) = (Vec::new(), None);
    while let Some((_, update)) = answer.next() {
        assert_eq!(reason, None, "nothing follows the last event");
        match update {
            Update::Token { id, .. } => ids.push(id),
            Update::Ended(ended) => reason = Some(ended.reason),
            _ => {}
        }
    }
    (ids, reason.expect("a last event"))
}

#[test]
fn many_clients_get_what_each_would_get_alone() {
    let cancel = Cancel::default();
    let (alone, result) = with_server(settings(1), &cancel, |handle| {
        let answers = (0..12).map(|seed| read(&handle.submit(request(seed, 6)).unwrap()));
        answers.collect::<Vec<_>>()
    });
    result.unwrap();
    let (together, result) = with_server(settings(12), &cancel, |handle| {
        thread::scope(|scope| {
            let clients = (0..12).map(|seed| {
                let handle = handle.clone();
                scope.spawn(move || read(&handle.submit(request(seed, 6)).unwrap()))
            });
            let clients: Vec<_> = clients.collect();
            let answers = clients.into_iter().map(|client| client.join().unwrap());
            answers.collect::<Vec<_>>()
        })
    });
    result.unwrap();
    assert_eq!(together, alone);
    assert!(alone.iter().all(|(ids, _)| ids.len() == 6));
}

#[test]
fn a_full_queue_and_an_impossible_request_are_refused_at_once() {
    let cancel = Cancel::default();
    let ((), result) = with_server(settings(3), &cancel, |handle| {
        let refused = handle.submit(request(1, CONTEXT)).unwrap_err();
        assert!(refused.to_string().contains("--context"), "{refused}");
        let mut answers = Vec::new();
        let mut is_full = false;
        // Some run meanwhile; the rest fill the queue.
        for seed in 0..1000 {
            match handle.submit(request(seed, 8)) {
                Ok(answer) => answers.push(answer),
                Err(refused) => {
                    assert_eq!(refused.why, RefusalReason::QueueFull { queue_max: 3 });
                    is_full = true;
                    break;
                }
            }
        }
        assert!(is_full && answers.len() >= 3);
        assert!(handle.waiting_count() <= 3);
        for answer in &answers {
            assert_eq!(read(answer).0.len(), 8);
        }
        assert_eq!(handle.waiting_count(), 0);
    });
    result.unwrap();
}

/// Counts how many of it are alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TokenWatch for Alive {
    fn token(&mut self, _id: u32) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }
}

#[test]
fn ten_thousand_that_are_called_off_leave_nothing_behind() {
    let cancel = Cancel::default();
    let alive = Arc::new(AtomicUsize::new(0));
    let ((), result) = with_server(settings(64), &cancel, |handle| {
        let patience = Instant::now();
        for seed in 0..10_000 {
            let watched = || GenerateRequest {
                choices: vec![Choice {
                    index: 0,
                    watch: Some(Box::new(Alive::new(&alive))),
                }],
                ..request(seed, 8)
            };
            let answer = loop {
                match handle.submit(watched()) {
                    Ok(answer) => break answer,
                    Err(_) => thread::sleep(Duration::from_micros(50)),
                }
                assert!(patience.elapsed() < Duration::from_secs(300));
            };
            match seed % 3 {
                // Gone without a word.
                0 => drop(answer),
                1 => answer.cancel(),
                _ => drop(answer.next()),
            }
        }
        while alive.load(Ordering::SeqCst) > 0 {
            assert!(patience.elapsed() < Duration::from_secs(300));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(handle.waiting_count(), 0);
        // And it still works.
        assert_eq!(read(&handle.submit(request(1, 5)).unwrap()).0.len(), 5);
    });
    result.unwrap();
}

#[test]
fn stopping_gives_everybody_a_last_event() {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let (reasons, result) = with_server(settings(32), &cancel, move |handle| {
        let answers: Vec<_> = (0..20)
            .map(|seed| handle.submit(request(seed, 12)).unwrap())
            .collect();
        let first = answers[0].next();
        assert!(matches!(first, Some((0, Update::Admitted { .. }))));
        stop.request();
        let reasons = answers.iter().map(|answer| read(answer).1);
        reasons.collect::<Vec<_>>()
    });
    assert!(matches!(result, Err(RunError::Cancelled)));
    assert!(reasons.contains(&FinishReason::Cancelled));
}

#[test]
fn an_idle_scheduler_stops_when_it_is_asked_to() {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let (handle, result) = with_server(settings(2), &cancel, move |handle| {
        thread::sleep(Duration::from_millis(20));
        stop.request();
        handle
    });
    assert!(matches!(result, Err(RunError::Cancelled)));
    let refused = handle.submit(request(1, 1)).unwrap_err();
    assert_eq!(refused.why, RefusalReason::Stopped);
}
