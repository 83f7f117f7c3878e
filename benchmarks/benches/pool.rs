//! Handing out empty jobs.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use k3_models::Workers;
use k3_runtime::ComputePool;

fn suite(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("empty job");
    let mut counts = vec![1, 2, ComputePool::available_threads()];
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let pool = ComputePool::new(count).expect("threads");
        group.bench_function(format!("{count} threads"), |bencher| {
            bencher.iter(|| pool.run(count, &|_| {}));
        });
    }
    group.finish();
}

criterion_group! { name = suites; config = common::short(); targets = suite }
criterion_main!(suites);
