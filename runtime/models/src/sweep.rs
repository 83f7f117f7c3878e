//! Which positions one walk through the layers serves.

/// For which positions of a segment logits are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitRows {
    /// None: the output head is not needed for this segment.
    None,
    /// The segment's last position.
    Last,
    /// Every position of the segment.
    All,
}

/// What a finished sweep does to the state of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Advance {
    /// The state moves past all positions of the segment.
    #[default]
    All,
    /// The state stays where it is until
    /// [`ModelFamily::commit`](crate::ModelFamily::commit) says how many of the
    /// positions count: the tokens after the first are guesses.
    Held,
}

/// Consecutive positions of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Token ids, in order; the first continues where the state stands.
    pub tokens: Vec<u32>,
    /// Which logits the caller wants.
    pub logits: LogitRows,
    /// Whether the state takes all of them.
    pub advance: Advance,
}

impl Segment {
    /// Rows of logits wanted.
    #[must_use]
    pub fn logit_row_count(&self) -> usize {
        match self.logits {
            LogitRows::None => 0,
            LogitRows::Last => 1,
            LogitRows::All => self.tokens.len(),
        }
    }
}

/// The positions of one walk: segment `i` belongs to state `i`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    segments: Vec<Segment>,
}

impl Sweep {
    /// A sweep over `segments`.
    ///
    /// # Panics
    ///
    /// If there is no segment or one is empty: callers form sweeps from work
    /// they have.
    #[must_use]
    pub fn new(segments: Vec<Segment>) -> Self {
        assert!(!segments.is_empty(), "a sweep serves at least one sequence");
        assert!(
            segments.iter().all(|segment| !segment.tokens.is_empty()),
            "a segment has at least one position"
        );
        Self { segments }
    }

    /// A sweep over one sequence.
    ///
    /// # Panics
    ///
    /// If `tokens` is empty.
    #[must_use]
    pub fn single(tokens: Vec<u32>, logits: LogitRows) -> Self {
        Self::new(vec![Segment {
            tokens,
            logits,
            advance: Advance::All,
        }])
    }

    /// The segments, in the order of their states.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// All token ids, segment after segment: the sweep's positions.
    pub fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.segments
            .iter()
            .flat_map(|segment| segment.tokens.iter().copied())
    }

    /// Positions served.
    #[must_use]
    pub fn position_count(&self) -> usize {
        self.segments
            .iter()
            .map(|segment| segment.tokens.len())
            .sum()
    }

    /// Positions whose states wait for a commit.
    #[must_use]
    pub fn held_position_count(&self) -> usize {
        let held = self.segments.iter();
        held.filter(|segment| segment.advance == Advance::Held)
            .map(|segment| segment.tokens.len())
            .sum()
    }

    /// Rows of logits wanted.
    #[must_use]
    pub fn logit_row_count(&self) -> usize {
        self.segments.iter().map(Segment::logit_row_count).sum()
    }

    /// Indices (within the sweep) of the positions whose logits are wanted.
    pub fn logit_positions(&self) -> impl Iterator<Item = usize> + '_ {
        let mut start = 0;
        self.segments.iter().flat_map(move |segment| {
            let end = start + segment.tokens.len();
            let range = match segment.logits {
                LogitRows::None => end..end,
                LogitRows::Last => end - 1..end,
                LogitRows::All => start..end,
            };
            start = end;
            range
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logit_positions_follow_each_segment() {
        let segment = |count: u32, logits| Segment {
            tokens: (0..count).collect(),
            logits,
            advance: Advance::All,
        };
        let sweep = Sweep::new(vec![
            segment(3, LogitRows::Last),
            segment(2, LogitRows::None),
            segment(2, LogitRows::All),
        ]);
        assert_eq!(sweep.position_count(), 7);
        assert_eq!(sweep.logit_positions().collect::<Vec<_>>(), [2, 5, 6]);
        assert_eq!(sweep.tokens().collect::<Vec<_>>(), [0, 1, 2, 0, 1, 0, 1]);
    }
}
