//! Where reading and arithmetic take equally long.

use std::collections::BTreeMap;

/// Compute / I/O, by positions of a sweep.
pub(super) type Known = BTreeMap<usize, f64>;

/// Close enough to stop: within 5 %.
const ENOUGH: f64 = 1.05;

/// The next number of positions to try within `1..=most`; `None` when there is
/// nothing left to learn.
///
/// Arithmetic grows with the positions, reading hardly does: between the
/// numbers that are known to lie on either side, their ratio is taken for a
/// straight line.
pub(super) fn next_probe(known: &Known, most: usize) -> Option<usize> {
    if known.values().any(|&ratio| distance(ratio) <= ENOUGH) {
        return None;
    }
    for end in [1, most] {
        if !known.contains_key(&end) {
            return Some(end);
        }
    }
    // The last that reads longer, and the first after it that computes longer:
    // none when one side is longer everywhere.
    let (&low, below) = known.iter().rfind(|(_, ratio)| **ratio < 1.0)?;
    let (&high, above) = known.range(low..).find(|(_, ratio)| **ratio >= 1.0)?;
    if high - low < 2 {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "positions of a sweep")]
    let [from, to] = [low, high].map(|positions| positions as f64);
    let guess = from + (to - from) * (1.0 - below) / (above - below);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between two counts of positions"
    )]
    let guess = guess.round() as usize;
    Some(guess.clamp(low + 1, high - 1))
}

/// How many times as long the longer side takes.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio)
}

/// The positions whose two sides are closest; `None` when nothing is known.
pub(super) fn closest(known: &Known) -> Option<usize> {
    let nearest = known
        .iter()
        .min_by(|a, b| distance(*a.1).total_cmp(&distance(*b.1)));
    nearest.map(|(positions, _)| *positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over sides of `io` and `compute` seconds.
    fn search(most: usize, io: impl Fn(f64) -> f64, compute: impl Fn(f64) -> f64) -> Vec<usize> {
        let mut known = Known::new();
        let mut tried = Vec::new();
        while let Some(positions) = next_probe(&known, most) {
            assert!(tried.len() < 10, "{known:?}");
            let count = f64::from(u32::try_from(positions).unwrap());
            known.insert(positions, compute(count) / io(count));
            tried.push(positions);
        }
        tried.push(closest(&known).unwrap());
        tried
    }

    #[test]
    fn a_crossing_is_found_in_a_few_steps() {
        let tried = search(64, |t| 5.0 + 0.01 * t, |t| 0.9 + 0.25 * t);
        assert_eq!(tried.last(), Some(&17), "{tried:?}");
        assert!(tried.len() <= 6, "{tried:?}");
    }

    #[test]
    fn without_a_crossing_the_nearer_end_is_taken() {
        assert_eq!(search(64, |_| 9.0, |t| 0.1 * t), [1, 64, 64]);
        assert_eq!(search(64, |_| 0.1, |t| t), [1, 64, 1]);
        assert_eq!(search(1, |_| 9.0, |t| t), [1, 1]);
    }

    #[test]
    fn neighbours_on_either_side_end_it() {
        let known = Known::from([(1, 0.2), (2, 1.2), (64, 40.0)]);
        assert_eq!(next_probe(&known, 64), None);
        assert_eq!(closest(&known), Some(2));
    }
}
