//! Tags of read requests, distinct among all who read.

/// Tags of one party differ below this bit.
const PARTY_SHIFT: u32 = 60;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    /// The trunk streamer.
    Trunk,
    /// The expert cache.
    Experts,
    /// Embedding rows.
    Rows,
    /// Pages that are not in memory.
    Past,
}

impl Party {
    /// Whose request `tag` names.
    pub(crate) fn of(tag: u64) -> Self {
        let parties = [Self::Trunk, Self::Experts, Self::Rows, Self::Past];
        let party = parties
            .into_iter()
            .find(|party| *party as u64 == tag >> PARTY_SHIFT);
        party.expect("every tag has its party in its upper bits")
    }
}

/// An endless supply of tags of one party.
#[derive(Debug)]
pub(crate) struct Tags {
    next: u64,
}

impl Tags {
    pub(crate) fn new(party: Party) -> Self {
        Self {
            next: (party as u64) << PARTY_SHIFT,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
