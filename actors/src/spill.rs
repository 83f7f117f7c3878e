//! What a run sets up for pages that do not stay in memory.

use std::sync::Arc;

use k3_config::{BudgetPlan, PagePlan};
use k3_io::{FileId, FileTable, HugeArena, ReadEngine, SlotArena, SpillFile};

use crate::error::ActorError;
use crate::past::{PageFile, PartLayout, PastReader};
use crate::supervisor::StreamSettings;
use crate::units::memory;

/// Where parts of pages land.
pub(crate) struct PastSlots {
    /// For the reader.
    ring: SlotArena,
    /// One, for what is moved on the spot.
    bounce: SlotArena,
}

impl PastSlots {
    /// The slots of `plan` in `arena`, which is all theirs.
    ///
    /// # Errors
    ///
    /// As [`SlotArena::new`].
    pub(crate) fn new(arena: &Arc<HugeArena>, plan: &PagePlan) -> Result<Self, ActorError> {
        let stride = memory(plan.part_stride_bytes);
        let ring = memory(plan.staged_part_count) * stride;
        let all = memory(plan.staged_bytes());
        Ok(Self {
            ring: SlotArena::new(arena, 0..ring, stride)?,
            bounce: SlotArena::new(arena, ring..all, stride)?,
        })
    }
}

/// The file, and its number among those that the engine reads.
pub(crate) struct Spilled {
    file: SpillFile,
    id: FileId,
}

impl Spilled {
    /// Makes the file of `plan`, if it has one, and adds it to `table`.
    ///
    /// # Errors
    ///
    /// A directory without room for it.
    pub(crate) fn create(
        plan: &BudgetPlan,
        settings: &StreamSettings,
        table: &mut FileTable,
    ) -> Result<Option<Self>, ActorError> {
        let bytes = plan.pages.file_bytes();
        if bytes == 0 {
            return Ok(None);
        }
        let dir = settings
            .spill
            .as_ref()
            .expect("a plan with pages in a file");
        let file = SpillFile::create(dir, bytes, settings.direct)?;
        let id = table.add(file.reader(settings.direct)?);
        Ok(Some(Self { file, id }))
    }

    /// Who writes the file, and who reads it ahead into `slots`.
    pub(crate) fn start(
        self,
        slots: PastSlots,
        plan: &PagePlan,
        engine: &Arc<dyn ReadEngine>,
    ) -> (Arc<PageFile>, PastReader) {
        let bounce = slots.bounce.acquire(0).expect("nobody else has it");
        let pages = Arc::new(PageFile::new(self.file, PartLayout::new(plan), bounce));
        let shared = Arc::clone(&pages);
        let reader = PastReader::new(Arc::clone(engine), slots.ring, self.id, shared);
        (pages, reader)
    }
}
