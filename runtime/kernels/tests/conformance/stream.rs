//! Reading memory: every length around the steps and the parts of a body.

use crate::buffers::Bytes;
use crate::values::{self, Random};
use crate::{other_sets, scalar, slow};

/// Lengths around `around`.
fn lengths(around: usize) -> std::ops::RangeInclusive<usize> {
    around - 9..=around + 9
}

#[test]
fn word_sums_equal_the_definition() {
    let steps = [256, 512, 1024, 2048, 4096, 8192, 12_288, 16_384, 65_536];
    let lengths = (0..600).chain(steps.into_iter().flat_map(lengths));
    for len in lengths {
        for seed in 0..if slow() { 64 } else { 3 } {
            let random = &mut Random::new(seed << 32 | len as u64);
            // Surrounded by other bytes, at any address.
            let offset = random.below(64) as usize;
            let bytes = Bytes::new(&values::bytes(random, len), offset);
            let expected = (scalar().read_sums)(bytes.get());
            for set in other_sets() {
                let found = (set.read_sums)(bytes.get());
                assert_eq!(found, expected, "{len} bytes at {offset}, {}", set.isa);
            }
        }
    }
}

/// Every byte counts, in the lane and at the place of its word.
#[test]
fn every_byte_is_read_once() {
    const LEN: usize = 4096 + 512 + 13;
    for set in other_sets().into_iter().chain([scalar()]) {
        let mut bytes = vec![0; LEN];
        for at in 0..LEN {
            bytes[at] = 3;
            let mut expected = [0; 8];
            expected[at / 8 % 8] = 3 << (8 * (at % 8));
            assert_eq!((set.read_sums)(&bytes), expected, "byte {at}, {}", set.isa);
            bytes[at] = 0;
        }
    }
}
