//! Data on which a wrong order of operations gives other bits.
//!
//! The conformance suite compares bodies with the definition; these tests hold
//! the definition itself to the contract. Each one computes the right order and
//! several plausible wrong ones in plain Rust that shares nothing with the
//! crate, asserts that every body agrees with the right one, and asserts that
//! every wrong one differs somewhere: a probe that cannot tell them apart fails.

mod attention;
mod kda;
mod norms;
mod orders;
mod products;
mod smooth;

use k3_kernels::{Isa, KernelSet};

/// Every available set, the definition included.
pub(crate) fn sets() -> impl Iterator<Item = &'static KernelSet> {
    Isa::ALL.into_iter().filter_map(KernelSet::for_isa)
}

/// The bits of `values`, for comparisons that tell zeros apart.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Asserts that every set computes `right` and that each of `wrong` differs
/// from it in at least `sensitivity` values.
pub(crate) fn assert_order(
    run: impl Fn(&KernelSet) -> Vec<f32>,
    right: &[f32],
    wrong: &[(&str, Vec<f32>)],
    sensitivity: usize,
) {
    for set in sets() {
        assert_eq!(bits(&run(set)), bits(right), "{}", set.isa);
    }
    for (name, wrong) in wrong {
        assert_eq!(wrong.len(), right.len(), "{name}");
        let differing = bits(wrong)
            .iter()
            .zip(bits(right))
            .filter(|&(&wrong, right)| wrong != right)
            .count();
        assert!(
            differing >= sensitivity,
            "the probe is blind to \"{name}\": {differing} of {} values differ",
            right.len()
        );
    }
}
