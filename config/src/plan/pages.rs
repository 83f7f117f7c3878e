//! What becomes of the pages of sequences.

use serde::Serialize;

use crate::bytes::Bytes;

use super::lines::fixed_needs;
use super::refusal::PlanRefusal;
use super::request::{PlanRequest, SpillRequest};
use super::{Model, largest_fitting};

/// The memory for positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PagePlan {
    /// Pages in memory that the sequences share.
    pub page_count: u64,
    /// Positions of a page.
    pub page_positions: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// Pages that each sequence has in memory, where others are in a file.
    pub memory_page_count: u64,
    /// Pages in the file, of all sequences; 0 if all stay in memory.
    pub file_page_count: u64,
    /// Parts of a page: layers that have one.
    pub part_count: u64,
    /// Size of a part.
    pub part_bytes: u64,
    /// From one part to the next, in the file and in memory.
    pub part_stride_bytes: u64,
    /// Parts that are in memory for attention, or read ahead of it.
    pub staged_part_count: u64,
}

impl PagePlan {
    /// Size of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let page = self.part_count.saturating_mul(self.part_stride_bytes);
        page.saturating_mul(self.file_page_count)
    }

    /// Memory for parts of the file's pages: those of attention and one that is
    /// written.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        match self.file_page_count {
            0 => 0,
            _ => (self.staged_part_count.saturating_add(1)).saturating_mul(self.part_stride_bytes),
        }
    }

    /// A checksum for each part in the file.
    #[must_use]
    pub fn checksum_bytes(&self) -> u64 {
        8_u64.saturating_mul(self.file_page_count.saturating_mul(self.part_count))
    }

    /// What a sweep reads back once every sequence has filled its pages.
    #[must_use]
    pub fn read_bytes_per_sweep(&self) -> u64 {
        self.page_bytes.saturating_mul(self.file_page_count)
    }
}

/// `request` with the pages that stay in memory decided: all if they fit, else as
/// many as do.
///
/// # Errors
///
/// A file that may not be as large as the others are.
pub(super) fn decided<'a>(request: &PlanRequest<'a>) -> Result<PlanRequest<'a>, PlanRefusal> {
    let Some(spill) = request.spill else {
        return Ok(*request);
    };
    let model = Model::new(request)?;
    let context = request.context_positions;
    let with = |pages: u64| with_memory(request, spill, pages);
    let (least, all) = range(request);
    let fits = |pages: u64, beside: u128| {
        fixed_bytes(&with(pages), &model) + beside <= u128::from(request.budget.total.0)
    };
    let pages = match spill.memory_pages {
        Some(pages) => pages.clamp(least, all),
        None if fits(all, model.least_bytes()) => all,
        // Reading goes before the last pages: a sweep reads many times more.
        None => [model.usual_bytes(), model.least_bytes()]
            .into_iter()
            .find_map(|beside| largest_fitting(least, all, |pages| fits(pages, beside)))
            .unwrap_or(least),
    };
    let request = with(pages);
    let bytes = request.pages(context).file_bytes();
    match spill.bytes_max.filter(|most| bytes > *most) {
        None => Ok(request),
        Some(most) => Err(PlanRefusal::SpillTooLarge {
            needed: Bytes(bytes),
            most: Bytes(most),
        }),
    }
}

/// The smallest budget that `request` is accepted with, whatever its own is: with as
/// few pages in memory as the file may be large for. `None` if nobody has a file.
pub(super) fn smallest_budget(request: &PlanRequest<'_>, model: &Model) -> Option<u128> {
    let spill = request.spill?;
    let (least, all) = range(request);
    let file_fits = |pages: u64| {
        let file = with_memory(request, spill, pages).pages(request.context_positions);
        spill.bytes_max.is_none_or(|most| file.file_bytes() <= most)
    };
    // Pages that are not in memory at most, with a file that may be that large.
    let outside = largest_fitting(0, all - least, |outside| file_fits(all - outside));
    let fewest = match spill.memory_pages {
        Some(pages) => pages.clamp(least, all),
        None => all - outside.unwrap_or(0),
    };
    let with = |pages| fixed_bytes(&with_memory(request, spill, pages), model);
    let fixed = match spill.memory_pages {
        Some(_) => with(fewest),
        None => with(fewest).min(with(all)),
    };
    Some(fixed + model.least_bytes())
}

/// `request` with so many pages of each sequence in memory.
fn with_memory<'a>(request: &PlanRequest<'a>, spill: SpillRequest, pages: u64) -> PlanRequest<'a> {
    PlanRequest {
        spill: Some(SpillRequest {
            memory_pages: Some(pages),
            ..spill
        }),
        ..*request
    }
}

/// The fewest pages that a sequence may have in memory, and all of them.
fn range(request: &PlanRequest<'_>) -> (u64, u64) {
    let context = request.context_positions;
    let all = context.div_ceil(request.footprint.state_page_positions);
    (request.touched_pages(context).min(all), all)
}

/// What does not depend on the budget.
fn fixed_bytes(request: &PlanRequest<'_>, model: &Model) -> u128 {
    let shape = request.shape(request.context_positions, request.chunk_positions);
    let needs = fixed_needs(request, shape, &model.trunk);
    needs.iter().map(|need| need.bytes).sum()
}
