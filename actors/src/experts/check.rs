//! What must hold between any two calls of a [`SlotTable`].

use super::slot::{Claim, Slot, SlotId, SlotState};
use super::slots::SlotTable;

impl SlotTable {
    /// Checks every invariant over all slots: each expert is found in at most
    /// one, the counts add up, nothing in use is free, the policy's experts
    /// are where they are said to be. Costs a walk over the table; for tests.
    ///
    /// # Panics
    ///
    /// When one does not hold, with its name.
    pub fn check_invariants(&self) {
        let count = |is: &dyn Fn(&Slot) -> bool| self.slots.iter().filter(|slot| is(slot)).count();
        assert_eq!(self.slots.len(), self.shape.slot_count);
        assert_eq!(
            self.free.len(),
            count(&|slot| slot.state == SlotState::Empty),
            "every empty slot is free"
        );
        assert_eq!(
            self.in_flight_count,
            count(&|slot| slot.state == SlotState::InFlight)
        );
        assert_eq!(self.leased_count, count(&|slot| slot.lease_count > 0));
        assert_eq!(
            self.awaited_count,
            count(&|slot| slot.claim == Claim::Awaited)
        );
        assert_eq!(self.ahead.len(), count(&|slot| slot.claim == Claim::Ahead));
        assert_eq!(
            self.wasted_count,
            count(&|slot| slot.claim == Claim::Wasted)
        );
        let guessed = self.ahead.len() + self.wasted_count;
        assert!(guessed <= self.shape.lookahead_count_max);
        for (index, slot) in self.slots.iter().enumerate() {
            self.check_slot(SlotId::new(index), slot);
        }
        self.check_places();
    }

    fn check_slot(&self, id: SlotId, slot: &Slot) {
        let is_found = self.slot_of.get(&slot.key) == Some(&id);
        match slot.state {
            SlotState::Empty => {
                assert!(self.free.contains(&id), "{id:?} is lost");
                assert!(slot.lease_count == 0 && slot.claim == Claim::None);
                assert!(!is_found, "{id:?} is empty and found");
            }
            SlotState::InFlight => {
                assert_eq!(slot.lease_count, 0, "{id:?} is lent before it is read");
                let is_wanted = matches!(slot.claim, Claim::Awaited | Claim::Ahead);
                assert_eq!(is_wanted, is_found, "{id:?}");
            }
            SlotState::Resident => {
                assert_ne!(slot.claim, Claim::Wasted, "{id:?}");
                let is_cached = is_found && self.policy.contains(slot.key);
                let is_used = slot.lease_count > 0 || slot.claim != Claim::None;
                assert!(is_cached || is_used, "{id:?} is kept for nobody");
            }
        }
    }

    fn check_places(&self) {
        assert!(self.policy.len() <= self.policy.capacity());
        let mut cached_count = 0;
        for (key, id) in &self.slot_of {
            let slot = &self.slots[id.index()];
            assert_eq!(slot.key, *key, "{id:?} holds another expert");
            assert_ne!(slot.state, SlotState::Empty, "{id:?}");
            cached_count += usize::from(self.policy.contains(*key));
        }
        for key in &self.unread {
            assert!(!self.slot_of.contains_key(key), "{key} has a slot");
            cached_count += usize::from(self.policy.contains(*key));
        }
        assert_eq!(
            cached_count,
            self.policy.len(),
            "a cached expert has a slot or is about to get one"
        );
    }
}
