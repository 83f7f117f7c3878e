//! States that outlive their sequences: what a prompt shares with an earlier one
//! is not computed again.

use k3_models::SequenceState;

use crate::prefix::{PrefixError, PrefixStore, Saved};

/// The first position at which the state of a prompt is kept. It is kept again
/// whenever the prompt has doubled, up to [`STEP_POSITIONS`].
const FIRST_POSITIONS: usize = 64;
/// From here on it is kept at every multiple.
const STEP_POSITIONS: usize = 512;

/// The position after `position` at which the state of a prompt is kept.
pub(super) fn next_border(position: usize) -> usize {
    if position >= STEP_POSITIONS {
        return (position / STEP_POSITIONS + 1) * STEP_POSITIONS;
    }
    let doubled = (position + 1).next_power_of_two();
    doubled.max(FIRST_POSITIONS)
}

/// Whether the state of a prompt is kept at `position`.
pub(super) fn is_border(position: usize) -> bool {
    position > 0 && next_border(position - 1) == position
}

/// A store, and what became of it.
pub(super) struct Prefixes<'a> {
    store: &'a PrefixStore,
    /// The first state that could not be read, and was computed instead.
    unread: Option<PrefixError>,
    /// What went wrong; nothing is saved any more then.
    fault: Option<PrefixError>,
    /// Whether a state was larger than the limit.
    no_room: Option<(u64, u64)>,
}

impl<'a> Prefixes<'a> {
    pub(super) fn new(store: &'a PrefixStore) -> Self {
        Self {
            store,
            unread: None,
            fault: None,
            no_room: None,
        }
    }

    /// Brings `state`, which is empty, as far along `tokens` as anything stored
    /// goes, but for the last of them. The positions found.
    pub(super) fn restore(&mut self, tokens: &[u32], state: &mut impl SequenceState) -> usize {
        // Each turn takes away a damaged entry, or ends.
        while let Some(hit) = self.store.find(tokens, tokens.len() - 1) {
            let position = hit.position();
            match self.store.load(hit, |from| state.restore(position, from)) {
                Ok(()) => return position,
                Err(error) => {
                    state.reset();
                    let is_gone = matches!(error, PrefixError::Damaged(_));
                    self.unread.get_or_insert(error);
                    if !is_gone {
                        break;
                    }
                }
            }
        }
        0
    }

    /// Keeps the state after `tokens`. A store that cannot take it is no reason
    /// to stop: it is left alone from then on.
    pub(super) fn keep(&mut self, tokens: &[u32], state: &impl SequenceState) {
        if self.fault.is_some() || tokens.is_empty() {
            return;
        }
        assert_eq!(tokens.len(), state.position(), "what the state has taken");
        let bytes = state.saved_bytes(state.position());
        match self.store.save(tokens, bytes, |out| state.save(out)) {
            Ok(Saved::NoRoom {
                file_bytes,
                limit_bytes,
            }) => self.no_room = Some((file_bytes, limit_bytes)),
            Ok(Saved::Stored { .. } | Saved::Present) => {}
            Err(error) => self.fault = Some(error),
        }
    }

    /// What a person should know, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.store.take_warnings();
        let unread = self.unread.as_ref();
        notes.extend(unread.map(|error| format!("computed again: {error}")));
        notes.extend(
            self.fault
                .as_ref()
                .map(|error| format!("the prefix cache took no more states: {error}")),
        );
        notes.extend(self.no_room.map(|(file_bytes, limit_bytes)| {
            format!(
                "a state of {file_bytes} bytes found no room in the prefix cache, whose limit is \
                 {limit_bytes}"
            )
        }));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_double_and_then_step() {
        let mut borders = vec![next_border(0)];
        while borders.len() < 7 {
            borders.push(next_border(*borders.last().unwrap()));
        }
        assert_eq!(borders, [64, 128, 256, 512, 1024, 1536, 2048]);
        assert_eq!(
            [1, 63, 64, 100, 511, 513].map(next_border),
            [64, 64, 128, 128, 512, 1024]
        );
        let all: Vec<_> = (0..1100).filter(|position| is_border(*position)).collect();
        assert_eq!(all, [64, 128, 256, 512, 1024]);
    }
}
