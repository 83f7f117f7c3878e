//! Every kernel against `fixtures/golden_kernels.json`, bit for bit (any NaN
//! equals any NaN), in every available instruction set.
//!
//! The vectors come from an independent implementation of `docs/numerics.md`.
//! Their inputs cancel or sit on a rounding edge, and the file states for each
//! named wrong order how many outputs it would change: a kernel that sums in
//! another order cannot pass.
//!
//! | module | holds |
//! |---|---|
//! | [`case`] | the file, and inputs that must all be used |
//! | [`sums`] | products, norms and elementwise kernels |
//! | [`model`] | attention, KDA, router and experts |

mod case;
mod model;
mod sums;

use std::collections::BTreeSet;

use case::{Check, Inputs, Outputs, read_cases};
use k3_kernels::{Isa, KernelSet};

/// How each case of the file is computed. A case that is not in the table, or
/// a line of the table that is not in the file, fails.
const CHECKS: [(&str, Check); 31] = [
    ("matmul_bf16_remainder", sums::matmul_bf16),
    ("matmul_f32_remainder", sums::matmul_f32),
    ("columns_bf16_remainder", sums::columns_bf16),
    ("router_bf16_serial", sums::router_bf16),
    ("router_f32_serial", sums::router_f32),
    ("matmul_mxfp4_order", sums::matmul_mxfp4),
    ("matmul_mxfp4_scales", sums::matmul_mxfp4_and_skipped),
    ("rmsnorm_order", sums::rmsnorm),
    ("rmsnorm_eps", sums::rmsnorm_of_positions),
    ("l2norm_order", sums::l2norm),
    ("l2norm_eps", sums::l2norm),
    ("situ_glu", sums::situ_glu),
    ("shortconv", sums::shortconv),
    ("exp", sums::exp),
    ("tanh", sums::tanh),
    ("sigmoid", sums::sigmoid),
    ("softmax", sums::softmax),
    ("attn_res", model::attn_res),
    ("kda_step", model::kda_step),
    ("kda_step_underflow", model::kda_step),
    ("kda_step_zero_skip", model::kda_step),
    ("kda_decay", model::kda_decay),
    ("kda_q_scale", model::kda_q_scale),
    ("mla_scores_latent", model::mla_scores_latent),
    ("mla_mix_latent", model::mla_mix_latent),
    ("mla_scores_expanded", model::mla_scores_expanded),
    ("mla_mix_expanded", model::mla_mix_expanded),
    ("router_select", model::router_select),
    ("router_select_equal_bias", model::router_select),
    ("router_select_one", model::router_select),
    ("expert_sum", model::expert_sum),
];

#[test]
fn every_case_has_the_same_bits_in_every_instruction_set() {
    let cases = read_cases();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    let known: BTreeSet<_> = CHECKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), cases.len(), "two cases of one name");
    assert_eq!(known.len(), CHECKS.len(), "two checks of one name");
    assert_eq!(names, known, "cases in the file, and cases known here");
    let sets = Isa::ALL.into_iter().filter_map(KernelSet::for_isa);
    for set in sets {
        for case in &cases {
            let (_, check) = CHECKS.iter().find(|(name, _)| *name == case.name).unwrap();
            let inputs = Inputs::new(case);
            let outputs: Outputs = check(set, &inputs);
            inputs.assert_all_used();
            case.assert_outputs(&outputs, set.isa);
        }
    }
}

#[test]
fn every_named_wrong_order_would_show() {
    for case in read_cases() {
        assert!(!case.wrong_orders.is_empty(), "{}", case.name);
        for (order, differing) in &case.wrong_orders {
            assert!(
                (1..=case.output_count).contains(differing),
                "{}: {order} differs in {differing} of {}",
                case.name,
                case.output_count
            );
        }
    }
}
