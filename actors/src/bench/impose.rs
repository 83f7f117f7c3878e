//! A model that takes the experts of a record.

use k3_config::ModelFootprint;
use k3_models::{
    Block, ExpertDemand, ExpertKey, LayerIndex, ModelError, ModelFamily, PastPart, StoreError,
    Sweep, SweepProgram, SweepRun, Workers, WorkspaceSize,
};

/// `model`, with the experts of its sweeps given: `demands` holds the picks of
/// every layer that routes, in order.
///
/// Over other weights than its own a router picks other experts, and another
/// number of them for each, than the sweep whose arithmetic is to be measured.
/// The router's work is done all the same; its answer is replaced.
pub(super) struct Imposed<'m, M> {
    pub(super) model: &'m M,
    pub(super) demands: &'m [Vec<u16>],
}

pub(super) struct ImposedRun<'a, M: ModelFamily + 'a> {
    run: M::Run<'a>,
    demands: std::slice::Iter<'a, Vec<u16>>,
}

impl<M: ModelFamily> ModelFamily for Imposed<'_, M> {
    type State = M::State;
    type Workspace = M::Workspace;
    type Run<'a>
        = ImposedRun<'a, M>
    where
        Self: 'a;

    fn program(&self) -> &SweepProgram {
        self.model.program()
    }

    fn footprint(&self) -> ModelFootprint {
        self.model.footprint()
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn empty_state(&self) -> M::State {
        self.model.empty_state()
    }

    fn page_len(&self) -> usize {
        self.model.page_len()
    }

    fn page_part_len(&self) -> usize {
        self.model.page_part_len()
    }

    fn new_workspace(&self, size: WorkspaceSize) -> M::Workspace {
        self.model.new_workspace(size)
    }

    fn workspace_bytes(&self, size: &WorkspaceSize) -> u64 {
        self.model.workspace_bytes(size)
    }

    fn begin<'a>(
        &'a self,
        sweep: &'a Sweep,
        states: Vec<&'a mut M::State>,
        workspace: &'a mut M::Workspace,
        workers: &'a dyn Workers,
    ) -> Result<Self::Run<'a>, ModelError> {
        Ok(ImposedRun {
            run: self.model.begin(sweep, states, workspace, workers)?,
            demands: self.demands.iter(),
        })
    }

    fn commit(
        &self,
        workspace: &mut M::Workspace,
        segment: usize,
        state: &mut M::State,
        accepted: usize,
        workers: &dyn Workers,
    ) {
        self.model
            .commit(workspace, segment, state, accepted, workers);
    }
}

impl<'a, M: ModelFamily> SweepRun<'a> for ImposedRun<'a, M> {
    fn embed(&mut self, index: usize, row: &[u8]) {
        self.run.embed(index, row);
    }

    fn past(
        &mut self,
        layer: LayerIndex,
        parts: Vec<Result<PastPart, StoreError>>,
    ) -> Result<(), ModelError> {
        self.run.past(layer, parts)
    }

    fn block(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError> {
        self.run.block(block, bytes)
    }

    fn route(&mut self, layer: LayerIndex) -> Result<&ExpertDemand, ModelError> {
        self.run.route(layer)?;
        let picks = self.demands.next().expect("a demand for every layer");
        Ok(self.run.impose(picks))
    }

    fn impose(&mut self, picks: &[u16]) -> &ExpertDemand {
        self.run.impose(picks)
    }

    fn expert(&mut self, key: ExpertKey, bytes: &[u8]) {
        self.run.expert(key, bytes);
    }

    fn finish_moe(&mut self, layer: LayerIndex) {
        self.run.finish_moe(layer);
    }

    fn end_layer(&mut self, layer: LayerIndex) -> Result<(), ModelError> {
        self.run.end_layer(layer)
    }

    fn look_ahead(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError> {
        self.run.look_ahead(block, bytes)
    }

    fn guess(&mut self, layer: LayerIndex, count: usize) -> &[ExpertKey] {
        self.run.guess(layer, count)
    }

    fn nan_scale_groups(&self) -> u64 {
        self.run.nan_scale_groups()
    }

    fn finish(self) -> Result<k3_models::Finished<'a>, ModelError> {
        self.run.finish()
    }
}
