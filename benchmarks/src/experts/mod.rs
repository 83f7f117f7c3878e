//! What lossless coding of MXFP4 experts would save, and what decoding costs.
//!
//! Entropies bound what any coder of single symbols can reach. Two coders are
//! run for real: a palette of two bits for scales, and Huffman's code for bytes
//! of two E2M1 values. Their decoders are timed in turn with the product that
//! would take what they give, for a decoder that cannot feed it would slow a
//! run by more than its fewer bytes save.
//!
//! | module | holds |
//! |---|---|
//! | `entropy` | counts, and the least bits that they say |
//! | `huffman` | the coder of E2M1 values |
//! | `palette` | the coder of scales |
//! | `timing` | decoders and the product, in turn |

mod entropy;
mod huffman;
mod palette;
mod timing;

use k3_kernels::{Isa, MXFP4_GROUP};
use k3_runtime::Cancel;
use k3_runtime::statistics::Spread;
use serde::Serialize;

use crate::MeasureError;
use entropy::{ByteCounts, Joint, entropy_bits};
use huffman::Code;
use palette::Palette;

/// Raised when a field changes its meaning or goes.
pub const REPORT_VERSION: u32 = 1;
/// Bytes of E2M1 values for each scale.
const GROUP_BYTES: usize = MXFP4_GROUP / 2;

/// One matrix of an expert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertMatrix {
    /// Two E2M1 values a byte, the low half first.
    packed: Vec<u8>,
    /// An E8M0 scale for each 32 values.
    scales: Vec<u8>,
    columns: usize,
}

impl ExpertMatrix {
    /// A matrix with rows of `columns` values.
    ///
    /// # Panics
    ///
    /// When `columns` is no multiple of 32, or the lengths are not those of
    /// whole rows and of one another.
    #[must_use]
    pub fn new(packed: Vec<u8>, scales: Vec<u8>, columns: usize) -> Self {
        assert!(
            columns > 0 && columns.is_multiple_of(MXFP4_GROUP),
            "{columns}"
        );
        assert_eq!(packed.len(), scales.len() * GROUP_BYTES);
        assert!(scales.len().is_multiple_of(columns / MXFP4_GROUP));
        Self {
            packed,
            scales,
            columns,
        }
    }

    /// Bytes as stored.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packed.len() + self.scales.len()
    }
}

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub struct CodingRequest<'r> {
    /// Whose product is timed; it must be available.
    pub isa: Isa,
    /// Samples of each measure.
    pub rounds: usize,
    /// CPU time of a sample.
    pub pass_seconds: f64,
    /// Ends it.
    pub cancel: &'r Cancel,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct CodingReport {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Those of them that are scales.
    pub scale_bytes: u64,
    /// Different scales among them.
    pub scale_values: usize,
    /// The codings, entropies first.
    pub codings: Vec<Coding>,
    /// Rates, where decoders and product were timed.
    pub rates: Option<Rates>,
}

/// One way to store them.
#[derive(Debug, Clone, Serialize)]
pub struct Coding {
    /// What is coded: `values`, `scales` or `both`.
    pub part: Part,
    /// How.
    pub method: &'static str,
    /// Whether this is a bound, not a coder that was run.
    pub is_bound: bool,
    /// Bits for each value of the part; for `both`, for each weight.
    pub bits: f64,
    /// Share of all expert bytes that it saves.
    pub saved_share: f64,
}

/// What a coding is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// E2M1 values.
    Values,
    /// E8M0 scales.
    Scales,
    /// Both.
    Both,
}

/// Expert bytes, as stored now, for each CPU second of a core.
#[derive(Debug, Clone, Serialize)]
pub struct Rates {
    /// Decoding of scales alone.
    pub scales: Spread,
    /// Decoding of values alone.
    pub values: Spread,
    /// The product with one position, of what lies in memory.
    pub product: Spread,
    /// Decoded bytes that were not what had been coded, or outputs of other
    /// bits: 0.
    pub mismatches: u64,
}

impl Rates {
    /// Expert bytes a second of `cores` that decode scales, or scales and
    /// values, and multiply.
    #[must_use]
    pub fn together(&self, cores: f64, with_values: bool) -> f64 {
        let values = if with_values {
            self.values.median.recip()
        } else {
            0.0
        };
        cores / (self.scales.median.recip() + values + self.product.median.recip())
    }
}

/// Counts what is in `matrices`, codes it, and times the decoders; `told` is
/// given the share that is done.
///
/// A stop that is asked for ends the timing with what is complete.
///
/// # Errors
///
/// [`MeasureError::Nothing`] without matrices.
pub fn measure(
    matrices: &[ExpertMatrix],
    request: &CodingRequest<'_>,
    told: &mut dyn FnMut(f64),
) -> Result<CodingReport, MeasureError> {
    let mut report = statistics(matrices).ok_or(MeasureError::NoExperts)?;
    let coders = Coders::new(matrices);
    report.codings.extend(coders.codings(matrices));
    report.rates = timing::rates(matrices, &coders, request, told);
    Ok(report)
}

/// What any coder of single symbols may reach; `None` without matrices.
#[must_use]
pub fn statistics(matrices: &[ExpertMatrix]) -> Option<CodingReport> {
    let sizes = Sizes::of(matrices);
    if sizes.all() == 0.0 {
        return None;
    }
    let mut scales = ByteCounts::default();
    let mut values = [0; 16];
    let mut values_by_scale = Joint::<16>::default();
    let mut scale_by_last = Joint::<256>::default();
    for matrix in matrices {
        scales.add(&matrix.scales);
        for (value, count) in ByteCounts::of(&matrix.packed).halves().iter().enumerate() {
            values[value] += count;
        }
        for (group, &scale) in matrix.packed.chunks(GROUP_BYTES).zip(&matrix.scales) {
            for &byte in group {
                values_by_scale.add(scale, byte & 15);
                values_by_scale.add(scale, byte >> 4);
            }
        }
        for row in matrix.scales.chunks(matrix.columns / MXFP4_GROUP) {
            for pair in row.windows(2) {
                scale_by_last.add(pair[0], pair[1]);
            }
        }
    }
    let alone = [entropy_bits(&values), scales.entropy_bits()];
    let informed = [
        values_by_scale.conditional_bits(),
        scale_by_last.conditional_bits(),
    ];
    let codings = vec![
        sizes.coding(Part::Values, "entropy", true, alone[0]),
        sizes.coding(Part::Values, "entropy given their scale", true, informed[0]),
        sizes.coding(Part::Scales, "entropy", true, alone[1]),
        sizes.coding(
            Part::Scales,
            "entropy given the one before",
            true,
            informed[1],
        ),
        sizes.both("entropy", true, alone),
        sizes.both(
            "entropy given these",
            true,
            [informed[0], informed[1].min(alone[1])],
        ),
    ];
    Some(CodingReport {
        report_version: REPORT_VERSION,
        bytes: matrices.iter().map(|matrix| matrix.bytes() as u64).sum(),
        scale_bytes: matrices
            .iter()
            .map(|matrix| matrix.scales.len() as u64)
            .sum(),
        scale_values: scales.distinct(),
        codings,
        rates: None,
    })
}

/// Numbers of values and scales.
struct Sizes {
    values: f64,
    scales: f64,
}

impl Sizes {
    #[allow(
        clippy::cast_precision_loss,
        reason = "bytes of a sample that lies in memory"
    )]
    fn of(matrices: &[ExpertMatrix]) -> Self {
        let count = |of: fn(&ExpertMatrix) -> usize| matrices.iter().map(of).sum::<usize>() as f64;
        Self {
            values: 2.0 * count(|matrix| matrix.packed.len()),
            scales: count(|matrix| matrix.scales.len()),
        }
    }

    /// Bits as stored now.
    fn all(&self) -> f64 {
        4.0 * self.values + 8.0 * self.scales
    }

    fn coding(&self, part: Part, method: &'static str, is_bound: bool, bits: f64) -> Coding {
        let saved = match part {
            Part::Values => self.values * (4.0 - bits),
            Part::Scales => self.scales * (8.0 - bits),
            Part::Both => self.all() - self.values * bits,
        };
        Coding {
            part,
            method,
            is_bound,
            bits,
            saved_share: saved / self.all(),
        }
    }

    /// Both parts, with these bits for each value and each scale.
    fn both(&self, method: &'static str, is_bound: bool, [value, scale]: [f64; 2]) -> Coding {
        let bits = value + scale * self.scales / self.values;
        self.coding(Part::Both, method, is_bound, bits)
    }
}

/// The coders that are run, one for all matrices.
struct Coders {
    code: Code,
    palette: Palette,
}

impl Coders {
    fn new(matrices: &[ExpertMatrix]) -> Self {
        let mut bytes = ByteCounts::default();
        let mut scales = ByteCounts::default();
        for matrix in matrices {
            bytes.add(&matrix.packed);
            scales.add(&matrix.scales);
        }
        Self {
            code: Code::new(&bytes),
            palette: Palette::new(&scales),
        }
    }

    fn codings(&self, matrices: &[ExpertMatrix]) -> [Coding; 3] {
        let sizes = Sizes::of(matrices);
        let stored = |bytes: &dyn Fn(&ExpertMatrix) -> usize| {
            #[allow(clippy::cast_precision_loss, reason = "bytes of a sample")]
            let bits = 8.0 * matrices.iter().map(bytes).sum::<usize>() as f64;
            bits
        };
        let values = stored(&|matrix| self.code.encode(&matrix.packed).stored_bytes());
        let scales = stored(&|matrix| self.palette.encode(&matrix.scales).stored_bytes());
        let bits = [values / sizes.values, scales / sizes.scales];
        [
            sizes.coding(Part::Values, "Huffman, pairs", false, bits[0]),
            sizes.coding(Part::Scales, "palette of three", false, bits[1]),
            sizes.both("both coders", false, bits),
        ]
    }
}

#[cfg(test)]
mod tests;
