//! The bound model: layout, vectors, program and kernels.

use k3_config::ModelFootprint;
use k3_formats::{KimiK3Config, TensorRef};
use k3_kernels::KernelSet;

use crate::error::ModelError;
use crate::family::{ModelFamily, WorkspaceSize};
use crate::kimi_k3::layout::{KimiK3Layout, expert_part_bytes};
use crate::kimi_k3::op::sweep_program;
use crate::kimi_k3::run::KimiK3Run;
use crate::kimi_k3::state::KimiK3State;
use crate::kimi_k3::vectors::Vectors;
use crate::kimi_k3::workspace::KimiK3Workspace;
use crate::pages::PAGE_POSITIONS;
use crate::parallel::Workers;
use crate::program::{BlockIndex, SweepProgram};
use crate::sweep::Sweep;

/// Version of the arithmetic in `docs/numerics.md`. Together with the form of
/// attention it names the bits of every result.
pub const NUMERICS_VERSION: u32 = 1;

/// How MLA stores its past. Both are exact evaluations of the same algebra
/// with different rounding; the choice never depends on the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AttentionForm {
    /// The normalised latent and the rope tail, per position.
    #[default]
    Latent,
    /// Keys and values of every head, per position.
    Expanded,
}

impl AttentionForm {
    /// The name used on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latent => "latent",
            Self::Expanded => "expanded",
        }
    }
}

impl std::fmt::Display for AttentionForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for AttentionForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "latent" => Ok(Self::Latent),
            "expanded" => Ok(Self::Expanded),
            other => Err(format!("`{other}` is neither `latent` nor `expanded`")),
        }
    }
}

/// A Kimi K3 model, ready to be fed.
#[derive(Debug)]
pub struct KimiK3 {
    pub(crate) layout: KimiK3Layout,
    pub(crate) vectors: Vectors,
    pub(crate) kernels: &'static KernelSet,
    pub(crate) form: AttentionForm,
    program: SweepProgram,
}

impl KimiK3 {
    /// Loads the resident vectors of `layout` through `read` and fixes the
    /// sweep order in blocks of at most `block_bytes`.
    ///
    /// # Errors
    ///
    /// What `read` returns, or non-zero padding in a vector.
    pub fn new<E: From<ModelError>>(
        layout: KimiK3Layout,
        form: AttentionForm,
        kernels: &'static KernelSet,
        block_bytes: u64,
        read: impl FnMut(&TensorRef, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let vectors = Vectors::load(&layout, read)?;
        let program = sweep_program(&layout, block_bytes);
        Ok(Self {
            layout,
            vectors,
            kernels,
            form,
            program,
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &KimiK3Config {
        &self.layout.config
    }

    /// The sweep order, for whoever knows better where blocks are read.
    pub fn program_mut(&mut self) -> &mut SweepProgram {
        &mut self.program
    }

    /// Where the weights lie.
    #[must_use]
    pub fn layout(&self) -> &KimiK3Layout {
        &self.layout
    }

    /// The form of attention, part of the numerics version.
    #[must_use]
    pub fn form(&self) -> AttentionForm {
        self.form
    }

    /// The kernels in use.
    #[must_use]
    pub fn kernels(&self) -> &'static KernelSet {
        self.kernels
    }
}

/// A model that is not there: what a checkpoint of a configuration would cost.
#[derive(Debug)]
pub struct PlannedModel {
    layout: KimiK3Layout,
    program: SweepProgram,
    form: AttentionForm,
}

impl PlannedModel {
    /// The model of `config`, cut into blocks of at most `block_bytes`.
    #[must_use]
    pub fn new(config: &KimiK3Config, form: AttentionForm, block_bytes: u64) -> Self {
        let layout = KimiK3Layout::planned(config);
        Self {
            program: sweep_program(&layout, block_bytes),
            layout,
            form,
        }
    }

    /// Its sizes.
    #[must_use]
    pub fn footprint(&self) -> ModelFootprint {
        footprint(&self.layout, &self.program, self.form)
    }

    /// Bytes its workspace would take; see [`ModelFamily::workspace_bytes`].
    #[must_use]
    pub fn workspace_bytes(&self, size: &WorkspaceSize) -> u64 {
        KimiK3Workspace::planned_bytes(&self.layout, &self.program, size)
    }
}

/// Sizes of a bound model.
fn footprint(layout: &KimiK3Layout, program: &SweepProgram, form: AttentionForm) -> ModelFootprint {
    let (config, layers) = (&layout.config, layout.layer_count());
    let (state_bytes_fixed, state_bytes_per_position) = KimiK3State::bytes(config, form, layers);
    let workspace = |positions| {
        let size = WorkspaceSize::positions(positions);
        KimiK3Workspace::planned_bytes(layout, program, &size)
    };
    let count = |value: usize| u32::try_from(value).expect("capped by the config reader");
    ModelFootprint {
        blocks: program.block_footprints(),
        lookahead_blocks: program.lookahead_blocks().map(BlockIndex::index).collect(),
        vector_bytes: Vectors::planned_bytes(layout),
        embedding_row_bytes: program.embedding_row_bytes(),
        expert_bytes: expert_part_bytes(config).iter().sum(),
        moe_layer_count: count(layers.saturating_sub(config.first_k_dense_replace)),
        experts_per_layer: count(config.num_experts),
        experts_per_token: count(config.num_experts_per_token),
        state_bytes_fixed,
        state_bytes_per_position,
        state_page_positions: PAGE_POSITIONS as u64,
        state_page_parts: {
            let page = KimiK3State::page_len(config, form, layout.layer_count());
            (page / KimiK3State::page_part_len(config, form)) as u64
        },
        activation_bytes_per_position: workspace(1) - workspace(0),
        logit_row_bytes: 4 * config.vocab_size as u64,
    }
}

impl ModelFamily for KimiK3 {
    type State = KimiK3State;
    type Workspace = KimiK3Workspace;
    type Run<'a> = KimiK3Run<'a>;

    fn program(&self) -> &SweepProgram {
        &self.program
    }

    fn footprint(&self) -> ModelFootprint {
        footprint(&self.layout, &self.program, self.form)
    }

    fn workspace_bytes(&self, size: &WorkspaceSize) -> u64 {
        KimiK3Workspace::planned_bytes(&self.layout, &self.program, size)
    }

    fn vocab_size(&self) -> usize {
        self.config().vocab_size
    }

    fn empty_state(&self) -> KimiK3State {
        KimiK3State::new(self.config(), self.form, self.layout.layer_count())
    }

    fn page_len(&self) -> usize {
        KimiK3State::page_len(self.config(), self.form, self.layout.layer_count())
    }

    fn page_part_len(&self) -> usize {
        KimiK3State::page_part_len(self.config(), self.form)
    }

    fn new_workspace(&self, size: WorkspaceSize) -> KimiK3Workspace {
        KimiK3Workspace::new(&self.layout, &self.program, size)
    }

    fn begin<'a>(
        &'a self,
        sweep: &'a Sweep,
        states: Vec<&'a mut KimiK3State>,
        workspace: &'a mut KimiK3Workspace,
        workers: &'a dyn Workers,
    ) -> Result<KimiK3Run<'a>, ModelError> {
        KimiK3Run::begin(self, sweep, states, workspace, workers)
    }

    fn commit(
        &self,
        workspace: &mut KimiK3Workspace,
        segment: usize,
        state: &mut KimiK3State,
        accepted: usize,
        workers: &dyn Workers,
    ) {
        self.commit_held(workspace, segment, state, accepted, workers);
    }
}
