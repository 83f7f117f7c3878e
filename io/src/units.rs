//! Sizes: file offsets are `u64`, memory is `usize`, and both are 64 bits here.

const _: () = assert!(
    usize::BITS == 64,
    "models larger than memory need 64-bit addresses"
);

/// One mebibyte.
pub(crate) const MIB: usize = 1 << 20;

/// A file-side size as a memory size.
#[allow(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: asserted above"
)]
pub(crate) const fn memory(bytes: u64) -> usize {
    bytes as usize
}

/// A memory size as a file-side size.
pub(crate) const fn file(bytes: usize) -> u64 {
    bytes as u64
}

/// The largest multiple of `alignment` (a power of two) not above `value`.
pub(crate) const fn align_down(value: u64, alignment: u64) -> u64 {
    value & !(alignment - 1)
}

/// The smallest multiple of `alignment` (a power of two) not below `value`,
/// or `None` past the end of `u64`.
pub(crate) const fn align_up(value: u64, alignment: u64) -> Option<u64> {
    match value.checked_add(alignment - 1) {
        Some(sum) => Some(align_down(sum, alignment)),
        None => None,
    }
}
