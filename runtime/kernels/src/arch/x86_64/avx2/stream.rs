//! Reading memory as fast as 256-bit loads can.

use std::arch::x86_64::*;

use crate::generic::stream::{WordSums, add_words};

/// Bytes of one step: eight vectors, each with an accumulator of its own.
const STEP_BYTES: usize = 256;
/// Vectors of a step.
const VECTORS: usize = STEP_BYTES / 32;
/// Parts of the slice that are read side by side: the prefetchers of the
/// processor follow each.
const PARTS: usize = 8;
/// How far ahead of the loads lines are asked for.
const AHEAD_BYTES: usize = 1024;

pub(crate) fn read_sums(bytes: &[u8]) -> WordSums {
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { sums(bytes) }
}

#[target_feature(enable = "avx2")]
fn sums(bytes: &[u8]) -> WordSums {
    let part_bytes = bytes.len() / (PARTS * STEP_BYTES) * STEP_BYTES;
    let (parts, rest) = bytes.split_at(PARTS * part_bytes);
    let mut acc = [_mm256_setzero_si256(); VECTORS];
    let mut at = 0;
    while at < part_bytes {
        for part in 0..PARTS {
            let step = &parts[part * part_bytes + at..][..STEP_BYTES];
            prefetch(step);
            for (acc, vector) in acc.iter_mut().zip(step.as_chunks::<32>().0) {
                // SAFETY: the source is 32 bytes.
                let words = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
                *acc = _mm256_add_epi64(*acc, words);
            }
        }
        at += STEP_BYTES;
    }
    let mut sums = fold(&acc);
    // Parts are whole steps, so the first word of the rest has lane 0.
    add_words(rest, &mut sums);
    sums
}

/// Asks for what is read a few steps later.
#[inline]
#[target_feature(enable = "avx2")]
fn prefetch(step: &[u8]) {
    for line in 0..STEP_BYTES / 64 {
        let ahead = step.as_ptr().wrapping_add(AHEAD_BYTES + 64 * line);
        // A prefetch never faults, wherever it points.
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
    }
}

/// Even vectors hold the lanes 0 to 3, odd ones 4 to 7.
#[inline]
#[target_feature(enable = "avx2")]
fn fold(acc: &[__m256i; VECTORS]) -> WordSums {
    let mut halves = [_mm256_setzero_si256(); 2];
    for (i, &acc) in acc.iter().enumerate() {
        halves[i % 2] = _mm256_add_epi64(halves[i % 2], acc);
    }
    let mut sums = [0; 8];
    for (half, four) in halves.iter().zip(sums.as_chunks_mut::<4>().0) {
        // SAFETY: the destination is four u64.
        unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), *half) };
    }
    sums
}
