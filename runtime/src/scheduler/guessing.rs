//! What a sequence guesses, and what it learns from it.

use crate::draft::{Draft, DraftWidth, LookupSettings, PromptLookup, SweepCost};
use crate::source::ReadBytes;

/// The draft of one sequence.
pub(super) struct Guessing {
    draft: Box<dyn Draft>,
    width: DraftWidth,
    /// What follows the pending token, as far as the draft can tell; a sweep
    /// carries the first few of them.
    proposal: Vec<u32>,
    carried: usize,
}

/// How much of a text of `context_positions` is searched for what to guess.
fn lookup(context_positions: usize) -> LookupSettings {
    let default = LookupSettings::default();
    let window_tokens = context_positions.clamp(2 * default.match_max, default.window_tokens);
    LookupSettings {
        window_tokens,
        ..default
    }
}

/// Bytes that guessing for one sequence of `context_positions` reserves.
#[must_use]
pub fn guessing_bytes(context_positions: usize) -> u64 {
    lookup(context_positions).planned_bytes()
}

impl Guessing {
    /// For a sequence of `context_positions`; `guess_bytes_max`: bytes that one
    /// more position can have read.
    pub(super) fn new(context_positions: usize, guess_bytes_max: u64) -> Self {
        Self {
            draft: Box::new(PromptLookup::new(lookup(context_positions))),
            width: DraftWidth::new(guess_bytes_max),
            proposal: Vec::new(),
            carried: 0,
        }
    }

    /// The guesses that the next sweep carries behind the last of `tokens`,
    /// `limit` at most.
    pub(super) fn guess(&mut self, tokens: &[u32], limit: usize) -> &[u32] {
        self.proposal.clear();
        // One more than could be carried: it costs nothing to look.
        self.draft.propose(tokens, limit + 1, &mut self.proposal);
        let limit = limit.min(self.proposal.len());
        self.carried = self.width.width(self.draft.evidence(), limit);
        &self.proposal[..self.carried]
    }

    /// Learns from the sweep: `drawn` are the tokens that came of it, `share`
    /// what it read for this sequence.
    pub(super) fn learn(&mut self, drawn: &[u32], share: ReadBytes) {
        let matching = drawn.iter().zip(&self.proposal);
        let right = matching.take_while(|(drawn, guess)| drawn == guess).count();
        let accepted = right.min(self.carried);
        let beyond = self.proposal.get(self.carried);
        let is_known = accepted == self.carried && drawn.len() > self.carried;
        self.width.observe(&SweepCost {
            carried: self.carried,
            accepted,
            evidence: self.draft.evidence(),
            beyond: beyond
                .filter(|_| is_known)
                .map(|guess| drawn[self.carried] == *guess),
            trunk_read_bytes: share.trunk_bytes,
            expert_read_bytes: share.expert_bytes,
            rejected_read_bytes: None,
        });
    }
}
