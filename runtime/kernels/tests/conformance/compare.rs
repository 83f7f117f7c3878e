//! Bitwise comparison, any NaN equal to any NaN.

use crate::buffers::Floats;
use crate::other_sets;
use k3_kernels::KernelSet;

/// Panics on the first difference.
pub(crate) fn assert_same(expected: &[f32], found: &[f32], what: &str) {
    assert_eq!(expected.len(), found.len(), "{what}: lengths");
    for (index, (&e, &f)) in expected.iter().zip(found).enumerate() {
        assert!(
            e.to_bits() == f.to_bits() || e.is_nan() && f.is_nan(),
            "{what}: value {index} is {f:e} ({:#010x}), expected {e:e} ({:#010x})",
            f.to_bits(),
            e.to_bits(),
        );
    }
}

/// Runs `kernel` with the definition and with every other set, each on its own
/// copy of `initial` as the buffer that it writes, and compares the buffers.
/// Returns what the definition wrote.
pub(crate) fn against_scalar(
    what: &str,
    initial: &[f32],
    offset: usize,
    kernel: impl Fn(&KernelSet, &mut [f32]),
) -> Vec<f32> {
    let mut expected = Floats::new(initial, offset);
    kernel(crate::scalar(), expected.get_mut());
    for set in other_sets() {
        let mut found = Floats::new(initial, offset + 3);
        kernel(set, found.get_mut());
        let what = format!("{what}, {}", set.isa);
        found.check_surroundings(&what);
        assert_same(expected.get(), found.get(), &what);
    }
    expected.get().to_vec()
}

/// A value no kernel leaves behind by accident, for outputs.
pub(crate) fn unwritten(len: usize) -> Vec<f32> {
    vec![-123_456.0; len]
}
