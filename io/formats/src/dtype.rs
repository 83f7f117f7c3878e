//! Element types of stored tensors.

use std::fmt;

/// Element type of a stored tensor, as the safetensors format names it.
///
/// Types whose elements are narrower than a byte (`F4`, `F6_*`) are left out on
/// purpose: MXFP4 weights are stored as `U8` with two values a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// IEEE double.
    F64,
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    Bf16,
    /// Signed, 8 bytes.
    I64,
    /// Signed, 4 bytes.
    I32,
    /// Signed, 2 bytes.
    I16,
    /// Signed, 1 byte.
    I8,
    /// Unsigned, 8 bytes.
    U64,
    /// Unsigned, 4 bytes.
    U32,
    /// Unsigned, 2 bytes.
    U16,
    /// Unsigned, 1 byte; also packed MXFP4 nibbles and E8M0 scales.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// 8-bit exponent alone (OCP MX scale).
    F8E8M0,
    /// As [`Dtype::F8E4M3`] without infinities and negative zero.
    F8E4M3Fnuz,
    /// As [`Dtype::F8E5M2`] without infinities and negative zero.
    F8E5M2Fnuz,
    /// Two IEEE singles.
    C64,
}

impl Dtype {
    /// Every type, in declaration order.
    pub const ALL: [Self; 19] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U64,
        Self::U32,
        Self::U16,
        Self::U8,
        Self::Bool,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::F8E8M0,
        Self::F8E4M3Fnuz,
        Self::F8E5M2Fnuz,
        Self::C64,
    ];

    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 | Self::C64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F8E4M3 | Self::F8E5M2 | Self::F8E8M0 => 1,
            Self::F8E4M3Fnuz | Self::F8E5M2Fnuz => 1,
        }
    }

    /// The name used in file headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I64 => "I64",
            Self::I32 => "I32",
            Self::I16 => "I16",
            Self::I8 => "I8",
            Self::U64 => "U64",
            Self::U32 => "U32",
            Self::U16 => "U16",
            Self::U8 => "U8",
            Self::Bool => "BOOL",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E5M2 => "F8_E5M2",
            Self::F8E8M0 => "F8_E8M0",
            Self::F8E4M3Fnuz => "F8_E4M3FNUZ",
            Self::F8E5M2Fnuz => "F8_E5M2FNUZ",
            Self::C64 => "C64",
        }
    }

    /// The type with that header name, spelled exactly.
    pub fn from_name(name: &str) -> Option<Self> {
        // The two types that make up nearly every tensor come first.
        match name {
            "U8" => Some(Self::U8),
            "BF16" => Some(Self::Bf16),
            _ => Self::ALL.into_iter().find(|dtype| dtype.name() == name),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_are_distinct() {
        for (index, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, index);
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(Dtype::from_name("bf16"), None);
        assert_eq!(Dtype::from_name("F4"), None);
    }
}
