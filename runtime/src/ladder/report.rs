//! A whole ladder.

use std::collections::BTreeMap;

use k3_config::Bytes;
use serde::Serialize;

use super::rung::{LadderRun, RungPlan, RungReport, RungStatus};
use super::tsv;

/// Version of the schema; raised when a field changes its meaning or goes.
pub const LADDER_REPORT_VERSION: u32 = 1;

/// What all runs of a ladder have in common.
#[derive(Debug, Clone, Serialize)]
pub struct LadderHeader {
    /// Version of the program.
    pub k3_version: String,
    /// Directory of the checkpoint.
    pub model: String,
    /// What held runs to their budget.
    pub limits: String,
    /// The control group below which each run had its own, where one was made.
    pub group: Option<String>,
    /// Runs of each rung.
    pub repeats: u32,
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Things worth knowing, one line each.
    pub notes: Vec<String>,
}

/// A ladder that has ended.
#[derive(Debug, Clone, Serialize)]
pub struct LadderReport {
    /// [`LADDER_REPORT_VERSION`].
    pub ladder_report_version: u32,
    /// What all runs have in common.
    #[serde(flatten)]
    pub header: LadderHeader,
    /// Whether it was stopped before its last run.
    pub interrupted: bool,
    /// What was generated.
    pub ids: IdsReport,
    /// In the order they were asked for.
    pub rungs: Vec<RungReport>,
}

/// Whether the budget changed what was generated, which it must not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdsReport {
    /// Whether all finished runs made the same ids; so do none and one.
    pub agree: bool,
    /// Every list that was made, the most frequent first.
    pub seen: Vec<IdsSeen>,
}

/// A list of ids, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdsSeen {
    /// The ids.
    pub generated_ids: Vec<u32>,
    /// The runs.
    pub runs: Vec<RunName>,
}

/// One run among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RunName {
    /// Its budget.
    pub budget_bytes: u64,
    /// Which time, from 1.
    pub repeat: u32,
}

impl LadderReport {
    /// What the `rungs` (budget, plan, runs) come to.
    #[must_use]
    pub fn new(
        header: LadderHeader,
        rungs: &[(Bytes, RungPlan, Vec<LadderRun>)],
        interrupted: bool,
    ) -> Self {
        Self {
            ladder_report_version: LADDER_REPORT_VERSION,
            header,
            interrupted,
            ids: IdsReport::of(rungs),
            rungs: rungs
                .iter()
                .map(|(budget, plan, runs)| RungReport::new(*budget, *plan, runs))
                .collect(),
        }
    }

    /// Whether a run did something it must not.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        !self.ids.agree || self.rungs.iter().any(|rung| rung.status.is_fault())
    }

    /// Whether there is a run to tell of.
    #[must_use]
    pub fn has_results(&self) -> bool {
        self.rungs.iter().any(|rung| !rung.runs.is_empty())
    }

    /// Whether every rung was refused.
    #[must_use]
    pub fn all_refused(&self) -> bool {
        let refused = |rung: &RungReport| rung.status == RungStatus::Refused;
        self.rungs.iter().all(refused)
    }

    /// A header and one row for each rung, separated by tabs.
    #[must_use]
    pub fn tsv(&self) -> String {
        tsv::table(self)
    }
}

impl IdsReport {
    fn of(rungs: &[(Bytes, RungPlan, Vec<LadderRun>)]) -> Self {
        let mut seen: BTreeMap<&[u32], Vec<RunName>> = BTreeMap::new();
        for (budget, _, runs) in rungs {
            for run in runs {
                let Some(figures) = run.figures() else {
                    continue;
                };
                let name = RunName {
                    budget_bytes: budget.0,
                    repeat: run.repeat,
                };
                seen.entry(&figures.generated_ids).or_default().push(name);
            }
        }
        let mut seen: Vec<IdsSeen> = seen
            .into_iter()
            .map(|(ids, runs)| IdsSeen {
                generated_ids: ids.to_vec(),
                runs,
            })
            .collect();
        seen.sort_by_key(|seen| std::cmp::Reverse(seen.runs.len()));
        Self {
            agree: seen.len() <= 1,
            seen,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rung::RunOutcome;
    use super::super::rung::tests::{FITS, ended, finished};
    use super::*;

    pub(crate) fn ladder(rungs: &[(Bytes, RungPlan, Vec<LadderRun>)]) -> LadderReport {
        let header = LadderHeader {
            k3_version: "1".to_owned(),
            model: "model".to_owned(),
            limits: "a group".to_owned(),
            group: None,
            repeats: 2,
            prompt_ids: vec![1],
            notes: Vec::new(),
        };
        LadderReport::new(header, rungs, false)
    }

    #[test]
    fn ids_are_compared_over_rungs_and_repeats() {
        let good = |repeat| finished(repeat, &[4, 5], &[0.1, 1.0]);
        let killed = ended(2, RunOutcome::OutOfMemory);
        let same = [
            (Bytes(2000), FITS, vec![good(1), killed]),
            (Bytes(3000), FITS, vec![good(1), good(2)]),
        ];
        let report = ladder(&same);
        assert!(report.ids.agree);
        assert_eq!(report.ids.seen[0].runs.len(), 3);
        assert!(report.is_fault(), "one was killed");
        let other = [
            (Bytes(2000), FITS, vec![finished(1, &[4, 6], &[0.1, 1.0])]),
            (Bytes(3000), FITS, vec![good(1), good(2)]),
        ];
        let report = ladder(&other);
        assert!(!report.ids.agree && report.is_fault());
        let lists: Vec<_> = report
            .ids
            .seen
            .iter()
            .map(|seen| &*seen.generated_ids)
            .collect();
        assert_eq!(lists, [&[4, 5][..], &[4, 6]]);
        let odd = report.ids.seen[1].runs[0];
        assert_eq!((odd.budget_bytes, odd.repeat), (2000, 1));
    }

    #[test]
    fn refused_rungs_are_no_fault() {
        let small = RungPlan::TooSmall {
            smallest: Some(Bytes(900)),
        };
        let good = finished(1, &[4], &[0.1]);
        let report = ladder(&[
            (Bytes(9), small, Vec::new()),
            (Bytes(2000), FITS, vec![good]),
        ]);
        assert!(!report.is_fault() && !report.all_refused() && report.has_results());
        let report = ladder(&[(Bytes(9), small, Vec::new())]);
        assert!(!report.is_fault() && report.all_refused() && !report.has_results());
        assert!(report.ids.agree);
    }
}
