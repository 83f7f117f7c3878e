//! Elementwise kernels, norms and the residual mix.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use k3_benchmarks::kernels::Group;
use k3_benchmarks::weights::WeightKind;

fn suite(criterion: &mut Criterion) {
    common::bench(
        criterion,
        &[Group::Elementwise, Group::Norm],
        WeightKind::Bf16,
    );
}

criterion_group! { name = suites; config = common::short(); targets = suite }
criterion_main!(suites);
