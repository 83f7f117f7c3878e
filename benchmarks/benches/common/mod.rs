//! What the suites share: every body of every set, under criterion's clock.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use k3_benchmarks::kernels::{Group, specs};
use k3_benchmarks::weights::{WeightKind, Weights};
use k3_kernels::{Isa, KernelSet};
use k3_runtime::Cancel;

/// Fewer bytes than `k3 bench kernels` takes: a suite compares two versions of
/// a body, not a body with the memory's speed.
const WEIGHTS_BYTES: usize = 512 << 20;

/// Short enough for a suite to be run while working on a body.
pub(crate) fn short() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args()
}

/// Measures the kernels of `groups`; `kind` is what the weights are filled with.
#[allow(
    dead_code,
    reason = "one file for all suites, and that of the pool has no kernels"
)]
pub(crate) fn bench(criterion: &mut Criterion, groups: &[Group], kind: WeightKind) {
    let specs = specs(groups);
    let takes_weights = specs.iter().any(|spec| spec.weights.is_some());
    let bytes = if takes_weights {
        WEIGHTS_BYTES
    } else {
        16 << 20
    };
    let mut weights = Weights::reserve(bytes).expect("memory for weights");
    if takes_weights {
        let filled = weights.fill(kind, 2, &Cancel::default());
        filled.expect("memory for packed rows");
    }
    for spec in specs {
        let mut group = criterion.benchmark_group(match spec.positions {
            Some(positions) => format!("{} T={positions}", spec.name),
            None => spec.name.to_owned(),
        });
        group.throughput(Throughput::Elements(spec.work.operations));
        for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
            let mut kernel = spec.instance(set, &weights);
            group.bench_function(set.isa.name(), |bencher| bencher.iter(|| kernel.call()));
        }
        group.finish();
    }
}
