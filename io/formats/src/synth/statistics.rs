//! What released expert weights look like, in counts.
//!
//! Counted over 64 rows of 3584 weights of `layers.1`, expert 0, `w1` of the
//! released checkpoint: 7,168 groups of 32. `scripts/synth/mxfp4_statistics.py`
//! recounts any sample that holds packed bytes and scales as JSON. A group's
//! scale is chosen after its largest weight, so values and scale are not
//! independent; the counts are joint. Signs are taken as even (50.15 % of the
//! sample are minus).

/// Distinct scale bytes of the sample.
pub const SCALE_COUNT: usize = 3;

/// One scale byte: how frequent it is and what its groups hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleStatistics {
    /// The E8M0 byte: a factor of 2^(byte - 127).
    pub scale: u8,
    /// Groups with it.
    pub group_count: u32,
    /// How often its groups have each E2M1 magnitude: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
    pub magnitude_counts: [u32; 8],
}

/// The sample, by scale byte.
pub const SCALE_STATISTICS: [ScaleStatistics; SCALE_COUNT] = [
    ScaleStatistics {
        scale: 120,
        group_count: 1_104,
        magnitude_counts: [2_329, 4_794, 4_616, 4_344, 5_576, 6_006, 5_659, 2_004],
    },
    ScaleStatistics {
        scale: 121,
        group_count: 6_028,
        magnitude_counts: [23_991, 45_457, 39_096, 30_581, 29_503, 17_969, 5_949, 350],
    },
    ScaleStatistics {
        scale: 122,
        group_count: 36,
        magnitude_counts: [271, 478, 252, 80, 31, 33, 7, 0],
    },
];
