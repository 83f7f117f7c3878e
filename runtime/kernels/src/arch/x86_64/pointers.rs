//! Pointers into checked slices, for loops that read without bounds checks.

/// The starts of `R` consecutive rows of `bytes: [rows][stride]`, from row
/// `first` on. Rows beyond the last of `count` repeat that last one, so that a
/// tile of `R` rows may always be read whole and the surplus thrown away.
///
/// Every returned pointer is good for reading `len` bytes while `bytes` is
/// borrowed: each comes from a checked slice of that length.
#[inline]
pub(crate) fn row_starts<const R: usize>(
    bytes: &[u8],
    stride: usize,
    len: usize,
    first: usize,
    count: usize,
) -> [*const u8; R] {
    assert!(count > 0, "a tile has at least one row");
    std::array::from_fn(|r| bytes[(first + r.min(count - 1)) * stride..][..len].as_ptr())
}

/// The starts of `P` consecutive positions of `x: [positions][cols]`, from
/// `first` on; each good for reading `cols` values while `x` is borrowed.
#[inline]
pub(crate) fn position_starts<const P: usize>(
    x: &[f32],
    cols: usize,
    first: usize,
) -> [*const f32; P] {
    std::array::from_fn(|p| x[(first + p) * cols..][..cols].as_ptr())
}

/// The starts of up to eight `sources` of `len` values each, the last one
/// repeated to fill the tile; each good for reading `4 * len` bytes while the
/// sources are borrowed.
#[inline]
pub(crate) fn source_starts(sources: &[&[f32]], len: usize) -> [*const u8; 8] {
    std::array::from_fn(|r| {
        let source = &sources[r.min(sources.len() - 1)][..len];
        f32_bytes(source).as_ptr()
    })
}

/// The bytes of `values`, little-endian as every x86-64 target is.
#[inline]
pub(crate) fn f32_bytes(values: &[f32]) -> &[u8] {
    // SAFETY: any f32 is four initialised bytes, u8 has no alignment, and the
    // result borrows `values` for the same lifetime.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Positions in the next tile when `left` remain, out of tiles of at most
/// three: never a single one where a pair is possible.
#[inline]
pub(crate) fn next_tile(left: usize) -> usize {
    match left {
        0..=3 => left,
        4 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_count_without_single_positions() {
        for positions in 1..100 {
            let mut left = positions;
            while left > 0 {
                let tile = next_tile(left);
                assert!(tile <= left && (1..=3).contains(&tile));
                assert!(tile > 1 || positions == 1);
                left -= tile;
            }
        }
    }

    #[test]
    fn surplus_rows_repeat_the_last() {
        let bytes = [0_u8; 12];
        let starts = row_starts::<4>(&bytes, 4, 4, 1, 2);
        let offsets = starts.map(|start| start.addr() - bytes.as_ptr().addr());
        assert_eq!(offsets, [4, 8, 8, 8]);
    }

    #[test]
    fn bytes_are_little_endian() {
        assert_eq!(f32_bytes(&[1.0, -2.0]), [0, 0, 128, 63, 0, 0, 0, 192]);
    }
}
