//! bf16 products, as they are and packed, router logits and reading their weights.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use k3_benchmarks::kernels::Group;
use k3_benchmarks::weights::WeightKind;

fn suite(criterion: &mut Criterion) {
    common::bench(
        criterion,
        &[Group::Read, Group::Bf16, Group::Bf16X3, Group::Router],
        WeightKind::Bf16X3,
    );
}

criterion_group! { name = suites; config = common::short(); targets = suite }
criterion_main!(suites);
