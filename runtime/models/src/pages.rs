//! Memory for positions, in pages that sequences take from one pool.
//!
//! What a sequence keeps for every position (latents, or keys and values) lies
//! in pages. A page holds [`PAGE_POSITIONS`] positions of all layers, each layer
//! in one contiguous part of it; the family says what a part looks like. All
//! pages are reserved when their pool is made. A sequence takes as many as its
//! request needs, all at once, and gives them back at its end, so sequences of
//! very different lengths share what there is, and none fails half-way.
//!
//! A page has one owner at a time, the pool or a [`PageTable`], and moves as a
//! value: nobody locks anything, and a page can neither be shared nor forgotten.
//! Which page holds which positions is the table's affair alone. Kernels get one
//! slice after the other, in the order of positions, with the sums carried on,
//! so a result cannot depend on it.
//!
//! # Size of a page
//!
//! 64 positions: whole tiles of every kernel that scores positions (eight at a
//! time), enough of them that sums which go on from page to page cost one load
//! and one store for 64 products, and few enough that a sequence wastes less
//! than 64 positions at its end. A layer's part of a page of Kimi K3 is 144 KiB.
//!
//! # Pages in a file
//!
//! A pool with a [`Spill`] gives a sequence a few pages in memory and a place in
//! a file for each of the others. Before a sweep [`PageTable::make_room`] writes
//! the oldest pages away until those the sweep adds to are in memory; they were
//! full, so nothing of them ever changes again. What is where follows from the
//! position alone.

mod store;
#[cfg(test)]
mod tests;

pub use store::{PageStore, PastPart, Spill, StoreError};

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Positions of a page.
pub const PAGE_POSITIONS: usize = 64;

/// Pages that hold `positions` positions.
#[must_use]
pub fn pages_for(positions: usize) -> usize {
    positions.div_ceil(PAGE_POSITIONS)
}

/// What fresh and returned pages hold. Nobody reads a position before it is
/// written; where assertions are on, whoever does gets no number.
const UNWRITTEN: f32 = if cfg!(debug_assertions) {
    f32::NAN
} else {
    0.0
};

/// One page: [`PAGE_POSITIONS`] positions of every layer, in f32 elements.
#[derive(Debug)]
struct Page(Box<[f32]>);

/// Fewer pages are free than a sequence needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} more pages of {PAGE_POSITIONS} positions are needed, but {free} are free; wait for a \
     sequence to end, or raise --context-total"
)]
pub struct PagesShort {
    /// Pages needed beside those the sequence has, in memory or in the file:
    /// wherever too few are free.
    pub needed: usize,
    /// Pages nobody has there.
    pub free: usize,
}

/// The pages that sequences share, all reserved.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<Page>,
    page_count: usize,
    page_len: usize,
    outside: Option<Outside>,
}

/// What a pool has in a file.
#[derive(Debug)]
struct Outside {
    spill: Spill,
    free: Vec<u32>,
}

impl PagePool {
    /// A pool of `page_count` pages of `page_len` elements of f32 each, for all
    /// positions and layers of a page together.
    #[must_use]
    pub fn new(page_count: usize, page_len: usize) -> Self {
        let page = || Page(vec![UNWRITTEN; page_len].into_boxed_slice());
        Self {
            free: std::iter::repeat_with(page).take(page_count).collect(),
            page_count,
            page_len,
            outside: None,
        }
    }

    /// Gives the pool places in a file beside its pages in memory, before anybody
    /// has any.
    ///
    /// # Panics
    ///
    /// If a page is not made of parts, a sequence has no page in memory, there are
    /// 2^32 places, or somebody has pages.
    pub fn spill_to(&mut self, spill: Spill) {
        assert_eq!(self.free.len(), self.page_count, "nobody has pages");
        assert!(spill.part_len > 0 && self.page_len.is_multiple_of(spill.part_len));
        assert!(spill.memory_pages > 0, "what is written lies in memory");
        let places = u32::try_from(spill.place_count).expect("fewer than 2^32 places");
        let free = (0..places).rev().collect();
        self.outside = Some(Outside { spill, free });
    }

    /// Pages that a sequence of `positions` positions takes: in memory, and in
    /// the file.
    #[must_use]
    pub fn split(&self, positions: usize) -> [usize; 2] {
        let all = pages_for(positions);
        let spill = self.outside.as_ref().map(|outside| &outside.spill);
        let memory = spill.map_or(all, |spill| all.min(spill.memory_pages));
        [memory, all - memory]
    }

    /// Whether `count` sequences of `positions` positions each find their pages
    /// free.
    #[must_use]
    pub fn has_room(&self, positions: usize, count: usize) -> bool {
        let [memory, outside] = self.split(positions);
        let [free, free_places] = [self.free_count(), self.free_place_count()];
        memory.saturating_mul(count) <= free && outside.saturating_mul(count) <= free_places
    }

    /// Places in the file that nobody has.
    #[must_use]
    pub fn free_place_count(&self) -> usize {
        let outside = self.outside.as_ref();
        outside.map_or(0, |outside| outside.free.len())
    }

    /// Pages in memory in all, whoever has them.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.page_count
    }

    /// Pages in memory that nobody has.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Bytes of all pages in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        4 * self.page_count as u64 * self.page_len as u64
    }

    fn give_back(&mut self, mut page: Page) {
        assert_eq!(page.0.len(), self.page_len, "a page of this model");
        assert!(self.free.len() < self.page_count, "a page of this pool");
        if cfg!(debug_assertions) {
            page.0.fill(UNWRITTEN);
        }
        self.free.push(page);
    }
}

/// The pages of one sequence, in the order of its positions: the first of them in
/// a file, if they do not all stay in memory.
#[derive(Debug, Default)]
pub struct PageTable {
    /// Places of the pages that lie in the file.
    outside: Vec<u32>,
    /// Places that hold nothing yet.
    spare: Vec<u32>,
    /// The pages after them.
    pages: VecDeque<Page>,
    /// The file, and elements of a part.
    store: Option<(Arc<dyn PageStore>, usize)>,
    capacity: usize,
}

impl PageTable {
    /// Positions that may be used: as many as were reserved, which fill the last
    /// page or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Pages it has, in memory and in the file.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len() + self.outside.len() + self.spare.len()
    }

    /// Where its first pages lie, those that are not in memory.
    #[must_use]
    pub fn outside(&self) -> &[u32] {
        &self.outside
    }

    /// Takes what `positions` positions need from `pool`, beside what is there
    /// already.
    ///
    /// # Errors
    ///
    /// Too few pages are free; nothing has been taken then.
    pub fn reserve(&mut self, positions: usize, pool: &mut PagePool) -> Result<(), PagesShort> {
        let [memory, outside] = pool.split(positions);
        let needed = memory.saturating_sub(self.pages.len());
        let places = outside.saturating_sub(self.outside.len() + self.spare.len());
        for (needed, free) in [
            (needed, pool.free_count()),
            (places, pool.free_place_count()),
        ] {
            if needed > free {
                return Err(PagesShort { needed, free });
            }
        }
        self.pages
            .extend(pool.free.drain(pool.free.len() - needed..));
        if let Some(outside) = &mut pool.outside {
            let start = outside.free.len() - places;
            self.spare.extend(outside.free.drain(start..));
            let spill = &outside.spill;
            self.store = Some((Arc::clone(&spill.store), spill.part_len));
        }
        self.capacity = self.capacity.max(positions);
        Ok(())
    }

    /// Gives every page back to `pool`, which they came from.
    ///
    /// # Panics
    ///
    /// If `pool` is of another model, or has all its pages.
    pub fn release(&mut self, pool: &mut PagePool) {
        self.capacity = 0;
        self.clear();
        for page in self.pages.drain(..) {
            pool.give_back(page);
        }
        if let Some(outside) = &mut pool.outside {
            outside.free.append(&mut self.spare);
            assert!(outside.free.len() <= outside.spill.place_count);
        }
        assert!(self.spare.is_empty(), "places of this pool");
        self.store = None;
    }

    /// Forgets what its pages hold, and keeps them.
    pub fn clear(&mut self) {
        self.spare.append(&mut self.outside);
    }

    /// Writes the oldest pages away until those of `positions` more positions
    /// after `position` are in memory.
    ///
    /// # Errors
    ///
    /// What the store reports; the page at hand is in memory then, as before.
    ///
    /// # Panics
    ///
    /// If more pages than are in memory are touched by so many positions, or
    /// more positions are wanted than were reserved.
    pub fn make_room(&mut self, position: usize, positions: usize) -> Result<(), StoreError> {
        assert!(position + positions <= self.capacity, "reserved positions");
        let Some((store, part_len)) = &self.store else {
            return Ok(());
        };
        let wanted = pages_for(position + positions).saturating_sub(self.pages.len());
        while self.outside.len() < wanted {
            let is_full = self.outside.len() < position / PAGE_POSITIONS;
            assert!(is_full, "a page that changes stays in memory");
            let place = *self.spare.last().expect("a place for every page");
            let page = self.pages.front().expect("a page in memory");
            for (part, values) in page.0.chunks_exact(*part_len).enumerate() {
                store.write(place, part, values)?;
            }
            self.spare.pop();
            self.outside.push(place);
            self.pages.rotate_left(1);
        }
        Ok(())
    }

    /// Takes the first pages of `positions` positions to lie in the file, as many
    /// as do not fit into memory; what they hold is to come by
    /// [`PageTable::write_part`].
    ///
    /// # Panics
    ///
    /// If the table is not [clear](Self::clear), or has fewer pages.
    pub fn lay_out(&mut self, positions: usize) {
        assert!(self.outside.is_empty(), "a table that holds nothing");
        let count = pages_for(positions).saturating_sub(self.pages.len());
        let start = self.spare.len() - count;
        self.outside.extend(self.spare.drain(start..).rev());
    }

    /// Index in memory of the page with index `page`.
    fn in_memory(&self, page: usize) -> usize {
        let index = page.checked_sub(self.outside.len());
        index.expect("a page in memory: the first ones lie in the file")
    }

    /// The elements `part` of the page with index `page`.
    ///
    /// # Panics
    ///
    /// If there is no such page in memory.
    #[must_use]
    pub fn part(&self, page: usize, part: Range<usize>) -> &[f32] {
        &self.pages[self.in_memory(page)].0[part]
    }

    /// The same, to write.
    ///
    /// # Panics
    ///
    /// As [`PageTable::part`].
    pub fn part_mut(&mut self, page: usize, part: Range<usize>) -> &mut [f32] {
        let index = self.in_memory(page);
        &mut self.pages[index].0[part]
    }

    /// The elements `part`, one layer's, of page `page`, wherever it lies: read
    /// into `room` if it is not in memory.
    ///
    /// # Errors
    ///
    /// What the store reports.
    pub fn read_part<'a>(
        &'a self,
        page: usize,
        part: Range<usize>,
        room: &'a mut Vec<f32>,
    ) -> Result<&'a [f32], StoreError> {
        let Some(place) = self.outside.get(page) else {
            return Ok(self.part(page, part));
        };
        let (store, part_len) = self.store.as_ref().expect("pages lie in it");
        assert_eq!(part.len(), *part_len, "a whole part");
        room.resize(*part_len, 0.0);
        store.read(*place, part.start / part_len, room)?;
        Ok(room)
    }

    /// Sets the elements `part`, one layer's, of page `page`, wherever it lies.
    ///
    /// # Errors
    ///
    /// What the store reports.
    pub fn write_part(
        &mut self,
        page: usize,
        part: Range<usize>,
        values: &[f32],
    ) -> Result<(), StoreError> {
        assert_eq!(values.len(), part.len(), "a whole part");
        let Some(place) = self.outside.get(page) else {
            self.part_mut(page, part).copy_from_slice(values);
            return Ok(());
        };
        let (store, part_len) = self.store.as_ref().expect("pages lie in it");
        assert_eq!(values.len(), *part_len, "one layer's part");
        store.write(*place, part.start / part_len, values)
    }

    /// The elements `part` of every page in memory, in the order of positions.
    pub fn parts(&self, part: Range<usize>) -> impl Iterator<Item = &[f32]> {
        self.pages.iter().map(move |page| &page.0[part.clone()])
    }

    /// The same, to write.
    pub fn parts_mut(&mut self, part: Range<usize>) -> impl Iterator<Item = &mut [f32]> {
        let pages = self.pages.iter_mut();
        pages.map(move |page| &mut page.0[part.clone()])
    }

    /// Takes over what the first `positions` positions of `other` hold.
    ///
    /// # Errors
    ///
    /// What the store reports; the table holds anything then.
    ///
    /// # Panics
    ///
    /// If either has fewer pages, or they are of different models.
    pub fn copy_from(&mut self, other: &Self, positions: usize) -> Result<(), StoreError> {
        self.clear();
        self.lay_out(positions);
        let mut room = Vec::new();
        for page in 0..pages_for(positions) {
            if let (None, None) = (self.outside.get(page), other.outside.get(page)) {
                let (to, from) = (self.in_memory(page), other.in_memory(page));
                self.pages[to].0.copy_from_slice(&other.pages[from].0);
                continue;
            }
            let store = self.store.as_ref().or(other.store.as_ref());
            let part_len = store.expect("a page lies in it").1;
            let page_len = self.pages[0].0.len();
            for start in (0..page_len).step_by(part_len) {
                let part = start..start + part_len;
                let values = other.read_part(page, part.clone(), &mut room)?;
                self.write_part(page, part, values)?;
            }
        }
        Ok(())
    }
}

/// Where consecutive positions lie: for each page that has some of them, its
/// index, and the first of its rows and how many, counted in the page.
pub fn runs(positions: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let pages = positions.start / PAGE_POSITIONS..pages_for(positions.end);
    pages.filter_map(move |page| {
        let first = page * PAGE_POSITIONS;
        let start = positions.start.max(first) - first;
        let end = positions.end.min(first + PAGE_POSITIONS) - first;
        (start < end).then_some((page, start..end))
    })
}
