//! The account that guesses may not overdraw.

/// Of all bytes read, one in this many may be wasted on rejected guesses.
const READ_PER_WASTED: u128 = 50;

/// What one sequence's sweeps read, what its rejected guesses wasted and what its
/// accepted ones saved; see [the module](super#the-ledger).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// All bytes of the sweeps observed.
    pub read_bytes: u64,
    /// Of those, what only rejected guesses asked for.
    pub wasted_bytes: u64,
    /// Trunk bytes of the sweeps that accepted guesses made unnecessary.
    pub saved_bytes: u64,
}

impl Ledger {
    /// Bytes that may be wasted now.
    #[must_use]
    pub fn credit_bytes(&self) -> u64 {
        // In fiftieths of a byte: nothing is rounded in favour of guesses.
        let allowed = u128::from(self.read_bytes) + READ_PER_WASTED * u128::from(self.saved_bytes);
        let left = allowed.saturating_sub(READ_PER_WASTED * u128::from(self.wasted_bytes));
        u64::try_from(left / READ_PER_WASTED).unwrap_or(u64::MAX)
    }

    /// Guesses that may all fail if each costs `guess_bytes`.
    pub(super) fn guesses_max(&self, guess_bytes: u64) -> usize {
        let count = self.credit_bytes().checked_div(guess_bytes);
        count.map_or(usize::MAX, |count| {
            usize::try_from(count).unwrap_or(usize::MAX)
        })
    }

    pub(super) fn enter(&mut self, read_bytes: u64, wasted_bytes: u64, saved_bytes: u64) {
        self.read_bytes = self.read_bytes.saturating_add(read_bytes);
        self.wasted_bytes = self.wasted_bytes.saturating_add(wasted_bytes);
        self.saved_bytes = self.saved_bytes.saturating_add(saved_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_in_fifty_may_be_wasted_and_what_was_saved() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.credit_bytes(), 0);
        ledger.enter(99, 0, 0);
        assert_eq!(ledger.credit_bytes(), 1);
        ledger.enter(1, 0, 0);
        assert_eq!((ledger.credit_bytes(), ledger.guesses_max(1)), (2, 2));
        assert_eq!(ledger.guesses_max(3), 0);
        ledger.enter(0, 0, 10);
        assert_eq!((ledger.credit_bytes(), ledger.guesses_max(4)), (12, 3));
        ledger.enter(0, 12, 0);
        assert_eq!(ledger.credit_bytes(), 0);
    }

    #[test]
    fn an_overdrawn_account_allows_nothing_until_it_is_level() {
        let mut ledger = Ledger::default();
        ledger.enter(100, 5, 0);
        assert_eq!(ledger.credit_bytes(), 0);
        ledger.enter(150, 0, 0);
        assert_eq!(ledger.credit_bytes(), 0);
        ledger.enter(50, 0, 0);
        assert_eq!(ledger.credit_bytes(), 1);
    }

    #[test]
    fn guesses_that_cannot_read_are_free_and_great_sums_do_not_wrap() {
        assert_eq!(Ledger::default().guesses_max(0), usize::MAX);
        let mut ledger = Ledger::default();
        ledger.enter(u64::MAX, 0, u64::MAX);
        ledger.enter(u64::MAX, u64::MAX, 1);
        assert_eq!(ledger.credit_bytes(), u64::MAX / 50);
    }
}
