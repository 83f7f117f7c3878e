//! How often guesses are right, per level of evidence.

/// Guesses counted as right, and as many as wrong, before any was judged: one half,
/// with the weight of two guesses.
const PRIOR: f64 = 1.0;

/// What a count is worth after one more guess of its level was judged: about sixteen
/// count, so a text that stops repeating is soon noticed. Simulated texts differ little
/// between eight and thirty-two.
const KEPT: f64 = 15.0 / 16.0;

/// Levels of evidence told apart: up to 2, 3, 4 and 5, 6 and 7, 8 and more.
const LEVELS: usize = 5;

/// Right and wrong guesses of each level, older ones fading.
#[derive(Debug, Clone, Default)]
pub(super) struct Acceptance {
    levels: [Judged; LEVELS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Judged {
    right: f64,
    wrong: f64,
}

impl Acceptance {
    /// The chance that a guess of this evidence is right, if all before it in its
    /// proposal were. Strictly between 0 and 1.
    pub(super) fn chance(&self, evidence: u32) -> f64 {
        let Judged { right, wrong } = self.levels[level(evidence)];
        (right + PRIOR) / (right + wrong + 2.0 * PRIOR)
    }

    /// Counts one guess that all before it had led up to.
    pub(super) fn judge(&mut self, evidence: u32, is_right: bool) {
        let judged = &mut self.levels[level(evidence)];
        judged.right *= KEPT;
        judged.wrong *= KEPT;
        if is_right {
            judged.right += 1.0;
        } else {
            judged.wrong += 1.0;
        }
    }
}

fn level(evidence: u32) -> usize {
    match evidence {
        0..=2 => 0,
        3 => 1,
        4 | 5 => 2,
        6 | 7 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unjudged_guesses_are_right_half_the_time_and_levels_are_apart() {
        let mut acceptance = Acceptance::default();
        for evidence in 0..12 {
            assert_eq!(acceptance.chance(evidence), 0.5);
        }
        acceptance.judge(4, true);
        assert_eq!(acceptance.chance(5), 2.0 / 3.0, "4 and 5 are one level");
        acceptance.judge(9, false);
        assert_eq!(acceptance.chance(8), 1.0 / 3.0);
        assert_eq!(acceptance.chance(3), 0.5);
        assert_eq!(acceptance.chance(6), 0.5);
    }

    #[test]
    fn the_past_fades_within_a_few_guesses() {
        let mut acceptance = Acceptance::default();
        for _ in 0..1000 {
            acceptance.judge(8, true);
        }
        let best = acceptance.chance(8);
        assert!((0.944..0.945).contains(&best), "{best}: sixteen right");
        for _ in 0..12 {
            acceptance.judge(8, false);
        }
        assert!(acceptance.chance(8) < 0.5);
        for _ in 0..1000 {
            acceptance.judge(8, false);
        }
        let worst = acceptance.chance(8);
        assert!((0.055..0.056).contains(&worst), "{worst}: never 0");
    }
}
