//! A pool that has nothing to do takes no processor time. A process of its own:
//! the time of all threads is measured.

use std::time::Duration;

use k3_threads::{Pool, Setup};

/// Processor time of every thread of this process so far.
fn processor_time() -> Duration {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap();
        let nanoseconds: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
        total += nanoseconds;
    }
    Duration::from_nanos(total)
}

#[test]
fn threads_without_work_sleep() {
    if cfg!(miri) {
        return;
    }
    let setup = Setup {
        count: 4,
        name: "test",
        patience: Duration::from_micros(50),
    };
    let (pool, _) = Pool::start(setup, |_| ()).unwrap();
    for _ in 0..100 {
        pool.run(4, &|_| {});
    }
    std::thread::sleep(Duration::from_millis(20));
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(400));
    let idle = processor_time() - before;
    // One thread that kept looking would take 400 ms.
    assert!(idle < Duration::from_millis(2), "{idle:?}");

    // The same for a caller whose helper takes long.
    let before = processor_time();
    pool.run(2, &|index| {
        if index == 1 {
            std::thread::sleep(Duration::from_millis(400));
        }
    });
    let waited = processor_time() - before;
    assert!(waited < Duration::from_millis(2), "{waited:?}");
}
