//! A plan as lines of text, at most [`COLUMNS`] wide.

use std::fmt::Write as _;

use crate::bytes::Bytes;

use super::lines::{LineKind, PlanLine};
use super::predict::DiskForecast;
use super::{BudgetPlan, Shortfall};

/// Width of a terminal that nobody has widened.
const COLUMNS: usize = 80;
const NAME_COLUMNS: usize = 17;
const SIZE_COLUMNS: usize = 23;
/// Columns before the reason of a line: both columns and two blanks each.
const WHY_COLUMN: usize = NAME_COLUMNS + SIZE_COLUMNS + 4;

impl BudgetPlan {
    /// The plan as a table: one line for each reservation, then the sums and
    /// what the disk will have to deliver, at most 80 columns wide. Sizes are
    /// in both unit systems.
    ///
    /// `forecast` adds the time a token takes on a known disk.
    #[must_use]
    pub fn table(&self, forecast: Option<&DiskForecast>) -> String {
        let mut text = String::new();
        row(
            &mut text,
            "budget",
            self.budget.total,
            &self.budget.origin.to_string(),
        );
        for line in &self.lines {
            plan_row(&mut text, line);
        }
        row(&mut text, "planned", self.planned, "sum of the lines above");
        row(&mut text, "left over", self.left_over, "not reserved");
        let smallest = "the least that is accepted";
        row(&mut text, "smallest budget", self.smallest_budget, smallest);
        text.push('\n');
        self.push_prediction(&mut text);
        if let Some(forecast) = forecast {
            push_forecast(&mut text, forecast);
        }
        assert!(
            text.lines().count() > self.lines.len(),
            "every line is shown"
        );
        text
    }

    fn push_prediction(&self, text: &mut String) {
        let (pins, prediction) = (&self.pins, &self.prediction);
        let share = percent(pins.bytes, pins.bytes_total);
        let why = format!("{share} of the trunk stays here");
        row(text, "pinned", Bytes(pins.bytes), &why);
        if self.slots.expert_count > 0 {
            let (cached, all) = (self.slots.cache_count, self.slots.expert_count);
            let why = format!("{} of the experts have a slot", percent(cached, all));
            let bytes = Bytes(cached.saturating_mul(self.slots.slot_bytes));
            row(text, "cached", bytes, &why);
        }
        let trunk = Bytes(prediction.trunk_bytes_per_sweep);
        row(
            text,
            "trunk per sweep",
            trunk,
            "read per sweep after the first",
        );
        let experts = Bytes(prediction.expert_bytes_per_token);
        let why = if self.slots.expert_count > 0 && prediction.expert_bytes_per_token == 0 {
            "each is read once, ever"
        } else {
            "read per token if none is found"
        };
        row(text, "experts per token", experts, why);
        if prediction.past_bytes_per_sweep > 0 {
            let past = Bytes(prediction.past_bytes_per_sweep);
            row(
                text,
                "pages per sweep",
                past,
                "read back at the longest context",
            );
            let file = Bytes(self.pages.file_bytes());
            row(
                text,
                "pages on disk",
                file,
                "taken by the file at its start",
            );
        }
        let embedding = Bytes(prediction.embedding_row_bytes);
        row(text, "embedding row", embedding, "read per token");
    }
}

impl Shortfall {
    /// The least plan as a table, as [`BudgetPlan::table`] shows it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        row(&mut text, "budget", self.budget, "what there is");
        // A screen has few lines, and of this one mostly nothing is to be said.
        let is_shown = |line: &&PlanLine| line.kind != LineKind::Past || line.bytes.0 > 0;
        for line in self.lines.iter().filter(is_shown) {
            plan_row(&mut text, line);
        }
        if let (Some(smallest), Some(missing)) = (self.smallest_budget, self.shortfall) {
            row(
                &mut text,
                "smallest budget",
                smallest,
                "sum of the lines above",
            );
            row(
                &mut text,
                "missing",
                missing,
                &format!("{} bytes", missing.0),
            );
        }
        text
    }
}

fn push_forecast(text: &mut String, forecast: &DiskForecast) {
    let rate = rounded(forecast.disk_bytes_per_second);
    row(text, "disk per second", rate, "as probed or given");
    let bytes = rounded(forecast.bytes_per_token);
    let mut why = assumed(forecast.hit_share);
    if forecast.sequences > 1 {
        why = format!("{why}, {} share a sweep", forecast.sequences);
    }
    row(text, "bytes per token", bytes, &why);
    let seconds = forecast.floor_seconds_per_token;
    writeln!(
        text,
        "{:<NAME_COLUMNS$}  {seconds:.2} s for the disk alone",
        "floor per token"
    )
    .expect("writing to a string cannot fail");
}

/// Which experts a forecast takes to be found in memory: what will be found
/// depends on the text, not only on how many there is room for.
fn assumed(hit_share: f64) -> String {
    if hit_share <= 0.0 {
        "the worst: no expert is found".to_owned()
    } else if hit_share >= 1.0 {
        "every expert is found in memory".to_owned()
    } else {
        format!("if {:.1} % of experts are found", 100.0 * hit_share)
    }
}

/// A count of bytes rounded to nearest.
fn rounded(bytes: f64) -> Bytes {
    assert!((0.0..1e18).contains(&bytes), "a byte count, not {bytes}");
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is asserted above"
    )]
    let whole = bytes.round() as u64;
    Bytes(whole)
}

fn plan_row(text: &mut String, line: &PlanLine) {
    row(text, line.kind.name(), line.bytes, &line.why);
}

/// One row; a reason that is too long goes on below itself.
fn row(text: &mut String, name: &str, bytes: Bytes, why: &str) {
    assert!(name.len() <= NAME_COLUMNS, "`{name}` fits its column");
    let size = bytes.to_string();
    let mut line = format!("{name:<NAME_COLUMNS$}  {size:<SIZE_COLUMNS$}  ");
    let mut is_fresh = true;
    for word in why.split(' ') {
        if !is_fresh && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(WHY_COLUMN);
            is_fresh = true;
        }
        if !is_fresh {
            line.push(' ');
        }
        line.push_str(word);
        is_fresh = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// `part` of `whole` in tenths of a percent, rounded down.
fn percent(part: u64, whole: u64) -> String {
    assert!(part <= whole, "a part is no more than the whole");
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}
