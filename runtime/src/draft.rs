//! What a sweep may guess ahead, and how much.
//!
//! Reading the weights costs more than computing with them, and one sweep reads
//! the trunk once for all its positions. So a sweep may carry *guesses* of the
//! tokens to come behind the last known one: those that the model then chooses
//! itself are kept, the first other one and all behind it are dropped. Tokens
//! stay what they would be; only the bytes per token change. This module makes
//! the guesses ([`Draft`], [`PromptLookup`]) and decides how many are worth
//! their bytes ([`DraftWidth`]). It is arithmetic on counts and bytes, never on
//! times: the same tokens and the same reads give the same guesses.
//!
//! # One turn
//!
//! ```
//! use k3_runtime::draft::{Draft, DraftWidth, PromptLookup, SweepCost};
//!
//! let mut draft = PromptLookup::default();
//! let mut width = DraftWidth::new(1_000); // bytes one position can have read
//! let mut guesses = Vec::new();
//!
//! let tokens = [5, 6, 7, 8, 5, 6];
//! draft.propose(&tokens, 4, &mut guesses);
//! assert_eq!((guesses.as_slice(), draft.evidence()), (&[7, 8, 5, 6][..], 2));
//!
//! let carried = width.width(draft.evidence(), guesses.len());
//! assert_eq!(carried, 0, "nothing has been read yet, so nothing may be risked");
//!
//! // A plain sweep. The model chose 7, as the first guess said.
//! width.observe(&SweepCost {
//!     carried: 0,
//!     accepted: 0,
//!     evidence: draft.evidence(),
//!     beyond: Some(true),
//!     trunk_read_bytes: 4_000,
//!     expert_read_bytes: 900,
//!     rejected_read_bytes: None,
//! });
//! ```
//!
//! # Formulas
//!
//! A sweep with k guesses has T = k + 1 positions. With p the chance that a
//! guess is right if all before it were, it yields
//!
//! ```text
//! tokens(k) = 1 + p + p^2 + ... + p^k
//! bytes(k)  = trunk + experts(k + 1)
//! experts(T) = e + m * (T - 1)
//! ```
//!
//! trunk, e and m are measured, p is counted; the width is the k with the
//! fewest bytes(k) / tokens(k). That quotient falls up to its minimum and rises
//! after it: tokens is concave in k, bytes is a line.
//!
//! A straight line for the experts errs on the careful side: positions of one
//! text share experts, and the more of them there are, the less each adds.
//!
//! Where nothing is read (all weights in memory), what a sweep costs is the
//! positions it computes. tokens(k) is at most k + 1, so no guess ever pays, and
//! the width is 0.
//!
//! # The ledger
//!
//! The formulas can be wrong; the ledger cannot be overdrawn. It holds, in whole
//! bytes since the sequence began,
//!
//! ```text
//! wasted <= read / 50 + saved
//! ```
//!
//! wasted: what only rejected guesses had read; read: all bytes of the sweeps
//! observed; saved: per accepted guess, the trunk bytes of the sweep it saved.
//! A sweep may carry k guesses only if the line would hold after all k are
//! rejected and each had read the most that one position can.
//!
//! Let plain be what the same tokens would have read without guesses. An
//! accepted guess spares its sweep's trunk, and its experts are read at most
//! once, as without guesses; so read <= plain - saved + wasted, hence
//! read <= plain + read / 50, and **read <= plain / 0.98**: at most 2.1 % more
//! than plain, whatever the text and whatever the formulas say. (What is left
//! out: rejected guesses also move experts through the cache.)

mod acceptance;
mod cost;
mod ledger;
mod lookup;
mod width;

pub use ledger::Ledger;
pub use lookup::{LookupSettings, PromptLookup};
pub use width::{DraftWidth, GUESSES_MAX, SweepCost};

/// Guesses the next tokens of one sequence.
pub trait Draft: Send {
    /// What the draft is called in reports.
    fn name(&self) -> &'static str;

    /// Appends to `out` at most `count` guesses of what follows `tokens`, which
    /// is all the sequence holds, prompt and output. There may be none.
    ///
    /// From call to call `tokens` only grows, until [`Draft::reset`]. The guesses
    /// follow from `tokens` alone, whatever calls came before.
    ///
    /// # Panics
    ///
    /// May panic if `tokens` has become shorter without a reset.
    fn propose(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>);

    /// How much speaks for the last proposal, on a scale of the draft's own on
    /// which more is better: [`DraftWidth`] counts per level how often guesses
    /// were right. 0 after a proposal without guesses.
    fn evidence(&self) -> u32;

    /// Forgets the sequence.
    fn reset(&mut self);
}
