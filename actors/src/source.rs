//! The source that streams: what the forward loop is fed from on a machine
//! with less memory than the model.

use std::ops::Deref;

use k3_io::ReadLease;
use k3_models::{BlockIndex, ExpertDemand, ExpertKey, PastPart, StoreError, Sweep};
use k3_runtime::{ReadBytes, RunError, WeightSource};

use crate::cache::{ExpertCounts, ExpertHandle, ExpertLease};
use crate::error::ActorError;
use crate::lookahead::Lookahead;
use crate::past::PastReader;
use crate::prefault::PrefaultStatus;
use crate::rows::RowReader;
use crate::trunk::{TrunkCounts, TrunkHandle};

/// What one sweep read and waited for. Payload bytes are exact: what the
/// arithmetic consumed, without alignment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SweepReads {
    /// The trunk's part.
    pub trunk: TrunkCounts,
    /// The experts' part.
    pub experts: ExpertCounts,
    /// Payload bytes of embedding rows.
    pub row_bytes: u64,
    /// Time compute waited for embedding rows.
    pub row_wait_seconds: f64,
    /// Payload bytes of pages that are not in memory.
    pub past_bytes: u64,
    /// Time compute waited for them.
    pub past_wait_seconds: f64,
}

impl SweepReads {
    /// Time compute waited for reads.
    #[must_use]
    pub fn wait_seconds(&self) -> f64 {
        self.trunk.wait_seconds
            + self.experts.wait_seconds
            + self.row_wait_seconds
            + self.past_wait_seconds
    }
}

/// Feeds a model from disk through fixed memory.
#[derive(Debug)]
pub struct StreamingSource {
    pub(crate) rows: RowReader,
    pub(crate) trunk: TrunkHandle,
    /// `None` for a model without experts.
    pub(crate) experts: Option<ExpertHandle>,
    /// Whether the memory planned for all this could be had.
    pub(crate) memory: PrefaultStatus,
    pub(crate) lookahead: Lookahead,
    /// `None` where all pages stay in memory.
    pub(crate) past: Option<PastReader>,
}

/// The right to read one block, row or expert.
#[derive(Debug)]
pub enum StreamLease {
    /// A trunk block or an embedding row.
    Trunk(ReadLease),
    /// An expert.
    Expert(ExpertLease),
}

impl Deref for StreamLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Trunk(lease) => lease,
            Self::Expert(lease) => lease,
        }
    }
}

impl StreamingSource {
    /// What the sweep at hand, or the last one, has read.
    #[must_use]
    pub fn sweep_reads(&self) -> SweepReads {
        SweepReads {
            trunk: *self.trunk.counts(),
            experts: self
                .experts
                .as_ref()
                .map(|experts| *experts.counts())
                .unwrap_or_default(),
            row_bytes: self.rows.read_bytes,
            row_wait_seconds: self.rows.wait_seconds,
            past_bytes: self.past.as_ref().map_or(0, |past| past.read_bytes),
            past_wait_seconds: self.past.as_ref().map_or(0.0, |past| past.wait_seconds),
        }
    }
}

impl WeightSource for StreamingSource {
    type Lease<'a> = StreamLease;

    fn begin_sweep(&mut self, sweep: &Sweep) -> Result<(), RunError> {
        self.memory.check()?;
        self.trunk.begin(sweep.logit_row_count() > 0)?;
        if let Some(experts) = &mut self.experts {
            experts.begin()?;
        }
        self.rows.begin(sweep.tokens());
        self.lookahead.begin(sweep.position_count());
        Ok(())
    }

    fn embedding_row(&mut self, _token: u32) -> Result<StreamLease, RunError> {
        // Asked for at the start of the sweep, in this order.
        Ok(StreamLease::Trunk(self.rows.next()?))
    }

    fn block(&mut self, index: BlockIndex) -> Result<StreamLease, RunError> {
        if let Some(past) = &mut self.past {
            // Attention may have let go of some slots.
            past.ask();
        }
        let lease = self.trunk.block(index.index())?;
        self.lookahead.keep(index, &lease);
        Ok(StreamLease::Trunk(lease))
    }

    fn demand(&mut self, demand: &ExpertDemand) -> Result<(), RunError> {
        // The experts asked for may be the first to touch their slots.
        self.memory.check()?;
        let experts = self
            .experts
            .as_mut()
            .expect("only models with experts route");
        Ok(experts.demand(demand)?)
    }

    fn next_expert(&mut self) -> Result<Option<(ExpertKey, StreamLease)>, RunError> {
        let experts = self
            .experts
            .as_mut()
            .expect("only models with experts route");
        let lease = experts.next_expert()?;
        Ok(lease.map(|lease| (lease.key(), StreamLease::Expert(lease))))
    }

    fn sweep_read_bytes(&self) -> ReadBytes {
        let reads = self.sweep_reads();
        ReadBytes {
            trunk_bytes: reads.trunk.read_bytes,
            expert_bytes: reads.experts.read_bytes,
            row_bytes: reads.row_bytes,
            past_bytes: reads.past_bytes,
        }
    }

    fn begin_past(&mut self, places: &[u32]) {
        if let Some(past) = &mut self.past {
            past.begin(places);
        } else {
            assert!(places.is_empty(), "a plan with pages in a file");
        }
    }

    fn past(&mut self) -> Vec<Result<PastPart, StoreError>> {
        self.past.as_mut().map_or_else(Vec::new, PastReader::next)
    }

    fn lookahead_count(&self) -> usize {
        self.lookahead.count()
    }

    fn lookahead_block(&mut self, index: BlockIndex) -> Option<StreamLease> {
        self.lookahead.block(index).map(StreamLease::Trunk)
    }

    fn expect(&mut self, guesses: &[ExpertKey]) -> Result<(), RunError> {
        let experts = self
            .experts
            .as_mut()
            .expect("only models with experts route");
        Ok(experts.expect(guesses)?)
    }
}

impl From<ActorError> for RunError {
    fn from(error: ActorError) -> Self {
        Self::Source(Box::new(error))
    }
}
