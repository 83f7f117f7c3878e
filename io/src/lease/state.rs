//! The life of one piece of leased memory, as one atomic word.
//!
//! ```text
//! free ──acquire──► writing ──freeze──► shared(1) ◄─share/unshare─► shared(n)
//!  ▲                   │                    │
//!  └──────abandon──────┴──────unshare───────┘
//! ```
//!
//! The word holds the state in its low half and a generation in its high half;
//! each acquire starts a new generation, and every later step checks it, so a
//! lease that outlived its memory would be noticed at once instead of freeing
//! somebody else's.
//!
//! Ordering: `acquire` synchronises with the `unshare` or `abandon` that freed
//! the memory (and, through the chain of read-modify-writes, with every
//! `unshare` before it), so a new writer sees all readers done. `freeze`
//! publishes the writer's bytes; readers get the word through the lease that
//! `freeze` returned.

use std::sync::atomic::{AtomicU64, Ordering};

/// The atomic word below [`SlotState`]: the standard one, or a model checker's.
pub trait Word {
    /// A word holding `value`.
    fn new(value: u64) -> Self;
    /// Atomic load.
    fn load(&self, order: Ordering) -> u64;
    /// Strong compare-and-exchange.
    ///
    /// # Errors
    ///
    /// The value found when it is not `current`.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Adds and returns the value before.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Subtracts and returns the value before.
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
}

/// Which lease of a slot: counts acquisitions, wraps after 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation(u32);

impl Generation {
    const fn of(word: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the high half")]
        Self((word >> 32) as u32)
    }

    const fn word(self, state: u32) -> u64 {
        ((self.0 as u64) << 32) | state as u64
    }
}

const FREE: u32 = 0;
/// 1..=`READERS_MAX` are reader counts.
const READERS_MAX: u32 = u32::MAX / 2;
const WRITING: u32 = u32::MAX;

const fn state(word: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the low half")]
    {
        word as u32
    }
}

/// State of one slot; see the module's diagram.
pub struct SlotState<W = AtomicU64>(W);

impl<W: Word> SlotState<W> {
    /// A free slot.
    #[must_use]
    pub fn new() -> Self {
        Self(W::new(Generation(0).word(FREE)))
    }

    /// free -> writing, with a new generation; `None` when not free.
    pub fn acquire(&self) -> Option<Generation> {
        let word = self.0.load(Ordering::Relaxed);
        if state(word) != FREE {
            return None;
        }
        let generation = Generation(Generation::of(word).0.wrapping_add(1));
        self.0
            .compare_exchange(
                word,
                generation.word(WRITING),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()
            .map(|_| generation)
    }

    /// writing -> shared(1).
    ///
    /// # Panics
    ///
    /// When this generation is not being written: a bug in the leases.
    pub fn freeze(&self, generation: Generation) {
        self.replace_writing(generation, 1);
    }

    /// writing -> free.
    ///
    /// # Panics
    ///
    /// When this generation is not being written: a bug in the leases.
    pub fn abandon(&self, generation: Generation) {
        self.replace_writing(generation, FREE);
    }

    fn replace_writing(&self, generation: Generation, new: u32) {
        let result = self.0.compare_exchange(
            generation.word(WRITING),
            generation.word(new),
            Ordering::Release,
            Ordering::Relaxed,
        );
        assert!(result.is_ok(), "slot is not being written: {result:?}");
    }

    /// shared(n) -> shared(n + 1). The caller holds one of the n, so nothing
    /// needs ordering.
    ///
    /// # Panics
    ///
    /// When the slot is not shared in this generation, or shared 2^31 times.
    pub fn share(&self, generation: Generation) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(
            Generation::of(before) == generation && (1..READERS_MAX).contains(&state(before)),
            "slot is not shared: {before:#x}"
        );
    }

    /// shared(n) -> shared(n - 1), or free from shared(1): then `true`, and the
    /// memory belongs to the next writer.
    ///
    /// # Panics
    ///
    /// When the slot is not shared in this generation.
    pub fn unshare(&self, generation: Generation) -> bool {
        let before = self.0.fetch_sub(1, Ordering::Release);
        assert!(
            Generation::of(before) == generation && (1..=READERS_MAX).contains(&state(before)),
            "slot is not shared: {before:#x}"
        );
        state(before) == 1
    }

    /// Whether nobody holds the slot at this moment.
    pub fn is_free(&self) -> bool {
        state(self.0.load(Ordering::Relaxed)) == FREE
    }
}

impl<W: Word> Default for SlotState<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine written as a table, to compare with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Model {
        Free,
        Writing,
        Shared(u32),
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Acquire,
        Freeze,
        Abandon,
        Share,
        Unshare,
    }

    const STEPS: [Step; 5] = [
        Step::Acquire,
        Step::Freeze,
        Step::Abandon,
        Step::Share,
        Step::Unshare,
    ];

    fn expected(model: Model, step: Step) -> Option<Model> {
        match (model, step) {
            (Model::Free, Step::Acquire) => Some(Model::Writing),
            (Model::Writing, Step::Freeze) => Some(Model::Shared(1)),
            (Model::Writing, Step::Abandon) | (Model::Shared(1), Step::Unshare) => {
                Some(Model::Free)
            }
            (Model::Shared(n), Step::Share) => Some(Model::Shared(n + 1)),
            (Model::Shared(n), Step::Unshare) => Some(Model::Shared(n - 1)),
            _ => None,
        }
    }

    /// All legal sequences of eight steps, checked state by state; illegal
    /// steps must be refused or panic.
    #[test]
    fn every_short_sequence_follows_the_table() {
        let mut legal_sequences = 0_u32;
        for code in 0..STEPS.len().pow(8) {
            let slot = SlotState::<AtomicU64>::new();
            let mut generation = Generation(0);
            let mut model = Model::Free;
            let mut rest = code;
            let mut legal = true;
            for _ in 0..8 {
                let step = STEPS[rest % STEPS.len()];
                rest /= STEPS.len();
                let Some(next) = expected(model, step) else {
                    if matches!(step, Step::Acquire) {
                        assert_eq!(slot.acquire(), None, "{model:?}");
                    }
                    legal = false;
                    break;
                };
                match step {
                    Step::Acquire => {
                        let new = slot.acquire().expect("free");
                        assert_eq!(new.0, generation.0 + 1);
                        generation = new;
                    }
                    Step::Freeze => slot.freeze(generation),
                    Step::Abandon => slot.abandon(generation),
                    Step::Share => slot.share(generation),
                    Step::Unshare => {
                        assert_eq!(slot.unshare(generation), next == Model::Free);
                    }
                }
                model = next;
                assert_eq!(slot.is_free(), model == Model::Free);
            }
            legal_sequences += u32::from(legal);
        }
        assert!(legal_sequences > 40, "{legal_sequences}");
    }

    #[test]
    fn stale_generations_are_noticed() {
        let slot = SlotState::<AtomicU64>::new();
        let old = slot.acquire().unwrap();
        slot.abandon(old);
        let new = slot.acquire().unwrap();
        slot.freeze(new);
        for action in [
            SlotState::<AtomicU64>::freeze as fn(&SlotState, Generation),
            SlotState::abandon,
            SlotState::share,
        ] {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                action(&slot, old);
            }));
            assert!(result.is_err());
        }
    }

    #[test]
    fn generations_wrap() {
        let slot = SlotState::<AtomicU64>(AtomicU64::new(Generation(u32::MAX).word(FREE)));
        let generation = slot.acquire().unwrap();
        assert_eq!(generation, Generation(0));
        slot.freeze(generation);
        assert!(slot.unshare(generation));
    }
}
