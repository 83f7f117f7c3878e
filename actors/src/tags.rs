//! Tags of read requests, distinct among all who read.

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    /// The trunk streamer.
    Trunk,
    /// The expert cache.
    Experts,
    /// Embedding rows.
    Rows,
}

/// An endless supply of tags of one party.
#[derive(Debug)]
pub(crate) struct Tags {
    next: u64,
}

impl Tags {
    pub(crate) fn new(party: Party) -> Self {
        Self {
            next: (party as u64) << 60,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
