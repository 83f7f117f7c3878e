//! The comparison of one position's logits with another's.

use std::cmp::Ordering;

use k3_kernels::argmax;
use serde::{Serialize, Serializer};

/// Length of the lists of likeliest tokens.
pub(super) const TOP: usize = 10;

/// One entry of a list of likeliest tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ranked {
    /// Token id.
    pub id: usize,
    /// Its logit; in JSON a text when it is not finite.
    #[serde(serialize_with = "number")]
    pub logit: f32,
}

/// What two rows of logits have in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RowComparison {
    /// Index of the position in the dumps.
    pub row: usize,
    /// Values whose bits differ.
    pub differing: usize,
    /// Values of A that are not finite.
    pub non_finite_a: usize,
    /// Values of B that are not finite.
    pub non_finite_b: usize,
    /// Largest difference: infinite, "inf" in JSON, when a value that is not
    /// finite stands against another one.
    #[serde(serialize_with = "number")]
    pub max_abs_difference: f64,
    /// Id at which it is found first.
    pub max_at: usize,
    /// Largest finite magnitude in either row.
    pub max_abs_logit: f64,
    /// `max_abs_difference / max_abs_logit`; 0 when nothing differs.
    #[serde(serialize_with = "number")]
    pub max_relative: f64,
    /// Likeliest id of A, the lowest on ties; none when a value is not finite.
    pub argmax_a: Option<usize>,
    /// Likeliest id of B.
    pub argmax_b: Option<usize>,
    /// Ids among the ten likeliest of both.
    pub top_overlap: usize,
    /// The ten likeliest of A.
    pub top_a: Vec<Ranked>,
    /// The ten likeliest of B.
    pub top_b: Vec<Ranked>,
}

impl RowComparison {
    /// Compares row number `row` of both dumps: two slices of one length.
    pub(super) fn new(row: usize, a: &[f32], b: &[f32]) -> Self {
        assert_eq!(a.len(), b.len(), "rows of one size");
        let (top_a, top_b) = (top(a), top(b));
        let shared = |ranked: &&Ranked| top_b.iter().any(|other| other.id == ranked.id);
        let mut result = Self {
            row,
            differing: 0,
            non_finite_a: 0,
            non_finite_b: 0,
            max_abs_difference: 0.0,
            max_at: 0,
            max_abs_logit: 0.0,
            max_relative: 0.0,
            argmax_a: argmax(a),
            argmax_b: argmax(b),
            top_overlap: top_a.iter().filter(shared).count(),
            top_a: Vec::new(),
            top_b: Vec::new(),
        };
        for (id, (x, y)) in a.iter().zip(b).enumerate() {
            result.take(id, *x, *y);
        }
        if result.max_abs_difference > 0.0 {
            result.max_relative = result.max_abs_difference / result.max_abs_logit;
        }
        (result.top_a, result.top_b) = (top_a, top_b);
        result
    }

    fn take(&mut self, id: usize, x: f32, y: f32) {
        let counts = [&mut self.non_finite_a, &mut self.non_finite_b];
        for (value, count) in [x, y].into_iter().zip(counts) {
            if value.is_finite() {
                self.max_abs_logit = self.max_abs_logit.max(f64::from(value.abs()));
            } else {
                *count += 1;
            }
        }
        if x.to_bits() == y.to_bits() {
            return;
        }
        self.differing += 1;
        // No number tells how far a NaN is from anything, and none may pass
        // for small.
        let difference = if x.is_finite() && y.is_finite() {
            (f64::from(x) - f64::from(y)).abs()
        } else {
            f64::INFINITY
        };
        if difference > self.max_abs_difference {
            self.max_abs_difference = difference;
            self.max_at = id;
        }
    }

    /// Whether the likeliest ids agree.
    pub(super) fn argmax_agrees(&self) -> bool {
        self.argmax_a == self.argmax_b
    }
}

/// A number in JSON; what is not finite as "inf", "-inf" or "NaN". JSON has no
/// such numbers, and `null` would pass for a small one in languages that take
/// it for 0.
pub(super) fn number<S, N>(value: &N, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    N: Serialize + Copy + Into<f64>,
{
    let wide: f64 = (*value).into();
    if wide.is_finite() {
        value.serialize(serializer)
    } else {
        serializer.collect_str(&wide)
    }
}

/// The likeliest ids: logits descending, then ids ascending, NaN last.
fn top(row: &[f32]) -> Vec<Ranked> {
    let order = |a: &Ranked, b: &Ranked| -> Ordering {
        let nan = a.logit.is_nan().cmp(&b.logit.is_nan());
        nan.then(b.logit.total_cmp(&a.logit)).then(a.id.cmp(&b.id))
    };
    let mut ranked: Vec<Ranked> = row
        .iter()
        .enumerate()
        .map(|(id, logit)| Ranked { id, logit: *logit })
        .collect();
    if ranked.len() > TOP {
        ranked.select_nth_unstable_by(TOP - 1, order);
        ranked.truncate(TOP);
    }
    ranked.sort_unstable_by(order);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_differ_in_nothing() {
        let row: Vec<f32> = (0..20u8).map(f32::from).collect();
        let same = RowComparison::new(0, &row, &row);
        assert_eq!(
            (same.differing, same.max_relative, same.top_overlap),
            (0, 0.0, TOP)
        );
        assert_eq!((same.argmax_a, same.argmax_b), (Some(19), Some(19)));
        assert_eq!(
            same.top_a[0],
            Ranked {
                id: 19,
                logit: 19.0
            }
        );
    }

    #[test]
    fn counts_bits_and_measures_values() {
        let a = [0.0, 4.0, -8.0, 1.0];
        let b = [-0.0, 4.5, -8.0, 5.0];
        let found = RowComparison::new(3, &a, &b);
        assert_eq!((found.row, found.differing), (3, 3));
        assert_eq!((found.max_abs_difference, found.max_at), (4.0, 3));
        assert_eq!((found.max_abs_logit, found.max_relative), (8.0, 0.5));
        assert_eq!((found.argmax_a, found.argmax_b), (Some(1), Some(3)));
        assert!(!found.argmax_agrees());
        assert_eq!(found.top_overlap, 4);
    }

    #[test]
    fn values_that_are_not_finite_are_counted_and_rank_where_they_belong() {
        let a = [1.0, f32::NAN, f32::INFINITY];
        let b = [1.0, f32::NAN, 2.0];
        let found = RowComparison::new(0, &a, &b);
        assert_eq!(found.differing, 1);
        assert_eq!((found.non_finite_a, found.non_finite_b), (2, 1));
        assert_eq!((found.argmax_a, found.argmax_b), (None, None));
        assert_eq!((found.max_abs_difference, found.max_at), (f64::INFINITY, 2));
        let ids = |list: &[Ranked]| list.iter().map(|ranked| ranked.id).collect::<Vec<_>>();
        assert_eq!(ids(&found.top_a), [2, 0, 1]);
    }

    #[test]
    fn nothing_that_is_not_finite_passes_for_close() {
        let values = [1.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for (i, x) in values.into_iter().enumerate() {
            for (j, y) in values.into_iter().enumerate() {
                let found = RowComparison::new(0, &[x], &[y]);
                let expected = if i == j { 0.0 } else { f64::INFINITY };
                assert_eq!(found.max_abs_difference, expected, "{x} against {y}");
                assert_eq!(found.max_relative, expected, "{x} against {y}");
            }
        }
        let found = RowComparison::new(0, &[f32::NAN], &[f32::NEG_INFINITY]);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["max_abs_difference"], "inf");
        assert_eq!(json["max_relative"], "inf");
        assert_eq!(json["top_a"][0]["logit"], "NaN");
        assert_eq!(json["top_b"][0]["logit"], "-inf");
    }

    #[test]
    fn ties_rank_by_id() {
        let row = [1.0_f32; 30];
        let ids: Vec<usize> = top(&row).iter().map(|ranked| ranked.id).collect();
        assert_eq!(ids, (0..TOP).collect::<Vec<_>>());
    }
}
