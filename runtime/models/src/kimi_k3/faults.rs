//! What went wrong for which segment: sequences that share a sweep must not
//! share their faults.
//!
//! Positions reach one another only within a sequence, and only forwards. So a
//! non-finite value ends its segment from that position on, and the sweep goes
//! on for the others.

use crate::error::ModelError;
use crate::family::Fault;
use crate::kimi_k3::run::KimiK3Run;
use crate::sweep::{Advance, Sweep};

/// The first fault of each segment.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Offset within the segment, and what is wrong.
    first: Vec<Option<(usize, ModelError)>>,
}

impl Faults {
    pub(crate) fn none(sweep: &Sweep) -> Self {
        Self {
            first: sweep.segments().iter().map(|_| None).collect(),
        }
    }

    /// Files `error` for the position at `offset` of `segment`, unless one of
    /// the same or an earlier position is known.
    fn file(&mut self, segment: usize, offset: usize, error: ModelError) {
        let entry = &mut self.first[segment];
        if entry.as_ref().is_none_or(|(first, _)| offset < *first) {
            *entry = Some((offset, error));
        }
    }

    /// Whether nothing of `segment` can be used: of one that is held back, the
    /// first position is the only one that is no guess.
    pub(crate) fn is_lost(&self, segment: usize, advance: Advance) -> bool {
        match (&self.first[segment], advance) {
            (None, _) => false,
            (Some(_), Advance::All) => true,
            (Some((offset, _)), Advance::Held) => *offset == 0,
        }
    }

    pub(crate) fn into_list(self) -> Vec<Fault> {
        let faults = self.first.into_iter().enumerate();
        faults
            .filter_map(|(segment, fault)| {
                let (offset, error) = fault?;
                Some(Fault {
                    segment,
                    offset,
                    error,
                })
            })
            .collect()
    }

    /// The fault of the first segment that has one.
    fn take_first(&mut self) -> Option<ModelError> {
        let mut faults = self.first.iter_mut();
        faults.find_map(Option::take).map(|(_, error)| error)
    }
}

impl KimiK3Run<'_> {
    /// Files what is wrong at sweep position `index`.
    pub(crate) fn blame(&mut self, index: usize, error: ModelError) {
        let (segment, span) = self.segment_of(index);
        let offset = index - span.start;
        self.faults.file(segment, offset, error);
    }

    /// Ends the sweep once no segment is left to compute for.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub(crate) fn check_faults(&mut self) -> Result<(), ModelError> {
        let mut segments = self.sweep.segments().iter().enumerate();
        if !segments.all(|(index, segment)| self.faults.is_lost(index, segment.advance)) {
            return Ok(());
        }
        match self.faults.take_first() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
