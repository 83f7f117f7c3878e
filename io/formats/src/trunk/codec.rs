//! Names and numbers of the codecs.

use std::fmt;

/// How the bytes of a block are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they are in the checkpoint.
    Raw = 0,
    /// bf16 with the exponents of each row in a dictionary: see
    /// [`bf16_x3`](super::bf16_x3).
    Bf16X3 = 1,
}

impl Codec {
    /// Every codec, by its number.
    pub const ALL: [Self; 2] = [Self::Raw, Self::Bf16X3];

    /// The name in reports and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Bf16X3 => "bf16-x3",
        }
    }

    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Bf16X3 => 1,
        }
    }

    /// The codec of a number on disk.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.number() == number)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_names_differ() {
        for (number, codec) in (0..).zip(Codec::ALL) {
            assert_eq!(codec.number(), number);
            assert_eq!(Codec::from_number(number), Some(codec));
        }
        assert_eq!(Codec::from_number(2), None);
        assert_ne!(Codec::Raw.name(), Codec::Bf16X3.name());
    }
}
