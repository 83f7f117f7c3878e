//! Static splits of independent outputs over workers, without unsafe code.
//!
//! Every split gives each worker one contiguous piece of the output. A piece
//! is computed by one worker from start to end, so neither the number of
//! workers nor their timing can touch a bit of the result.

use std::ops::Range;
use std::sync::Mutex;

use arrayvec::ArrayVec;

use crate::phase::Phase;

/// Upper bound of workers in one pool; larger pools leave the rest idle.
pub const WORKERS_MAX: usize = 256;

/// Threads that run one body each and wait for one another.
pub trait Workers: Sync {
    /// How many workers there are, at least 1 and at most [`WORKERS_MAX`].
    fn count(&self) -> usize;

    /// Runs `body(index)` once for every index below `tasks` (at most
    /// [`Workers::count`]) and returns when all have finished. A panic in a
    /// body is passed on to the caller.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync));

    /// Told by the thread that drives a sweep that `phase` begins, which goes
    /// over `weight_bytes` of weights. Does nothing unless somebody measures.
    fn phase(&self, phase: Phase, weight_bytes: usize) {
        let _ = (phase, weight_bytes);
    }

    /// Smallest job, in multiply-adds, worth handing out: below it, waking the
    /// others costs more than they save.
    fn work_min(&self) -> usize {
        WORK_MIN
    }
}

/// Default of [`Workers::work_min`]: some ten microseconds of arithmetic.
pub const WORK_MIN: usize = 1 << 15;

/// `workers` for a job of `work` multiply-adds, or the calling thread alone
/// for a small one. Who computes a piece never touches its bits.
pub fn worth(workers: &dyn Workers, work: usize) -> &dyn Workers {
    if work < workers.work_min() {
        &Inline
    } else {
        workers
    }
}

/// The calling thread alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Workers for Inline {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(body);
    }
}

/// Pieces of one job, one per worker.
pub type Pieces<P> = ArrayVec<P, WORKERS_MAX>;

/// Cuts `0..units` into at most `workers` consecutive ranges whose lengths
/// differ by at most one. No range is empty.
pub fn partition(units: usize, workers: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = workers.clamp(1, WORKERS_MAX).min(units);
    (0..parts).map(move |part| units * part / parts..units * (part + 1) / parts)
}

/// Takes the first `count` elements off `slice`.
///
/// # Panics
///
/// If fewer are left.
pub fn take_front<'a, T>(slice: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    slice
        .split_off_mut(..count)
        .expect("the slice was sized for its units")
}

/// Runs `body` on every piece, each on its own worker.
pub fn for_each_piece<P: Send>(workers: &dyn Workers, pieces: Pieces<P>, body: impl Fn(P) + Sync) {
    if pieces.len() <= 1 {
        pieces.into_iter().for_each(body);
        return;
    }
    let slots: Pieces<Mutex<Option<P>>> = pieces
        .into_iter()
        .map(|piece| Mutex::new(Some(piece)))
        .collect();
    workers.run(slots.len(), &|index| {
        let piece = slots[index]
            .lock()
            .expect("no body has run in this slot")
            .take();
        body(piece.expect("each index runs once"));
    });
}

/// Splits `out`, which holds whole units of `unit` elements, over the workers:
/// `body(first_unit, piece)` fills the piece that starts at `first_unit`.
///
/// # Panics
///
/// If `out` is not a whole number of units.
pub fn split_units<T: Send>(
    workers: &dyn Workers,
    out: &mut [T],
    unit: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(
        unit > 0 && out.len().is_multiple_of(unit),
        "whole units only"
    );
    let units = out.len() / unit;
    let mut rest = out;
    let pieces = partition(units, workers.count())
        .map(|range| (range.start, take_front(&mut rest, range.len() * unit)))
        .collect();
    for_each_piece(workers, pieces, |(first, piece): (usize, &mut [T])| {
        body(first, piece)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs tasks on scoped threads, so that pieces really cross threads.
    struct Scoped(usize);

    impl Workers for Scoped {
        fn count(&self) -> usize {
            self.0
        }

        fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                for index in 0..tasks {
                    scope.spawn(move || body(index));
                }
            });
        }
    }

    #[test]
    fn partition_covers_every_unit_once() {
        for units in 0..40 {
            for workers in 1..9 {
                let ranges: Vec<_> = partition(units, workers).collect();
                let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..units).collect::<Vec<_>>());
                assert!(ranges.len() <= workers && ranges.iter().all(|range| !range.is_empty()));
                let lengths: Vec<_> = ranges.iter().map(ExactSizeIterator::len).collect();
                if let (Some(min), Some(max)) = (lengths.iter().min(), lengths.iter().max()) {
                    assert!(max - min <= 1);
                }
            }
        }
    }

    #[test]
    fn split_gives_each_piece_its_first_unit() {
        for workers in [1, 2, 3, 7] {
            let mut out = vec![0; 33];
            split_units(&Scoped(workers), &mut out, 3, |first, piece| {
                for (index, value) in piece.iter_mut().enumerate() {
                    *value = first * 3 + index;
                }
            });
            assert_eq!(out, (0..33).collect::<Vec<_>>());
        }
    }
}
