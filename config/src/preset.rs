//! Named memory budgets.

use std::fmt::Write as _;

use crate::bytes::Bytes;
use crate::names::named_enum;

named_enum! {
    /// A named budget: the total, with everything else planned from it.
    Preset: "preset" {
        /// The smallest machine the largest model runs on.
        Floor => "floor",
        /// A laptop that has other things to do.
        Laptop => "laptop",
        /// A desktop computer.
        Desktop => "desktop",
        /// A workstation.
        Workstation => "workstation",
        /// A server: the whole trunk of the largest model stays in memory.
        Server => "server",
        /// As large as a single socket commonly gets.
        Max => "max",
        /// What the machine and its control groups offer, less a reserve.
        Auto => "auto",
    }
}

/// Positions per sweep when a prompt is read and nobody says otherwise.
pub const DEFAULT_CHUNK_POSITIONS: u64 = 64;
/// The same for budgets below [`SMALL_BUDGET`].
pub const SMALL_CHUNK_POSITIONS: u64 = 16;
/// Below this total the activations of a whole default chunk would crowd out
/// the read-ahead ring.
pub const SMALL_BUDGET: Bytes = Bytes(2 << 30);
/// Positions of context when nobody says otherwise.
pub const DEFAULT_CONTEXT_POSITIONS: u64 = 4096;

impl Preset {
    /// The total, or `None` for [`Preset::Auto`], which the machine decides.
    #[must_use]
    pub fn total(self) -> Option<Bytes> {
        let gigabytes = |count: u64| Some(Bytes(count * 1_000_000_000));
        match self {
            Self::Floor => Some(Bytes((3 << 30) / 2)),
            Self::Laptop => gigabytes(8),
            Self::Desktop => gigabytes(32),
            Self::Workstation => gigabytes(96),
            Self::Server => gigabytes(128),
            Self::Max => gigabytes(224),
            Self::Auto => None,
        }
    }

    /// Whom the preset is for, in one line.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Floor => "the smallest that runs Kimi K3",
            Self::Laptop => "a laptop with other things to do",
            Self::Desktop => "a desktop computer",
            Self::Workstation => "most of the trunk in memory",
            Self::Server => "all of the trunk in memory",
            Self::Max => "all of the trunk and many experts",
            Self::Auto => "what this machine can spare",
        }
    }

    /// The largest preset whose total is at most `available`; `None` if not
    /// even the smallest is. Never [`Preset::Auto`].
    #[must_use]
    pub fn largest_within(available: Bytes) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(|preset| preset.total().is_some_and(|total| total <= available))
            .max_by_key(|preset| preset.total())
    }

    /// All presets as a table under a line of headings, at most 80 columns:
    /// name, total, positions per sweep, purpose.
    #[must_use]
    pub fn table() -> String {
        let mut text = format!(
            "{:<12} {:<22}  {}  {}\n",
            "preset", "memory", "chunk", "for"
        );
        for preset in Self::ALL {
            let total = preset
                .total()
                .map_or_else(|| "measured".to_owned(), |total| total.to_string());
            let chunk = preset.total().map_or_else(
                || "-".to_owned(),
                |total| default_chunk_positions(total).to_string(),
            );
            let purpose = preset.purpose();
            writeln!(text, "{preset:<12} {total:<22}  {chunk:>5}  {purpose}")
                .expect("writing to a string cannot fail");
        }
        text
    }
}

/// Positions per sweep that suit a budget of `total`.
#[must_use]
pub fn default_chunk_positions(total: Bytes) -> u64 {
    if total < SMALL_BUDGET {
        SMALL_CHUNK_POSITIONS
    } else {
        DEFAULT_CHUNK_POSITIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_documented_ones() {
        let totals: Vec<_> = Preset::ALL
            .iter()
            .map(|preset| preset.total().map(|b| b.0))
            .collect();
        assert_eq!(
            totals,
            [
                Some(1_610_612_736),
                Some(8_000_000_000),
                Some(32_000_000_000),
                Some(96_000_000_000),
                Some(128_000_000_000),
                Some(224_000_000_000),
                None
            ]
        );
    }

    #[test]
    fn the_largest_that_fits() {
        let check = |bytes, want| assert_eq!(Preset::largest_within(Bytes(bytes)), want, "{bytes}");
        check(1_610_612_735, None);
        check(1_610_612_736, Some(Preset::Floor));
        check(7_999_999_999, Some(Preset::Floor));
        check(31_000_000_000, Some(Preset::Laptop));
        check(u64::MAX, Some(Preset::Max));
    }

    #[test]
    fn the_table_has_a_short_line_for_each() {
        let table = Preset::table();
        assert_eq!(table.lines().count(), 1 + Preset::ALL.len());
        for (line, preset) in table.lines().skip(1).zip(Preset::ALL) {
            assert!(line.starts_with(preset.name()), "{line}");
            assert!(line.len() <= 80, "{line}");
        }
        assert!(
            table.contains("floor        1.61 GB (1.50 GiB)         16  "),
            "{table}"
        );
    }
}
