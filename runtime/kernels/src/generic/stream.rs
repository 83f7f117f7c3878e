//! Reading memory: the bound of every kernel whose weights come from there.

/// Sums of a byte slice's 64-bit words, by their index modulo 8.
pub(crate) type WordSums = [u64; 8];

/// `sums[l]` = wrapping sum of the words `w[i]` with `i mod 8 = l`.
///
/// Words are little-endian, the last one padded with zero bytes. Wrapping sums
/// have no order: a body may read the bytes in any.
pub(crate) fn read_sums(bytes: &[u8]) -> WordSums {
    let mut sums = [0; 8];
    add_words(bytes, &mut sums);
    sums
}

/// Adds the words of `bytes` to `sums`, the first to lane 0.
#[inline(always)]
pub(crate) fn add_words(bytes: &[u8], sums: &mut WordSums) {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, &word) in words.iter().enumerate() {
        let sum = &mut sums[i % 8];
        *sum = sum.wrapping_add(u64::from_le_bytes(word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = &mut sums[words.len() % 8];
    *sum = sum.wrapping_add(u64::from_le_bytes(last));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_the_last_is_padded() {
        assert_eq!(read_sums(&[]), [0; 8]);
        assert_eq!(read_sums(&[1, 2])[0], 0x0201);
        let mut bytes = [0; 8 * 9 + 3];
        bytes[7] = 0x80;
        bytes[64] = 5;
        bytes[72] = 9;
        let expected = [0x8000_0000_0000_0005, 9, 0, 0, 0, 0, 0, 0];
        assert_eq!(read_sums(&bytes), expected);
        assert_eq!(read_sums(&[0xFF; 128]), [u64::MAX - 1; 8]);
    }
}
