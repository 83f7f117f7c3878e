//! Order statistics of measurements: the middle, and how far it spreads.
//!
//! Times of a shared machine have outliers on one side, so what is reported is
//! never a mean: the median says what to expect, quartiles and extremes say how
//! much it is worth.

use serde::Serialize;

/// Five figures of a set of measurements, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// A quarter lies below.
    pub q1: f64,
    /// The middle.
    pub median: f64,
    /// A quarter lies above.
    pub q3: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The figures of `values`, in any order; `None` without values.
    ///
    /// ```
    /// use k3_runtime::statistics::Spread;
    /// let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
    /// assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.0, 3.0));
    /// assert_eq!((spread.q1, spread.q3), (1.5, 2.5));
    /// ```
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        if sorted.is_empty() {
            return None;
        }
        let at = |share| quantile_of_sorted(&sorted, share);
        Some(Self {
            min: at(0.0),
            q1: at(0.25),
            median: at(0.5),
            q3: at(0.75),
            max: at(1.0),
        })
    }
}

/// The middle of `values`, in any order: the mean of the two middle ones if
/// their number is even, `None` if there are none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a `share` of `values` lies, from 0 (the least) to 1
/// (the greatest); `None` without values.
///
/// Interpolated linearly between the two nearest in order, whose places are 0
/// to `n - 1` (type 7 of Hyndman and Fan, the default of numpy and R).
///
/// # Panics
///
/// If `share` is outside 0 to 1, or a value is not a number.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| quantile_of_sorted(&sorted, share))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(
        values.iter().all(|value| !value.is_nan()),
        "a measurement is a number"
    );
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places are small, and between 0 and the length"
)]
fn quantile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    assert!((0.0..=1.0).contains(&share), "{share} is no share");
    let place = share * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    let (low, high) = (sorted[below], sorted[above]);
    if low == high {
        // Also for infinities, whose difference is not a number.
        return low;
    }
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 2.0]), Some(3.5));
    }

    #[test]
    fn quantiles_are_interpolated_between_neighbours() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(quantile(&values, 0.0), Some(10.0));
        assert_eq!(quantile(&values, 0.25), Some(17.5));
        assert_eq!(quantile(&values, 0.75), Some(32.5));
        assert_eq!(quantile(&values, 1.0), Some(40.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_spread_is_in_order_and_one_outlier_moves_its_end_alone() {
        let spread = Spread::of(&[1.0, 1.25, 1.5, 1.75, 100.0]).unwrap();
        let want = Spread {
            min: 1.0,
            q1: 1.25,
            median: 1.5,
            q3: 1.75,
            max: 100.0,
        };
        assert_eq!(spread, want);
        assert_eq!(Spread::of(&[]), None);
        let one = Spread::of(&[2.0]).unwrap();
        assert_eq!((one.min, one.q1, one.q3, one.max), (2.0, 2.0, 2.0, 2.0));
    }

    #[test]
    fn infinities_stay_themselves() {
        let spread = Spread::of(&[f64::INFINITY, f64::INFINITY]).unwrap();
        assert_eq!(spread.median, f64::INFINITY);
    }

    #[test]
    #[should_panic(expected = "is a number")]
    fn what_is_not_a_number_is_a_bug() {
        let _ = median(&[1.0, f64::NAN]);
    }

    #[test]
    #[should_panic(expected = "is no share")]
    fn a_share_beyond_one_is_a_bug() {
        let _ = quantile(&[1.0], 25.0);
    }
}
