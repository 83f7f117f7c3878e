//! The pool as its users see it. The processor-time test is alone in `idle.rs`.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::Duration;

use k3_threads::{Pool, Setup};

/// Runs under an interpreter too, where a thousand rounds take minutes.
const ROUNDS: usize = if cfg!(miri) { 10 } else { 2000 };

fn pool(count: usize, patience: Duration) -> Pool {
    let setup = Setup {
        count,
        name: "test",
        patience,
    };
    let (pool, indices) = Pool::start(setup, |index| index).unwrap();
    assert_eq!(indices, (1..count).collect::<Vec<_>>());
    pool
}

#[test]
fn every_index_runs_once_on_its_own_thread() {
    for count in [1, 2, 3, 5] {
        let pool = pool(count, Duration::from_micros(20));
        let threads: Vec<_> = (0..count).map(|_| Mutex::new(HashSet::new())).collect();
        let hits: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        for round in 0..ROUNDS {
            let tasks = round % (count + 1);
            pool.run(tasks, &|index| {
                hits[index].fetch_add(1, Relaxed);
                threads[index]
                    .lock()
                    .unwrap()
                    .insert(std::thread::current().id());
            });
            let done: usize = hits.iter().map(|hit| hit.swap(0, Relaxed)).sum();
            assert_eq!(done, tasks, "finished when `run` returned");
        }
        let threads: Vec<HashSet<ThreadId>> = threads
            .into_iter()
            .map(|threads| threads.into_inner().unwrap())
            .collect();
        assert!(threads.iter().all(|own| own.len() == 1), "{threads:?}");
        let distinct: HashSet<_> = threads.iter().flatten().collect();
        assert_eq!(distinct.len(), count);
        assert!(threads[0].contains(&std::thread::current().id()));
    }
}

#[test]
fn a_body_may_borrow_what_its_caller_owns() {
    let pool = pool(3, Duration::ZERO);
    for round in 0..ROUNDS / 10 {
        let input: Vec<usize> = (0..30).map(|value| value + round).collect();
        let sums: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
        pool.run(3, &|index| {
            let sum = input[index * 10..][..10].iter().sum();
            sums[index].store(sum, Relaxed);
        });
        let total: usize = sums.iter().map(|sum| sum.load(Relaxed)).sum();
        assert_eq!(total, input.iter().sum());
    }
}

/// What `run` ended with.
fn message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .expect("a panic with a message")
}

#[test]
fn a_panic_is_passed_on_when_all_have_finished() {
    let pool = pool(3, Duration::from_micros(20));
    for culprit in 0..3 {
        let finished = AtomicUsize::new(0);
        let message = message(|| {
            pool.run(3, &|index| {
                if index == culprit {
                    panic!("body {index}");
                }
                std::thread::sleep(Duration::from_millis(5));
                finished.fetch_add(1, Relaxed);
            });
        });
        assert_eq!(message, format!("body {culprit}"));
        assert_eq!(finished.load(Relaxed), 2, "the others went on");
    }
    // Of several the first, and the pool works on.
    for _ in 0..20 {
        let message = message(|| pool.run(3, &|index| assert!(index == 0, "body {index}")));
        assert_eq!(message, "body 1");
        let message = message_of_all(&pool);
        assert_eq!(message, "body 0");
        let hits = AtomicUsize::new(0);
        pool.run(3, &|_| {
            hits.fetch_add(1, Relaxed);
        });
        assert_eq!(hits.load(Relaxed), 3);
    }
}

fn message_of_all(pool: &Pool) -> String {
    message(|| pool.run(3, &|index| panic!("body {index}")))
}

#[test]
fn a_run_within_a_body_runs_on_that_thread() {
    let pool = pool(3, Duration::from_micros(20));
    let own_threads = AtomicUsize::new(0);
    pool.run(3, &|_| {
        let outer = std::thread::current().id();
        let mut seen = Vec::new();
        let inner = Mutex::new(&mut seen);
        pool.run(3, &|index| {
            assert_eq!(std::thread::current().id(), outer);
            inner.lock().unwrap().push(index);
        });
        assert_eq!(seen, [0, 1, 2]);
        own_threads.fetch_add(1, Relaxed);
    });
    assert_eq!(own_threads.load(Relaxed), 3);
}

#[test]
fn a_second_caller_does_not_wait_for_the_first() {
    let pool = pool(2, Duration::ZERO);
    let (first, second) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for hits in [&first, &second] {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    pool.run(2, &|_| {
                        hits.fetch_add(1, Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(first.load(Relaxed), 2 * ROUNDS);
    assert_eq!(second.load(Relaxed), 2 * ROUNDS);
}

#[test]
fn more_tasks_than_threads_are_refused() {
    let pool = pool(2, Duration::ZERO);
    let message = message(|| pool.run(3, &|_| {}));
    assert_eq!(message, "3 tasks for 2 threads");
}

#[test]
fn a_panic_while_starting_is_passed_on() {
    let setup = Setup {
        count: 3,
        name: "test",
        patience: Duration::ZERO,
    };
    let message = message(|| {
        let _ = Pool::start(setup, |index| assert!(index != 2, "thread {index}"));
    });
    assert_eq!(message, "thread 2");
}
