//! The ladder: one run at several memory budgets, each held to its budget by the
//! kernel, several times over.
//!
//! This is the pure part: what runs tell ([`RunFigures`]), and what a ladder
//! makes of them ([`LadderReport`], its rows as tab-separated text). Starting
//! runs and holding them to a limit is the command's business.
//!
//! A rung holds when no run of it needed more than its plan, none was killed,
//! nothing was swapped, and every run of the whole ladder made the same ids.

mod figures;
mod report;
mod rung;
mod tsv;

pub use figures::{EngineFigures, FiguresError, RunFigures, StreamingFigures};
pub use report::{IdsReport, IdsSeen, LADDER_REPORT_VERSION, LadderHeader, LadderReport, RunName};
pub use rung::{LadderRun, RunOutcome, RungFigures, RungPlan, RungReport, RungStatus};
