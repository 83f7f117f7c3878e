//! What a ladder takes from the report of a run.

use serde::Deserialize;

use crate::report::{
    CacheReport, MemoryReport, REPORT_VERSION, SweepReport, TimeReport, TimingReport,
};

/// Why a text is not the report of a streamed run.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    /// Not the JSON of a report.
    #[error("not the report of a streamed run: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version of the schema.
    #[error("report version {found}, expected {REPORT_VERSION}")]
    Version {
        /// What the report says.
        found: u32,
    },
}

/// The part of a run's report that a ladder is about.
#[derive(Debug, Clone, Deserialize)]
pub struct RunFigures {
    report_version: u32,
    /// Ids generated, in order.
    pub generated_ids: Vec<u32>,
    /// Where the time went.
    pub timing: TimingReport,
    /// What was read and reserved.
    pub streaming: StreamingFigures,
}

/// The part of a run's streaming section that a ladder is about.
#[derive(Debug, Clone, Deserialize)]
pub struct StreamingFigures {
    /// Plan and peak.
    pub memory: MemoryReport,
    /// How bytes were read.
    pub engine: EngineFigures,
    /// What experts were found in memory.
    pub cache: CacheReport,
    /// Waiting and computing.
    pub time: TimeReport,
    /// Each sweep.
    pub sweeps: Vec<SweepReport>,
    /// What is less than what was asked for.
    pub fallbacks: Vec<String>,
}

/// The part of an engine's report that a ladder is about.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct EngineFigures {
    /// Bytes the devices transferred, per second with a request in flight.
    pub bytes_per_second: f64,
}

impl RunFigures {
    /// Reads a report, as a run prints it.
    ///
    /// # Errors
    ///
    /// No report of a streamed run, or one of another version.
    pub fn parse(json: &[u8]) -> Result<Self, FiguresError> {
        let figures: Self = serde_json::from_slice(json)?;
        if figures.report_version == REPORT_VERSION {
            Ok(figures)
        } else {
            Err(FiguresError::Version {
                found: figures.report_version,
            })
        }
    }

    /// Seconds of each generated token that had a sweep of its own: all but the
    /// first, whose sweep belongs to the prompt.
    #[must_use]
    pub fn token_seconds(&self) -> &[f64] {
        self.timing.token_seconds.get(1..).unwrap_or_default()
    }

    /// Payload bytes read per token, over the sweeps that had one each; `None`
    /// without such a sweep.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a mean to a few digits")]
    pub fn read_bytes_per_token(&self) -> Option<f64> {
        let sweeps = self.streaming.sweeps.iter();
        let tokens: Vec<u64> = sweeps
            .filter(|sweep| !sweep.is_prompt)
            .map(|sweep| {
                let weights = sweep.trunk_read_bytes + sweep.expert_read_bytes;
                weights + sweep.embedding_bytes + sweep.page_read_bytes
            })
            .collect();
        let total: u64 = tokens.iter().sum();
        (!tokens.is_empty()).then(|| total as f64 / tokens.len() as f64)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run that made `ids` within `planned_bytes` and took `token_seconds`.
    pub(crate) fn run(ids: &[u32], planned_bytes: u64, token_seconds: &[f64]) -> RunFigures {
        let sweep = SweepReport {
            positions: 3,
            is_prompt: true,
            trunk_read_bytes: 1_000_000,
            ..SweepReport::default()
        };
        let token = |read_bytes| SweepReport {
            positions: 1,
            is_prompt: false,
            trunk_read_bytes: read_bytes,
            expert_read_bytes: 20,
            embedding_bytes: 2,
            ..SweepReport::default()
        };
        RunFigures {
            report_version: REPORT_VERSION,
            generated_ids: ids.to_vec(),
            timing: TimingReport {
                load_seconds: 0.1,
                prefill_seconds: 5.0,
                token_seconds: token_seconds.to_vec(),
            },
            streaming: StreamingFigures {
                memory: MemoryReport {
                    budget_bytes: planned_bytes + 1,
                    planned_bytes,
                    peak_bytes: Some(planned_bytes - 10),
                    ..MemoryReport::default()
                },
                engine: EngineFigures::default(),
                cache: CacheReport::default(),
                time: TimeReport::default(),
                sweeps: vec![sweep, token(100), token(200)],
                fallbacks: Vec::new(),
            },
        }
    }

    #[test]
    fn a_token_is_a_sweep_that_is_not_of_the_prompt() {
        let figures = run(&[1, 2, 3], 1000, &[0.001, 2.0, 3.0]);
        assert_eq!(figures.token_seconds(), [2.0, 3.0]);
        assert_eq!(figures.read_bytes_per_token(), Some(172.0));
        let mut prompt_only = run(&[], 1000, &[]);
        prompt_only.streaming.sweeps.truncate(1);
        assert_eq!(prompt_only.token_seconds(), [0.0; 0]);
        assert_eq!(prompt_only.read_bytes_per_token(), None);
    }

    #[test]
    fn what_is_no_report_of_a_streamed_run_is_refused() {
        for text in ["", "{}", "[1]"] {
            let error = RunFigures::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(error, FiguresError::Json(_)), "{error}");
        }
    }
}
