//! What a sweep reads, learnt from those that were made.

/// What a sweep is worth after one more was made: about sixteen count.
const KEPT: f64 = 15.0 / 16.0;

/// What a second position's experts add to a sweep, as a share of the first's,
/// until guesses were carried: the share of the experts of a token that the token
/// before it did not ask for, in the recorded routing of Kimi K3 (10.5 of 16).
const SHARE_PRIOR: f64 = 0.66;

/// The weight of that share: that of one sweep with one guess.
const SHARE_WEIGHT: f64 = 1.0;

/// Sums over the sweeps made, older ones fading; x is a sweep's guesses.
#[derive(Debug, Clone, Default)]
pub(super) struct CostModel {
    count: f64,
    x: f64,
    xx: f64,
    trunk: f64,
    experts: f64,
    x_experts: f64,
}

/// What sweeps are expected to read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SweepBytes {
    /// With no guess.
    pub(super) plain: f64,
    /// More for each guess.
    pub(super) per_guess: f64,
}

impl CostModel {
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn observe(&mut self, guesses: usize, trunk_bytes: u64, expert_bytes: u64) {
        let (x, experts) = (guesses as f64, expert_bytes as f64);
        for (sum, value) in [
            (&mut self.count, 1.0),
            (&mut self.x, x),
            (&mut self.xx, x * x),
            (&mut self.trunk, trunk_bytes as f64),
            (&mut self.experts, experts),
            (&mut self.x_experts, x * experts),
        ] {
            *sum = *sum * KEPT + value;
        }
    }

    /// The line e + m * x through the experts of the sweeps, with the least squares
    /// of its distances to them and of `SHARE_WEIGHT` * (m - `SHARE_PRIOR` * e): with
    /// plain sweeps alone, e is their mean and m the prior's share of it. None
    /// before the first sweep.
    pub(super) fn expected(&self) -> Option<SweepBytes> {
        if self.count == 0.0 {
            return None;
        }
        let cross = self.x - SHARE_WEIGHT * SHARE_PRIOR;
        let constant = self.count + SHARE_WEIGHT * SHARE_PRIOR * SHARE_PRIOR;
        let slope = self.xx + SHARE_WEIGHT;
        // Above 0: the prior's weight makes the two columns independent.
        let determinant = constant * slope - cross * cross;
        let e = (slope * self.experts - cross * self.x_experts) / determinant;
        let m = (constant * self.x_experts - cross * self.experts) / determinant;
        Some(SweepBytes {
            plain: self.trunk / self.count + e.max(0.0),
            per_guess: m.max(0.0),
        })
    }
}

impl SweepBytes {
    /// The number of guesses, `limit` at most, with the fewest bytes per token, each
    /// guess being right with `chance`; the smaller of two equals, so 0 if nothing is
    /// read.
    pub(super) fn best_guesses(&self, chance: f64, limit: usize) -> usize {
        let (mut bytes, mut tokens, mut power) = (self.plain, 1.0, 1.0);
        for guesses in 0..limit {
            power *= chance;
            let next = (bytes + self.per_guess, tokens + power);
            // next.0 / next.1 < bytes / tokens, without dividing.
            if next.0 * tokens >= bytes * next.1 {
                // The quotient has one minimum: it will not fall again.
                return guesses;
            }
            (bytes, tokens) = next;
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, want: f64) -> bool {
        (value - want).abs() <= 1e-9 * want.abs().max(1.0)
    }

    #[test]
    fn plain_sweeps_give_their_mean_and_the_priors_share() {
        let mut model = CostModel::default();
        assert_eq!(model.expected(), None);
        for _ in 0..5 {
            model.observe(0, 4_000, 1_000);
        }
        let expected = model.expected().unwrap();
        assert!(near(expected.plain, 5_000.0) && near(expected.per_guess, 660.0));
    }

    #[test]
    fn a_measured_line_replaces_the_prior() {
        let mut model = CostModel::default();
        for turn in 0..200 {
            let guesses = turn % 5;
            model.observe(guesses, 4_000, 1_000 + 200 * guesses as u64);
        }
        let expected = model.expected().unwrap();
        // The prior still weighs a little: as one sweep among sixteen.
        assert!((4_900.0..5_000.0).contains(&expected.plain), "{expected:?}");
        assert!((200.0..240.0).contains(&expected.per_guess), "{expected:?}");
    }

    #[test]
    fn sweeps_of_one_width_alone_keep_a_positive_split() {
        let mut model = CostModel::default();
        for _ in 0..100 {
            model.observe(4, 0, 3_400);
        }
        let SweepBytes { plain, per_guess } = model.expected().unwrap();
        assert!(near(plain + 4.0 * per_guess, 3_400.0) && plain > 0.0);
        assert!(
            near(per_guess, 0.66 * plain),
            "only the prior can split them"
        );
    }

    #[test]
    fn guesses_that_read_less_never_get_a_price_below_nothing() {
        let mut model = CostModel::default();
        for turn in 0..50 {
            model.observe(turn % 2 * 4, 10, if turn % 2 == 0 { 1_000 } else { 0 });
        }
        let expected = model.expected().unwrap();
        assert!(expected.per_guess == 0.0 && expected.plain >= 10.0);
    }

    /// All widths tried, by the formula as it is written.
    fn best_of_all(bytes: SweepBytes, chance: f64, limit: usize) -> usize {
        let mut best = (bytes.plain, 0);
        let (mut tokens, mut power) = (1.0, 1.0);
        for guesses in 1..=limit {
            power *= chance;
            tokens += power;
            let cost = (bytes.plain + guesses as f64 * bytes.per_guess) / tokens;
            if cost < best.0 * (1.0 - 1e-12) {
                best = (cost, guesses);
            }
        }
        best.1
    }

    #[test]
    fn the_best_width_is_that_of_the_formula() {
        for per_guess in [0.05, 0.1, 0.5, 1.0] {
            for plain in [0.3, 1.0, 1.7, 3.1, 5.2, 20.0] {
                for chance in [0.05, 0.13, 0.31, 0.5, 0.61, 0.8, 0.9] {
                    for limit in [0, 1, 4, 16] {
                        let bytes = SweepBytes { plain, per_guess };
                        let got = bytes.best_guesses(chance, limit);
                        assert_eq!(got, best_of_all(bytes, chance, limit), "{bytes:?} {chance}");
                    }
                }
            }
        }
    }

    #[test]
    fn where_nothing_is_read_no_guess_is_worth_its_position() {
        let bytes = SweepBytes {
            plain: 0.0,
            per_guess: 0.0,
        };
        assert_eq!(bytes.best_guesses(0.99, 16), 0);
    }
}
