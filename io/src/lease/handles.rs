//! The two leases: one writer, then any number of readers.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::table::{LeaseTable, Span};

/// Exclusive use of a piece of arena memory.
///
/// Dropped, it returns the memory; [`WriteLease::freeze`] turns it into
/// [`ReadLease`]s. The bytes are whatever the last holder left.
pub struct WriteLease {
    table: Arc<LeaseTable>,
    span: Span,
    /// False once frozen: the readers return the memory then.
    owned: bool,
}

// The pointer below is derived on use; the lease itself is plain data, and Send
// and Sync come from its fields. Exclusivity is the state machine's.
impl WriteLease {
    /// A lease of a span whose cell this caller has just acquired.
    pub(super) fn new(table: Arc<LeaseTable>, span: Span) -> Self {
        Self {
            table,
            span,
            owned: true,
        }
    }

    /// Ends writing. Readers see `payload`, the part of the memory that holds
    /// what was asked for; the rest (alignment, slack) stays hidden but leased.
    ///
    /// # Panics
    ///
    /// When `payload` is not inside the lease.
    #[must_use]
    pub fn freeze(mut self, payload: Range<usize>) -> ReadLease {
        assert!(
            payload.start <= payload.end && payload.end <= self.span.bytes,
            "payload {payload:?} of a lease of {} bytes",
            self.span.bytes
        );
        self.table.cell(self.span.cell).freeze(self.span.generation);
        self.owned = false;
        ReadLease {
            table: Arc::clone(&self.table),
            span: self.span,
            payload,
        }
    }

    /// Index of the slot, for leases of a [`super::SlotArena`]; the allocation's
    /// number for those of a [`super::RingArena`].
    #[must_use]
    pub fn index(&self) -> u64 {
        self.span.sequence
    }

    /// First byte, valid for reads and writes of `self.len()` bytes while the
    /// lease lives.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.table.pointer(&self.span)
    }
}

impl Deref for WriteLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the span lies in a mapping that lives as long as `table`;
        // the cell is in state `writing` with this lease as its only holder,
        // so nothing writes while the shared borrow of `self` lives.
        unsafe { slice::from_raw_parts(self.pointer().as_ptr(), self.span.bytes) }
    }
}

impl DerefMut for WriteLease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of the only holder makes
        // the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.pointer().as_ptr(), self.span.bytes) }
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        if self.owned {
            self.table
                .cell(self.span.cell)
                .abandon(self.span.generation);
            self.table.reclaim(&self.span);
        }
    }
}

impl fmt::Debug for WriteLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WriteLease({} bytes at {})",
            self.span.bytes, self.span.start
        )
    }
}

/// Shared, immutable use of a piece of arena memory; dereferences to the
/// payload. Clones are cheap (two counters); the last drop returns the memory.
pub struct ReadLease {
    table: Arc<LeaseTable>,
    span: Span,
    payload: Range<usize>,
}

impl ReadLease {
    /// Another lease on the same memory that shows `part` of this payload.
    ///
    /// # Panics
    ///
    /// When `part` is not inside the payload.
    #[must_use]
    pub fn part(&self, part: Range<usize>) -> Self {
        assert!(
            part.start <= part.end && part.end <= self.payload.len(),
            "part {part:?} of a payload of {} bytes",
            self.payload.len()
        );
        let mut lease = self.clone();
        lease.payload = self.payload.start + part.start..self.payload.start + part.end;
        lease
    }

    /// See [`WriteLease::index`].
    #[must_use]
    pub fn index(&self) -> u64 {
        self.span.sequence
    }
}

impl Deref for ReadLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the span lies in a mapping that lives as long as `table`;
        // the cell is in state `shared`, this lease is one of its holders, and
        // no write lease can exist before all of them are gone. `payload` was
        // checked to lie inside the span.
        unsafe {
            slice::from_raw_parts(
                self.table
                    .pointer(&self.span)
                    .as_ptr()
                    .add(self.payload.start),
                self.payload.len(),
            )
        }
    }
}

impl Clone for ReadLease {
    fn clone(&self) -> Self {
        self.table.cell(self.span.cell).share(self.span.generation);
        Self {
            table: Arc::clone(&self.table),
            span: self.span,
            payload: self.payload.clone(),
        }
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        if self
            .table
            .cell(self.span.cell)
            .unshare(self.span.generation)
        {
            self.table.reclaim(&self.span);
        }
    }
}

impl fmt::Debug for ReadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ReadLease({} bytes at {})",
            self.payload.len(),
            self.span.start + self.payload.start
        )
    }
}
