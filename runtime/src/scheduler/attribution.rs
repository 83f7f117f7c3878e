//! Whose bytes a shared read was.

/// One sequence's part in a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Order of admission; lower is older.
    pub(super) age: u64,
    /// Positions it had in the sweep, at least 1.
    pub(super) positions: u64,
}

/// Divides `bytes` by position count. What does not divide goes to the oldest,
/// so the shares add up to `bytes`.
pub(super) fn shares(bytes: u64, parts: &[Part]) -> Vec<u64> {
    let positions: u64 = parts.iter().map(|part| part.positions).sum();
    let share = |part: &Part| {
        let product = u128::from(bytes) * u128::from(part.positions);
        u64::try_from(product / u128::from(positions)).expect("no more than the whole")
    };
    let mut shares: Vec<u64> = parts.iter().map(share).collect();
    let oldest = (0..parts.len()).min_by_key(|index| parts[*index].age);
    if let Some(oldest) = oldest {
        shares[oldest] += bytes - shares.iter().sum::<u64>();
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(list: &[(u64, u64)]) -> Vec<Part> {
        let parts = list.iter();
        parts
            .map(|&(age, positions)| Part { age, positions })
            .collect()
    }

    #[test]
    fn shares_follow_positions_and_the_oldest_takes_the_rest() {
        assert_eq!(shares(100, &parts(&[(5, 1), (2, 1), (9, 1)])), [33, 34, 33]);
        assert_eq!(shares(10, &parts(&[(0, 1), (1, 64)])), [1, 9]);
        assert_eq!(shares(0, &parts(&[(0, 1), (1, 3)])), [0, 0]);
        assert_eq!(shares(7, &parts(&[(3, 2)])), [7]);
        assert!(shares(7, &[]).is_empty());
    }

    #[test]
    fn shares_add_up_whatever_is_divided() {
        for bytes in [1, 17, 1_000_003, u64::MAX] {
            for count in 1..9 {
                let list: Vec<_> = (0..count)
                    .map(|index| (count - index, 1 + index * 7))
                    .collect();
                let shares = shares(bytes, &parts(&list));
                let sum = shares.iter().map(|share| u128::from(*share)).sum::<u128>();
                assert_eq!(sum, u128::from(bytes));
            }
        }
    }
}
