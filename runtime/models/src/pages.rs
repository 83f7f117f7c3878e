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

use std::ops::Range;

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
    /// Pages needed beside those the sequence has.
    pub needed: usize,
    /// Pages nobody has.
    pub free: usize,
}

/// The pages that sequences share, all reserved.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<Page>,
    page_count: usize,
    page_len: usize,
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
        }
    }

    /// Pages in all, wherever they are.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.page_count
    }

    /// Pages nobody has.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Bytes of all pages.
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

/// The pages of one sequence, in the order of its positions.
#[derive(Debug, Default)]
pub struct PageTable {
    pages: Vec<Page>,
    capacity: usize,
}

impl PageTable {
    /// Positions that may be used: as many as were reserved, which fill the last
    /// page or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Pages it has.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Takes what `positions` positions need from `pool`, beside what is there
    /// already.
    ///
    /// # Errors
    ///
    /// Too few pages are free; nothing has been taken then.
    pub fn reserve(&mut self, positions: usize, pool: &mut PagePool) -> Result<(), PagesShort> {
        let needed = pages_for(positions).saturating_sub(self.pages.len());
        let free = pool.free.len();
        if needed > free {
            return Err(PagesShort { needed, free });
        }
        self.pages.extend(pool.free.drain(free - needed..));
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
        for page in self.pages.drain(..) {
            pool.give_back(page);
        }
    }

    /// The elements `part` of the page with index `page`.
    ///
    /// # Panics
    ///
    /// If there is no such page.
    #[must_use]
    pub fn part(&self, page: usize, part: Range<usize>) -> &[f32] {
        &self.pages[page].0[part]
    }

    /// The same, to write.
    ///
    /// # Panics
    ///
    /// As [`PageTable::part`].
    pub fn part_mut(&mut self, page: usize, part: Range<usize>) -> &mut [f32] {
        &mut self.pages[page].0[part]
    }

    /// The elements `part` of every page, in the order of positions.
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
    /// # Panics
    ///
    /// If either has fewer pages, or they are of different models.
    pub fn copy_from(&mut self, other: &Self, positions: usize) {
        let count = pages_for(positions);
        for (to, from) in self.pages[..count].iter_mut().zip(&other.pages[..count]) {
            to.0.copy_from_slice(&from.0);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_every_position_once_in_order() {
        for start in [0, 1, 63, 64, 65, 127, 128] {
            for len in [0, 1, 2, 63, 64, 65, 200] {
                let all: Vec<_> = runs(start..start + len)
                    .flat_map(|(page, rows)| rows.map(move |row| page * PAGE_POSITIONS + row))
                    .collect();
                assert_eq!(all, (start..start + len).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn pages_are_taken_all_or_none_and_come_back() {
        let mut pool = PagePool::new(5, 8);
        assert_eq!((pool.bytes(), pool.free_count()), (5 * 8 * 4, 5));
        let [mut one, mut other] = [PageTable::default(), PageTable::default()];
        one.reserve(PAGE_POSITIONS + 1, &mut pool).unwrap();
        assert_eq!((one.page_count(), one.capacity()), (2, 65));
        let short = other.reserve(4 * PAGE_POSITIONS, &mut pool).unwrap_err();
        assert_eq!(short, PagesShort { needed: 4, free: 3 });
        assert_eq!((other.page_count(), other.capacity()), (0, 0));
        other.reserve(3 * PAGE_POSITIONS, &mut pool).unwrap();
        assert_eq!(pool.free_count(), 0);
        // Within the pages it has, a table grows without any.
        one.reserve(2 * PAGE_POSITIONS, &mut pool).unwrap();
        assert_eq!((one.page_count(), one.capacity()), (2, 128));
        let short = one.reserve(2 * PAGE_POSITIONS + 1, &mut pool).unwrap_err();
        assert_eq!(short, PagesShort { needed: 1, free: 0 });
        one.reserve(1, &mut pool).unwrap();
        assert_eq!(one.capacity(), 128);
        for table in [&mut one, &mut other] {
            table.release(&mut pool);
            assert_eq!((table.page_count(), table.capacity()), (0, 0));
        }
        assert_eq!(pool.free_count(), pool.page_count());
    }

    #[test]
    fn a_copy_holds_the_same_positions_in_other_pages() {
        let mut pool = PagePool::new(4, PAGE_POSITIONS);
        let [mut from, mut to] = [PageTable::default(), PageTable::default()];
        from.reserve(100, &mut pool).unwrap();
        to.reserve(70, &mut pool).unwrap();
        for (page, part) in from.parts_mut(0..PAGE_POSITIONS).enumerate() {
            part.fill(page as f32);
        }
        to.copy_from(&from, 65);
        let held: Vec<f32> = to.parts(0..2).flatten().copied().collect();
        assert_eq!(held, [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "a page of this model")]
    fn a_pool_takes_no_page_of_another_model() {
        let mut table = PageTable::default();
        table.reserve(1, &mut PagePool::new(1, 8)).unwrap();
        table.release(&mut PagePool::new(1, 9));
    }

    #[test]
    #[should_panic(expected = "a page of this pool")]
    fn a_full_pool_takes_no_page() {
        let mut table = PageTable::default();
        table.reserve(1, &mut PagePool::new(1, 8)).unwrap();
        table.release(&mut PagePool::new(1, 8));
    }
}
