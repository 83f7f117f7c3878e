//! Tables and pools, with and without a file.

use std::collections::HashMap;
use std::sync::Mutex;

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
    to.copy_from(&from, 65).unwrap();
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

/// A file in memory, which may refuse.
#[derive(Debug, Default)]
struct Shelf {
    parts: Mutex<HashMap<(u32, usize), Vec<f32>>>,
    writes_left: Mutex<Option<usize>>,
}

impl PageStore for Shelf {
    fn write(&self, place: u32, part: usize, values: &[f32]) -> Result<(), StoreError> {
        if let Some(left) = &mut *self.writes_left.lock().unwrap() {
            let Some(fewer) = left.checked_sub(1) else {
                return Err(StoreError(Arc::new(std::io::Error::other("no room"))));
            };
            *left = fewer;
        }
        let mut parts = self.parts.lock().unwrap();
        parts.insert((place, part), values.to_vec());
        Ok(())
    }

    fn read(&self, place: u32, part: usize, values: &mut [f32]) -> Result<(), StoreError> {
        values.copy_from_slice(&self.parts.lock().unwrap()[&(place, part)]);
        Ok(())
    }
}

/// A pool whose sequences have `memory_pages` pages in memory each.
fn spilling(memory_pages: usize, place_count: usize) -> (PagePool, Arc<Shelf>) {
    let store = Arc::new(Shelf::default());
    let mut pool = PagePool::new(2 * memory_pages, 2 * PAGE_POSITIONS);
    pool.spill_to(Spill {
        store: Arc::<Shelf>::clone(&store),
        place_count,
        memory_pages,
        part_len: PAGE_POSITIONS,
    });
    (pool, store)
}

/// Writes `position` into both parts, after room was made for it.
fn push(table: &mut PageTable, position: usize) {
    table.make_room(position, 1).unwrap();
    for part in 0..2 {
        let range = part * PAGE_POSITIONS..(part + 1) * PAGE_POSITIONS;
        let values = table.part_mut(position / PAGE_POSITIONS, range);
        values[position % PAGE_POSITIONS] = (2 * position + part) as f32;
    }
}

/// The first `positions` values of `part`, wherever they lie.
fn values(table: &PageTable, part: usize, positions: usize) -> Vec<f32> {
    let range = part * PAGE_POSITIONS..(part + 1) * PAGE_POSITIONS;
    let mut room = Vec::new();
    let pages = (0..pages_for(positions)).flat_map(|page| {
        let values = table.read_part(page, range.clone(), &mut room);
        values.unwrap().to_vec()
    });
    pages.take(positions).collect()
}

#[test]
fn the_oldest_pages_leave_and_are_there_all_the_same() {
    for memory_pages in 1..=4 {
        let (mut pool, store) = spilling(memory_pages, 9);
        let [mut table, mut copy] = [PageTable::default(), PageTable::default()];
        let positions = 4 * PAGE_POSITIONS + 3;
        assert_eq!(pool.split(positions), [memory_pages, 5 - memory_pages]);
        assert_eq!(pool.split(1), [1, 0]);
        table.reserve(positions, &mut pool).unwrap();
        assert_eq!(table.page_count(), 5);
        for position in 0..positions {
            push(&mut table, position);
            let outside = pages_for(position + 1).saturating_sub(memory_pages);
            assert_eq!(table.outside().len(), outside, "{position}");
        }
        let want = |part: usize| (0..positions).map(move |at| (2 * at + part) as f32);
        for part in 0..2 {
            assert!(values(&table, part, positions).into_iter().eq(want(part)));
        }
        assert_eq!(store.parts.lock().unwrap().len(), 2 * table.outside().len());
        copy.reserve(positions, &mut pool).unwrap();
        copy.copy_from(&table, positions - 64).unwrap();
        for part in 0..2 {
            let got = values(&copy, part, positions - 64);
            assert!(got.into_iter().eq(want(part).take(positions - 64)));
        }
        assert!(
            table
                .outside()
                .iter()
                .all(|place| !copy.outside().contains(place))
        );
        for table in [&mut table, &mut copy] {
            table.clear();
            assert_eq!((table.outside().len(), table.page_count()), (0, 5));
            table.release(&mut pool);
        }
        let (free, places) = (pool.free_count(), pool.free_place_count());
        assert_eq!((free, places), (2 * memory_pages, 9));
    }
}

#[test]
fn a_page_that_could_not_be_written_stays() {
    let (mut pool, store) = spilling(2, 3);
    let mut table = PageTable::default();
    table.reserve(5 * PAGE_POSITIONS, &mut pool).unwrap();
    for position in 0..2 * PAGE_POSITIONS {
        push(&mut table, position);
    }
    *store.writes_left.lock().unwrap() = Some(1);
    table.make_room(2 * PAGE_POSITIONS, 1).unwrap_err();
    assert!(table.outside().is_empty());
    *store.writes_left.lock().unwrap() = None;
    push(&mut table, 2 * PAGE_POSITIONS);
    let got = values(&table, 1, 2 * PAGE_POSITIONS + 1);
    assert!(
        got.into_iter()
            .eq((0..=2 * PAGE_POSITIONS).map(|at| (2 * at + 1) as f32))
    );
    assert_eq!(pool.free_place_count(), 0);
    // Memory is free, places are not.
    let mut other = PageTable::default();
    assert!(pool.has_room(2 * PAGE_POSITIONS, 1) && !pool.has_room(2 * PAGE_POSITIONS, 2));
    assert!(!pool.has_room(2 * PAGE_POSITIONS + 1, 1));
    let short = other
        .reserve(2 * PAGE_POSITIONS + 1, &mut pool)
        .unwrap_err();
    assert_eq!(short, PagesShort { needed: 1, free: 0 });
    assert_eq!((other.page_count(), pool.free_count()), (0, 2));
}

#[test]
#[should_panic(expected = "stays in memory")]
fn a_sweep_over_more_pages_than_are_in_memory_is_no_sweep() {
    let (mut pool, _) = spilling(1, 3);
    let mut table = PageTable::default();
    table.reserve(2 * PAGE_POSITIONS, &mut pool).unwrap();
    let _ = table.make_room(PAGE_POSITIONS - 1, 2);
}
