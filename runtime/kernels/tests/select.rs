//! The choice of experts and of the next token.

use k3_kernels::math::sigmoid;
use k3_kernels::{NonFinite, Pick, argmax, check_fp_environment, router_select};

/// Selects with the settings of the released model.
fn select(logits: &[f32], bias: &[f32], top_k: usize) -> Result<Vec<Pick>, NonFinite> {
    select_with(logits, bias, top_k, true, 1.0)
}

fn select_with(
    logits: &[f32],
    bias: &[f32],
    top_k: usize,
    renormalize: bool,
    scaling_factor: f32,
) -> Result<Vec<Pick>, NonFinite> {
    let mut picks = vec![Pick::default(); top_k];
    let mut scratch = vec![f32::NAN; 2 * logits.len()];
    router_select(
        logits,
        bias,
        top_k,
        renormalize,
        scaling_factor,
        &mut scratch,
        &mut picks,
    )?;
    Ok(picks)
}

fn experts(picks: &[Pick]) -> Vec<u32> {
    picks.iter().map(|pick| pick.expert).collect()
}

#[test]
fn the_lower_id_wins_ties() {
    let picks = select(&[0.5, 1.0, 1.0, 0.5, 1.0], &[0.0; 5], 4).unwrap();
    assert_eq!(experts(&picks), [1, 2, 4, 0]);
}

#[test]
fn the_bias_decides_the_choice_but_not_the_weight() {
    let logits = [2.0, -1.0, 0.0];
    let picks = select_with(&logits, &[-1.0, 1.0, 0.0], 2, false, 1.0).unwrap();
    assert_eq!(experts(&picks), [1, 2]);
    assert_eq!(picks[0].weight, sigmoid(-1.0));
    assert_eq!(picks[1].weight, sigmoid(0.0));
}

/// A negative choice still beats one already taken.
#[test]
fn picks_are_distinct_even_when_all_choices_are_negative() {
    let picks = select(&[-90.0; 6], &[-3.0; 6], 6).unwrap();
    assert_eq!(experts(&picks), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn weights_are_renormalised_by_an_f32_inverse_then_scaled() {
    let logits = [1.5, -0.25, 0.75, 3.0];
    let picks = select_with(&logits, &[0.0; 4], 3, true, 2.5).unwrap();
    assert_eq!(experts(&picks), [3, 0, 2]);
    let scores = [3.0, 1.5, 0.75].map(sigmoid);
    let sum = scores.iter().fold(0.0_f64, |sum, &s| sum + f64::from(s)) + 1e-20;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the rounding of the contract"
    )]
    let inv = (1.0 / sum) as f32;
    for (pick, score) in picks.iter().zip(scores) {
        assert_eq!(pick.weight, (score * inv) * 2.5);
    }
}

/// One expert alone keeps its score.
#[test]
fn a_single_pick_is_not_renormalised() {
    let picks = select_with(&[0.3, 0.4], &[0.0; 2], 1, true, 2.0).unwrap();
    assert_eq!(
        picks,
        [Pick {
            expert: 1,
            weight: sigmoid(0.4) * 2.0
        }]
    );
}

#[test]
fn values_that_are_not_finite_are_errors_that_name_the_expert() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for index in 0..4 {
            let mut logits = [0.5_f32; 4];
            logits[index] = bad;
            let error = select(&logits, &[0.0; 4], 2).unwrap_err();
            assert_eq!(error, NonFinite { index });
            assert!(error.to_string().contains(&format!("expert {index}")));
            let mut bias = [0.0_f32; 4];
            bias[index] = bad;
            assert_eq!(select(&[0.5; 4], &bias, 2), Err(NonFinite { index }));
        }
    }
    let all = [f32::NAN; 4];
    assert_eq!(select(&all, &[0.0; 4], 2), Err(NonFinite { index: 0 }));
}

#[test]
fn an_error_leaves_the_picks_alone() {
    let mut picks = [Pick {
        expert: 9,
        weight: 9.0,
    }; 2];
    let logits = [0.0, 1.0, f32::NAN];
    let result = router_select(&logits, &[0.0; 3], 2, true, 1.0, &mut [0.0; 6], &mut picks);
    assert_eq!(result, Err(NonFinite { index: 2 }));
    assert_eq!(
        picks,
        [Pick {
            expert: 9,
            weight: 9.0
        }; 2]
    );
}

#[test]
#[should_panic(expected = "3 picks among 2 experts")]
fn more_picks_than_experts_is_a_bug() {
    let _ = select(&[0.0; 2], &[0.0; 2], 3);
}

#[test]
fn argmax_takes_the_first_maximum() {
    assert_eq!(argmax(&[1.0, 3.0, 2.0, 3.0]), Some(1));
    assert_eq!(argmax(&[-0.0, 0.0]), Some(0));
    assert_eq!(argmax(&[0.0, -0.0]), Some(0));
    assert_eq!(argmax(&[-5.0, -4.0]), Some(1));
    assert_eq!(argmax(&[f32::MIN]), Some(0));
}

#[test]
fn argmax_refuses_values_that_are_not_finite() {
    assert_eq!(argmax(&[]), None);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(argmax(&[bad, 1.0]), None);
        assert_eq!(argmax(&[1.0, bad]), None);
    }
}

#[test]
fn the_test_threads_compute_in_the_expected_environment() {
    assert_eq!(check_fp_environment(), Ok(()));
}
