//! What a fork and a join cost here: `cargo run --release -p k3-threads
//! --example fork_join -- [THREADS]`.
//!
//! Each row is a pause between two forks: none, as between two products of a
//! layer; shorter than the threads' patience; and longer, so that they sleep.
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::time::{Duration, Instant};

use k3_threads::{Pool, Setup};

const PATIENCE: Duration = Duration::from_micros(100);
const ROUNDS: usize = 5_000;
const PAUSES_US: [u64; 4] = [0, 20, 80, 1000];

fn main() {
    let count = std::env::args().nth(1);
    let count = count.map_or(2, |count| count.parse().expect("a number of threads"));
    let setup = Setup {
        count,
        name: "measured",
        patience: PATIENCE,
    };
    let (pool, _) = Pool::start(setup, |_| ()).expect("threads start");
    println!("{count} threads, empty bodies, {ROUNDS} rounds; microseconds");
    println!("pause   p10      median   p90      p99");
    for pause_us in PAUSES_US {
        let pause = Duration::from_micros(pause_us);
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| round(&pool, count, pause)).collect();
        times.sort_unstable();
        let at = |percent: usize| times[(ROUNDS - 1) * percent / 100].as_secs_f64() * 1e6;
        let [p10, median, p90, p99] = [10, 50, 90, 99].map(at);
        println!("{pause_us:<6}  {p10:<7.2}  {median:<7.2}  {p90:<7.2}  {p99:<7.2}");
    }
}

fn round(pool: &Pool, count: usize, pause: Duration) -> Duration {
    // Busy, as a caller between two products is.
    let start = Instant::now();
    while start.elapsed() < pause {
        std::hint::spin_loop();
    }
    let start = Instant::now();
    pool.run(count, &|_| {});
    start.elapsed()
}
