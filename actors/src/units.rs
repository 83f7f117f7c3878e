//! Conversions between file sizes and memory sizes.

/// A size in a file as a size in memory.
///
/// # Panics
///
/// On a machine whose address space is smaller than the number: plans refuse
/// that long before.
pub(crate) fn memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("planned sizes fit the address space")
}
