//! Philox4x32-10: random numbers addressed by position.
//!
//! A counter-based generator (Salmon, Moraes, Dror, Shaw: "Parallel random
//! numbers: as easy as 1, 2, 3", 2011) has no state to carry: the draw for a
//! position is the same whatever was drawn before, so a sequence that is
//! resumed, batched or rolled back samples the same tokens.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One block of four 32-bit words for `counter` under `key`.
#[must_use]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [low0, high0] = halves(MULTIPLIERS[0], counter[0]);
        let [low1, high1] = halves(MULTIPLIERS[1], counter[2]);
        counter = [
            high1 ^ counter[1] ^ key[0],
            low1,
            high0 ^ counter[3] ^ key[1],
            low0,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn halves(a: u32, b: u32) -> [u32; 2] {
    let bytes = (u64::from(a) * u64::from(b)).to_le_bytes();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    [word(0), word(4)]
}

/// The uniform number in `[0, 1)` for the token drawn at `position` (its
/// absolute index in the sequence), `choice` of several completions.
#[must_use]
pub fn uniform(seed: u64, position: u64, choice: u32) -> f64 {
    let split = |value: u64| {
        let bytes = value.to_le_bytes();
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        [word(0), word(4)]
    };
    let [low, high] = split(position);
    let words = philox4x32([low, high, choice, 0], split(seed));
    let bits = (u64::from(words[1]) << 32 | u64::from(words[0])) >> 11;
    // 53 bits: exact in f64, and so is the scaling by a power of two.
    #[allow(clippy::cast_precision_loss, reason = "the value has 53 bits")]
    let value = bits as f64;
    value * f64::from_bits((1023 - 53) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors published with the generator.
    #[test]
    fn matches_the_published_vectors() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    #[test]
    fn uniform_is_in_range_and_depends_on_every_input() {
        let base = uniform(7, 3, 0);
        assert!((0.0..1.0).contains(&base));
        for other in [
            uniform(8, 3, 0),
            uniform(7, 4, 0),
            uniform(7, 3, 1),
            uniform(7, 3 << 32, 0),
        ] {
            assert_ne!(base.to_bits(), other.to_bits());
        }
        let mean = (0..4096)
            .map(|position| uniform(1, position, 0))
            .sum::<f64>()
            / 4096.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
