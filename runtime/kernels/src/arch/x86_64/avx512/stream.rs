//! Reading memory as fast as 512-bit loads can.

use std::arch::x86_64::*;

use crate::generic::stream::{WordSums, add_words};

/// Bytes of one step: eight vectors, each with an accumulator of its own.
const STEP_BYTES: usize = 512;
/// Vectors of a step.
const VECTORS: usize = STEP_BYTES / 64;
/// Parts of the slice that are read side by side: the prefetchers of the
/// processor follow each.
const PARTS: usize = 4;
/// How far ahead of the loads lines are asked for.
const AHEAD_BYTES: usize = 1024;

pub(crate) fn read_sums(bytes: &[u8]) -> WordSums {
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { sums(bytes) }
}

#[target_feature(enable = "avx512f")]
fn sums(bytes: &[u8]) -> WordSums {
    let part_bytes = bytes.len() / (PARTS * STEP_BYTES) * STEP_BYTES;
    let (parts, rest) = bytes.split_at(PARTS * part_bytes);
    let mut acc = [_mm512_setzero_si512(); VECTORS];
    let mut at = 0;
    while at < part_bytes {
        for part in 0..PARTS {
            let step = &parts[part * part_bytes + at..][..STEP_BYTES];
            prefetch(step);
            for (acc, vector) in acc.iter_mut().zip(step.as_chunks::<64>().0) {
                // SAFETY: the source is 64 bytes.
                let words = unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) };
                *acc = _mm512_add_epi64(*acc, words);
            }
        }
        at += STEP_BYTES;
    }
    let mut all = _mm512_setzero_si512();
    for acc in acc {
        all = _mm512_add_epi64(all, acc);
    }
    let mut sums = [0; 8];
    // SAFETY: the destination is eight u64.
    unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), all) };
    // Parts are whole steps, so the first word of the rest has lane 0.
    add_words(rest, &mut sums);
    sums
}

/// Asks for what is read a few steps later.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefetch(step: &[u8]) {
    for line in 0..STEP_BYTES / 64 {
        let ahead = step.as_ptr().wrapping_add(AHEAD_BYTES + 64 * line);
        // A prefetch never faults, wherever it points.
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
    }
}
