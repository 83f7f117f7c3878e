//! One rung: its runs, and what they come to.

use std::collections::BTreeSet;

use k3_config::{Bytes, GroupPeaks};
use serde::Serialize;

use super::figures::RunFigures;
use crate::statistics::{Spread, median};

/// What is planned for a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RungPlan {
    /// It fits, with so much reserved.
    Fits {
        /// Sum of the plan's lines.
        planned: Bytes,
    },
    /// It does not.
    TooSmall {
        /// The least budget that would do, if one does.
        smallest: Option<Bytes>,
    },
}

/// How a run ended.
#[derive(Debug, Clone)]
pub enum RunOutcome {
    /// With all its tokens.
    Finished(Box<RunFigures>),
    /// It did not start, and said why.
    Refused(String),
    /// The kernel killed it because its group was full.
    OutOfMemory,
    /// It failed, and said why.
    Failed(String),
}

/// One run of one rung.
#[derive(Debug, Clone)]
pub struct LadderRun {
    /// Which time, from 1.
    pub repeat: u32,
    /// From its start to its end.
    pub seconds: f64,
    /// What its group came to.
    pub group: GroupPeaks,
    /// How it ended.
    pub outcome: RunOutcome,
}

impl LadderRun {
    /// What it told, if it finished.
    #[must_use]
    pub fn figures(&self) -> Option<&RunFigures> {
        match &self.outcome {
            RunOutcome::Finished(figures) => Some(figures),
            _ => None,
        }
    }
}

/// Whether a rung holds, and if not, the gravest reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RungStatus {
    /// Every run finished within plan and limit.
    Ok,
    /// The plan or the program refused the budget; nothing was wrong with that.
    Refused,
    /// It was not its turn yet.
    NotRun,
    /// A run's peak was above its plan.
    OverPlan,
    /// Memory that cannot be dropped was above the limit, or went to swap.
    OverLimit,
    /// The kernel killed a run.
    OutOfMemory,
    /// A run failed in another way.
    Failed,
}

impl RungStatus {
    /// Its name, for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::NotRun => "not run",
            Self::OverPlan => "over plan",
            Self::OverLimit => "over limit",
            Self::OutOfMemory => "out of memory",
            Self::Failed => "failed",
        }
    }

    /// Whether something happened that must not.
    #[must_use]
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Ok | Self::Refused | Self::NotRun)
    }
}

/// A rung with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct RungReport {
    /// The budget, which is the limit too.
    pub budget_bytes: u64,
    /// Whether it holds.
    pub status: RungStatus,
    /// Why not, in words.
    pub reason: Option<String>,
    /// Sum of the plan's lines, where there is a plan.
    pub planned_bytes: Option<u64>,
    /// For a budget that is too small: the least that would do.
    pub smallest_budget_bytes: Option<u64>,
    /// What the group came to, the most over all runs.
    pub group: GroupPeaks,
    /// Figures over the runs that finished.
    pub figures: Option<RungFigures>,
    /// Each run.
    pub runs: Vec<RunRow>,
}

/// Figures of a rung over its finished runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RungFigures {
    /// Runs that finished.
    pub run_count: usize,
    /// The highest peak.
    pub peak_bytes: Option<u64>,
    /// Prompt, one value a run.
    pub prefill_seconds: Spread,
    /// Each token but the first, over all runs.
    pub token_seconds: Option<Spread>,
    /// Payload read per token; the same in every run.
    pub read_bytes_per_token: Option<f64>,
    /// What the devices transferred, per second with a request in flight; the
    /// median of the runs, as are the next three.
    pub disk_bytes_per_second: f64,
    /// Time compute waited for reads, of all time.
    pub io_share: f64,
    /// Wall time over the longer of reading and computing.
    pub overlap: f64,
    /// Experts found in memory.
    pub hit_rate: f64,
    /// What was less than asked for in any run.
    pub fallbacks: Vec<String>,
}

/// One run, in a row.
#[derive(Debug, Clone, Serialize)]
pub struct RunRow {
    /// Which time, from 1.
    pub repeat: u32,
    /// From its start to its end.
    pub wall_seconds: f64,
    /// `finished`, `refused`, `out-of-memory` or `failed`.
    pub outcome: &'static str,
    /// Why it did not finish.
    pub reason: Option<String>,
    /// Highest memory it saw itself.
    pub peak_bytes: Option<u64>,
    /// What its group came to.
    pub group: GroupPeaks,
    /// The prompt.
    pub prefill_seconds: Option<f64>,
    /// Each token but the first.
    pub token_seconds: Vec<f64>,
    /// What it made.
    pub generated_ids: Option<Vec<u32>>,
}

impl RungReport {
    /// What `runs` of a `budget` with `plan` come to.
    #[must_use]
    pub fn new(budget: Bytes, plan: RungPlan, runs: &[LadderRun]) -> Self {
        let mut group = GroupPeaks::default();
        runs.iter().for_each(|run| group.merge(&run.group));
        let (planned, smallest) = match plan {
            RungPlan::Fits { planned } => (Some(planned), None),
            RungPlan::TooSmall { smallest } => (None, smallest),
        };
        let (status, reason) = status(budget, plan, runs);
        Self {
            budget_bytes: budget.0,
            status,
            reason,
            planned_bytes: planned.map(|bytes| bytes.0),
            smallest_budget_bytes: smallest.map(|bytes| bytes.0),
            group,
            figures: RungFigures::of(runs),
            runs: runs.iter().map(RunRow::of).collect(),
        }
    }
}

/// The gravest thing about `runs`, and what it was.
fn status(budget: Bytes, plan: RungPlan, runs: &[LadderRun]) -> (RungStatus, Option<String>) {
    if let RungPlan::TooSmall { smallest } = plan {
        let reason = match smallest {
            Some(smallest) => format!("the smallest budget that fits is {smallest}"),
            None => "no budget fits".to_owned(),
        };
        return (RungStatus::Refused, Some(reason));
    }
    let faults = runs.iter().filter_map(|run| {
        let (status, reason) = fault(budget, run)?;
        Some((status, format!("repeat {}: {reason}", run.repeat)))
    });
    match faults.max_by_key(|(status, _)| gravity(*status)) {
        Some((status, reason)) => (status, Some(reason)),
        None if runs.is_empty() => (RungStatus::NotRun, None),
        None => (RungStatus::Ok, None),
    }
}

fn gravity(status: RungStatus) -> usize {
    match status {
        RungStatus::Ok | RungStatus::NotRun => 0,
        RungStatus::Refused => 1,
        RungStatus::OverPlan => 2,
        RungStatus::OverLimit => 3,
        RungStatus::OutOfMemory => 4,
        RungStatus::Failed => 5,
    }
}

/// What is wrong with a run, if anything is.
fn fault(budget: Bytes, run: &LadderRun) -> Option<(RungStatus, String)> {
    let figures = match &run.outcome {
        RunOutcome::Refused(reason) => return Some((RungStatus::Refused, reason.clone())),
        RunOutcome::Failed(reason) => return Some((RungStatus::Failed, reason.clone())),
        RunOutcome::OutOfMemory => {
            let reason = "the kernel killed it: its group was full".to_owned();
            return Some((RungStatus::OutOfMemory, reason));
        }
        RunOutcome::Finished(figures) => figures,
    };
    let group = &run.group;
    if let Some(kills) = group.oom_kills.filter(|kills| *kills > 0) {
        let reason = format!("the kernel killed {kills} processes of its group");
        return Some((RungStatus::OutOfMemory, reason));
    }
    if let Some(swap) = group.swap.filter(|swap| swap.0 > 0) {
        return Some((RungStatus::OverLimit, format!("{swap} went to swap")));
    }
    if let Some(held) = group.anon_and_kernel.filter(|held| *held > budget) {
        let reason = format!("{held} that cannot be dropped, of {budget}");
        return Some((RungStatus::OverLimit, reason));
    }
    let memory = &figures.streaming.memory;
    let peak = memory
        .peak_bytes
        .filter(|peak| *peak > memory.planned_bytes)?;
    let (peak, planned) = (Bytes(peak), Bytes(memory.planned_bytes));
    Some((
        RungStatus::OverPlan,
        format!("peak {peak} of {planned} planned"),
    ))
}

impl RungFigures {
    fn of(runs: &[LadderRun]) -> Option<Self> {
        let finished: Vec<&RunFigures> = runs.iter().filter_map(LadderRun::figures).collect();
        let each = |of: fn(&RunFigures) -> f64| -> Vec<f64> {
            finished.iter().map(|run| of(run)).collect()
        };
        let middle = |of: fn(&RunFigures) -> f64| median(&each(of));
        let tokens: Vec<f64> = finished
            .iter()
            .flat_map(|run| run.token_seconds().iter().copied())
            .collect();
        let reads: Vec<f64> = finished
            .iter()
            .filter_map(|run| run.read_bytes_per_token())
            .collect();
        let fallbacks: BTreeSet<&String> = finished
            .iter()
            .flat_map(|run| &run.streaming.fallbacks)
            .collect();
        Some(Self {
            run_count: finished.len(),
            peak_bytes: finished
                .iter()
                .filter_map(|run| run.streaming.memory.peak_bytes)
                .max(),
            prefill_seconds: Spread::of(&each(|run| run.timing.prefill_seconds))?,
            token_seconds: Spread::of(&tokens),
            read_bytes_per_token: median(&reads),
            disk_bytes_per_second: middle(|run| run.streaming.engine.bytes_per_second)?,
            io_share: middle(|run| run.streaming.time.io_share)?,
            overlap: middle(|run| run.streaming.time.overlap)?,
            hit_rate: middle(|run| run.streaming.cache.hit_rate)?,
            fallbacks: fallbacks.into_iter().cloned().collect(),
        })
    }
}

impl RunRow {
    fn of(run: &LadderRun) -> Self {
        let figures = run.figures();
        let (outcome, reason) = match &run.outcome {
            RunOutcome::Finished(_) => ("finished", None),
            RunOutcome::Refused(reason) => ("refused", Some(reason.clone())),
            RunOutcome::OutOfMemory => ("out-of-memory", None),
            RunOutcome::Failed(reason) => ("failed", Some(reason.clone())),
        };
        Self {
            repeat: run.repeat,
            wall_seconds: run.seconds,
            outcome,
            reason,
            peak_bytes: figures.and_then(|figures| figures.streaming.memory.peak_bytes),
            group: run.group,
            prefill_seconds: figures.map(|figures| figures.timing.prefill_seconds),
            token_seconds: figures.map_or(Vec::new(), |run| run.token_seconds().to_vec()),
            generated_ids: figures.map(|figures| figures.generated_ids.clone()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::figures::tests::run as figures;
    use super::*;

    pub(crate) const FITS: RungPlan = RungPlan::Fits {
        planned: Bytes(1000),
    };

    pub(crate) fn finished(repeat: u32, ids: &[u32], token_seconds: &[f64]) -> LadderRun {
        LadderRun {
            repeat,
            seconds: 10.0,
            group: GroupPeaks {
                anon_and_kernel: Some(Bytes(900 + u64::from(repeat))),
                swap: Some(Bytes(0)),
                peak: Some(Bytes(990)),
                oom_kills: Some(0),
                limit_hits: Some(0),
            },
            outcome: RunOutcome::Finished(Box::new(figures(ids, 1000, token_seconds))),
        }
    }

    pub(crate) fn ended(repeat: u32, outcome: RunOutcome) -> LadderRun {
        LadderRun {
            outcome,
            ..finished(repeat, &[], &[])
        }
    }

    #[track_caller]
    fn check(runs: &[LadderRun], status: RungStatus, reason: &str) {
        let rung = RungReport::new(Bytes(1001), FITS, runs);
        assert_eq!(rung.status, status);
        let found = rung.reason.unwrap_or_default();
        assert!(found.contains(reason), "{found}");
        assert_eq!(found.is_empty(), reason.is_empty(), "{found}");
    }

    #[test]
    fn tokens_of_all_repeats_have_one_spread() {
        let runs = [
            finished(1, &[1, 2, 3], &[0.01, 1.0, 4.0]),
            finished(2, &[1, 2, 3], &[0.01, 2.0, 3.0]),
        ];
        let rung = RungReport::new(Bytes(1001), FITS, &runs);
        let figures = rung.figures.unwrap();
        let spread = figures.token_seconds.unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!((figures.run_count, figures.peak_bytes), (2, Some(990)));
        assert_eq!(figures.read_bytes_per_token, Some(172.0));
        assert_eq!(rung.group.anon_and_kernel, Some(Bytes(902)));
        assert_eq!(rung.runs.len(), 2);
    }

    #[test]
    fn each_fault_has_its_status() {
        let good = finished(1, &[1], &[0.1]);
        check(&[], RungStatus::NotRun, "");
        check(std::slice::from_ref(&good), RungStatus::Ok, "");
        let mut swapped = good.clone();
        swapped.group.swap = Some(Bytes(4096));
        check(&[good.clone(), swapped], RungStatus::OverLimit, "swap");
        let mut held = good.clone();
        held.group.anon_and_kernel = Some(Bytes(1002));
        check(&[held], RungStatus::OverLimit, "cannot be dropped");
        let mut killed = good.clone();
        killed.group.oom_kills = Some(1);
        check(&[killed], RungStatus::OutOfMemory, "killed 1");
        let mut over = figures(&[1], 1000, &[]);
        over.streaming.memory.peak_bytes = Some(1001);
        let over = ended(3, RunOutcome::Finished(Box::new(over)));
        check(
            &[good.clone(), over.clone()],
            RungStatus::OverPlan,
            "repeat 3",
        );
        let killed = ended(2, RunOutcome::OutOfMemory);
        check(
            &[good, over, killed],
            RungStatus::OutOfMemory,
            "repeat 2: the kernel",
        );
        let failed = ended(1, RunOutcome::Failed("a shard is gone".to_owned()));
        check(&[failed], RungStatus::Failed, "a shard is gone");
        let refused = ended(1, RunOutcome::Refused("no memory".to_owned()));
        check(&[refused], RungStatus::Refused, "no memory");
    }

    #[test]
    fn a_plan_that_does_not_fit_names_the_budget_that_would() {
        let plan = RungPlan::TooSmall {
            smallest: Some(Bytes(5000)),
        };
        let rung = RungReport::new(Bytes(10), plan, &[]);
        assert_eq!(rung.status, RungStatus::Refused);
        assert_eq!(rung.smallest_budget_bytes, Some(5000));
        assert!(rung.reason.unwrap().contains("5.00 kB"));
        assert!(!rung.status.is_fault() && rung.figures.is_none());
    }
}
