//! Every kernel of every available instruction set equals the scalar
//! definition bit for bit (any NaN equals any NaN).
//!
//! The cases are data: sizes around every block and vector width, all batch
//! sizes, weights at odd byte offsets, and six classes of values. Surroundings
//! of every input are filled with NaN bytes and surroundings of every output
//! with canaries, so that a read or a write outside a slice changes a result.
//! `K3_SLOW=1` runs more seeds and every class for every case.

mod attention;
mod buffers;
mod compare;
mod elementwise;
#[path = "../gates/mod.rs"]
mod gates;
mod guard;
mod matrix;
mod packed;
mod prepared;
mod refusals;
mod stream;
mod values;

use gates::slow;
use k3_kernels::{Isa, KernelSet};

/// The sets to compare with the definition.
fn other_sets() -> Vec<&'static KernelSet> {
    let sets: Vec<_> = Isa::ALL
        .into_iter()
        .filter(|&isa| isa != Isa::Scalar)
        .filter_map(KernelSet::for_isa)
        .collect();
    if sets.is_empty() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            gates::not_run("this processor has no other instruction set to compare");
        });
    }
    sets
}

/// The definition.
fn scalar() -> &'static KernelSet {
    KernelSet::for_isa(Isa::Scalar).expect("the definition exists everywhere")
}
