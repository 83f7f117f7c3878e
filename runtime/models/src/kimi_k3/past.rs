//! The parts of a layer's past that are not in memory.

use crate::error::ModelError;
use crate::family::SequenceState as _;
use crate::kimi_k3::run::KimiK3Run;
use crate::pages::{PastPart, StoreError};
use crate::sweep::Sweep;

/// What was read of it, for the layer at hand.
pub(crate) struct Past {
    /// For each segment its parts in order; `None` if one could not be read.
    parts: Vec<Option<Vec<PastPart>>>,
}

impl Past {
    pub(crate) fn none(sweep: &Sweep) -> Self {
        Self {
            parts: sweep.segments().iter().map(|_| Some(Vec::new())).collect(),
        }
    }

    /// The parts of `segment`, in the order of positions, or that one is missing.
    pub(crate) fn of(&self, segment: usize) -> Option<&[PastPart]> {
        self.parts[segment].as_deref()
    }

    /// Lets go of them. Segments that lack one are not forgotten.
    pub(crate) fn give_back(&mut self) {
        for parts in self.parts.iter_mut().flatten() {
            parts.clear();
        }
    }
}

impl KimiK3Run<'_> {
    /// Files `parts` under the segments they belong to.
    pub(crate) fn take_past(
        &mut self,
        parts: Vec<Result<PastPart, StoreError>>,
    ) -> Result<(), ModelError> {
        let mut parts = parts.into_iter();
        let mut broken = Vec::new();
        for (segment, state) in self.states.iter().enumerate() {
            let mine: Vec<_> = parts.by_ref().take(state.outside().len()).collect();
            assert_eq!(mine.len(), state.outside().len(), "a part of every page");
            match mine.into_iter().collect() {
                Ok(mine) => {
                    if let Some(kept) = &mut self.past.parts[segment] {
                        *kept = mine;
                    }
                }
                Err(error) => broken.push((segment, error)),
            }
        }
        assert!(parts.next().is_none(), "no part of another page");
        for (segment, error) in broken {
            self.past.parts[segment] = None;
            self.blame(self.spans[segment].start, error.into());
        }
        self.check_faults()
    }
}
