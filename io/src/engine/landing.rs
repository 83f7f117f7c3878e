//! The memory of a request while several reads write into it at once.

use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use super::layout::PiecePlan;
use crate::lease::WriteLease;
use crate::units::file;

/// A write lease whose disjoint parts are written through a shared reference.
///
/// Which parts, is the layout's: its pieces never overlap in the target
/// (property-tested there), and each piece is held by one thread or one ring
/// operation at a time. So the methods below, all of them private to the
/// engines and called with a piece of the layout that this landing belongs to,
/// never give two parties the same bytes.
pub(crate) struct Landing {
    lease: WriteLease,
}

impl Landing {
    pub(crate) fn new(lease: WriteLease) -> Self {
        Self { lease }
    }

    pub(crate) fn len(&self) -> usize {
        self.lease.len()
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        file(self.lease.pointer().as_ptr().addr())
    }

    /// Ends the landing. By value: nobody writes any more.
    pub(crate) fn into_lease(self) -> WriteLease {
        self.lease
    }

    fn pointer(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(range.start <= range.end && range.end <= self.lease.len());
        // SAFETY: inside the lease's memory, checked above.
        unsafe { self.lease.pointer().add(range.start) }
    }

    /// The memory that a piece reads into directly: valid for its `bytes`.
    ///
    /// # Panics
    ///
    /// When the piece goes through a bounce buffer.
    pub(super) fn window(&self, plan: &PiecePlan) -> NonNull<u8> {
        let window = plan.window_in_target().expect("a piece that lands itself");
        self.pointer(&window)
    }

    /// The same as a slice.
    ///
    /// # Safety
    ///
    /// `plan` is a piece of this landing's layout, held by the caller alone for
    /// as long as the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the pieces are disjoint, see the type")]
    pub(super) unsafe fn window_slice(&self, plan: &PiecePlan) -> &mut [u8] {
        // SAFETY: valid memory of that length (checked by `window`), exclusive
        // by the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.window(plan).as_ptr(), plan.bytes) }
    }

    /// Copies the payload of a bounced piece to its place.
    ///
    /// # Safety
    ///
    /// As for [`Landing::window_slice`].
    pub(super) unsafe fn copy_payload(&self, plan: &PiecePlan, bounce: &[u8]) {
        let payload = &bounce[plan.payload_start..plan.payload_start + plan.payload_bytes];
        let target = self.pointer(&(plan.landing..plan.landing + payload.len()));
        // SAFETY: the target is valid for the payload's length (checked above)
        // and exclusive by the caller's promise, so it is apart from `bounce`.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), target.as_ptr(), payload.len()) };
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
