//! What to do after each system call of one piece: short reads, interruptions,
//! errors that pass and errors that do not. No I/O here; both engines run it.

use super::layout::PiecePlan;
use crate::units::{file, memory};

/// Tries of a read that reports an I/O error: the first and three more.
pub(crate) const EIO_TRIES_MAX: u32 = 4;
/// Tries of a read that the system could not start for want of resources.
pub(crate) const AGAIN_TRIES_MAX: u32 = 64;
/// Interruptions of one piece before it counts as failed: far beyond what
/// signals do, but not endless.
pub(crate) const INTERRUPTIONS_MAX: u32 = 1000;

/// The next system call of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Through the page cache, whatever the file's mode.
    pub(crate) buffered: bool,
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Where in the piece's buffer it goes.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// What the answer to a step means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The payload is there.
    Done,
    /// Take the next step; the read was short.
    Continue,
    /// Take the next step; the last one failed in a way that can pass.
    Retry {
        /// Whether to leave the system a moment first.
        pause: bool,
    },
    /// A read at this offset brought nothing: the file ends there or before.
    Truncated { at: u64 },
    /// It failed for good.
    Failed { errno: i32, tries: u32 },
}

/// A piece on its way.
#[derive(Debug)]
pub(crate) struct Transfer {
    offset: u64,
    bytes: usize,
    /// Bytes of the window that must arrive: the end of its payload.
    needed: usize,
    /// Alignment of direct steps; `None` once buffered.
    direct: Option<usize>,
    done: usize,
    io_errors: u32,
    refusals: u32,
    interruptions: u32,
}

impl Transfer {
    pub(crate) fn new(plan: &PiecePlan) -> Self {
        Self {
            offset: plan.offset,
            bytes: plan.bytes,
            needed: plan.payload_start + plan.payload_bytes,
            direct: plan.direct.map(|alignment| memory(alignment.offset_bytes)),
            done: 0,
            io_errors: 0,
            refusals: 0,
            interruptions: 0,
        }
    }

    /// The call to make now.
    pub(crate) fn step(&self) -> Step {
        // A direct read covers whole units; a buffered one just what is needed.
        let end = if self.direct.is_some() {
            self.bytes
        } else {
            self.needed
        };
        debug_assert!(self.done < end);
        Step {
            buffered: self.direct.is_none(),
            offset: self.offset + file(self.done),
            at: self.done,
            bytes: end - self.done,
        }
    }

    /// Whether direct reads were given up for this piece.
    pub(crate) fn is_buffered(&self) -> bool {
        self.direct.is_none()
    }

    /// Takes the answer to the last step: bytes read, or an errno.
    pub(crate) fn advance(&mut self, answer: Result<usize, i32>) -> Verdict {
        match answer {
            Ok(0) => Verdict::Truncated {
                at: self.offset + file(self.done),
            },
            Ok(count) => {
                self.done += count;
                debug_assert!(self.done <= self.bytes);
                if self.done >= self.needed {
                    return Verdict::Done;
                }
                // Direct reads stop at odd places only at the end of the file
                // or under odd file systems. Buffered reads can go on from
                // anywhere and will tell which of the two it is.
                if self
                    .direct
                    .is_some_and(|unit| !self.done.is_multiple_of(unit))
                {
                    self.direct = None;
                }
                Verdict::Continue
            }
            Err(errno) => self.failed(errno),
        }
    }

    fn failed(&mut self, errno: i32) -> Verdict {
        let (tries, tries_max, pause) = match errno {
            libc::EINTR => (&mut self.interruptions, INTERRUPTIONS_MAX, false),
            libc::EAGAIN | libc::ENOMEM => (&mut self.refusals, AGAIN_TRIES_MAX, true),
            libc::EIO => (&mut self.io_errors, EIO_TRIES_MAX, true),
            libc::EINVAL | libc::EOPNOTSUPP if self.direct.is_some() => {
                self.direct = None;
                return Verdict::Retry { pause: false };
            }
            _ => return Verdict::Failed { errno, tries: 1 },
        };
        *tries += 1;
        if *tries < tries_max {
            Verdict::Retry { pause }
        } else {
            Verdict::Failed {
                errno,
                tries: *tries,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::FileId;
    use crate::window::DioAlignment;
    use proptest::prelude::*;

    fn plan(start: usize, wanted: usize, direct: bool) -> PiecePlan {
        let bytes = if direct {
            (start + wanted).next_multiple_of(4096)
        } else {
            wanted
        };
        PiecePlan {
            file: FileId(0),
            direct: direct.then_some(DioAlignment::FLOOR),
            offset: 1 << 33,
            bytes,
            payload_start: if direct { start } else { 0 },
            payload_bytes: wanted,
            landing: 0,
            bounce: false,
        }
    }

    #[test]
    fn the_tail_of_a_file_is_enough() {
        let mut transfer = Transfer::new(&plan(10, 100, true));
        assert_eq!(transfer.step().bytes, 4096);
        assert_eq!(transfer.advance(Ok(110)), Verdict::Done);
        let mut transfer = Transfer::new(&plan(10, 100, true));
        assert_eq!(transfer.advance(Ok(109)), Verdict::Continue);
        assert!(transfer.step().buffered);
        assert_eq!(transfer.step().bytes, 1, "just what is missing");
        let at = (1 << 33) + 109;
        assert_eq!(transfer.advance(Ok(0)), Verdict::Truncated { at });
    }

    #[test]
    fn an_aligned_short_read_stays_direct() {
        let mut transfer = Transfer::new(&plan(0, 20_000, true));
        assert_eq!(transfer.advance(Ok(8192)), Verdict::Continue);
        let step = transfer.step();
        assert_eq!((step.buffered, step.at, step.bytes), (false, 8192, 12_288));
        assert_eq!(step.offset, (1 << 33) + 8192);
    }

    #[test]
    fn errors_are_retried_by_kind_and_number() {
        for (errno, retries) in [
            (libc::EIO, EIO_TRIES_MAX - 1),
            (libc::EAGAIN, AGAIN_TRIES_MAX - 1),
            (libc::EINTR, INTERRUPTIONS_MAX - 1),
            (libc::EBADF, 0),
            (libc::ENXIO, 0),
            (libc::ESTALE, 0),
            (libc::EFAULT, 0),
        ] {
            let mut transfer = Transfer::new(&plan(0, 1, true));
            for _ in 0..retries {
                assert!(matches!(
                    transfer.advance(Err(errno)),
                    Verdict::Retry { .. }
                ));
            }
            let tries = retries + 1;
            assert_eq!(
                transfer.advance(Err(errno)),
                Verdict::Failed { errno, tries }
            );
        }
    }

    #[test]
    fn a_refused_direct_read_goes_through_the_cache_once() {
        let mut transfer = Transfer::new(&plan(5, 10, true));
        assert_eq!(
            transfer.advance(Err(libc::EINVAL)),
            Verdict::Retry { pause: false }
        );
        assert!(transfer.step().buffered);
        assert_eq!(
            transfer.advance(Err(libc::EINVAL)),
            Verdict::Failed {
                errno: libc::EINVAL,
                tries: 1
            }
        );
    }

    proptest! {
        /// Whatever a file brings, step by step, it ends up whole or as an
        /// error, in a bounded number of steps, without gap or overlap.
        #[test]
        fn any_sequence_of_answers_ends_whole_or_in_error(
            start in 0_usize..4096,
            wanted in 1_usize..100_000,
            direct: bool,
            ending in 0_usize..4,
            anywhere: prop::sample::Index,
            answers in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..64),
        ) {
            let plan = plan(start, wanted, direct);
            let needed = plan.payload_start + plan.payload_bytes;
            // Where the file ends: behind the window, at the end of the payload
            // or one byte before, or anywhere, before the window too.
            let window_end = plan.offset + file(plan.bytes);
            let file_bytes = match ending {
                0 => window_end,
                1 | 2 => plan.offset + file(needed + 1 - ending),
                _ => window_end - file(anywhere.index(2 * plan.bytes + 1)),
            };
            // How much of the window the file holds.
            let held = memory(file_bytes.saturating_sub(plan.offset));
            let mut transfer = Transfer::new(&plan);
            let mut have = 0;
            for round in 0..2_000_000 {
                let step = transfer.step();
                prop_assert_eq!(step.at, have);
                prop_assert_eq!(step.offset, plan.offset + file(have));
                prop_assert!(step.at + step.bytes <= plan.bytes);
                if !step.buffered {
                    prop_assert!(step.offset.is_multiple_of(4096) && step.bytes.is_multiple_of(4096));
                }
                let (index, kind) = &answers[round % answers.len()];
                let available = held.saturating_sub(have).min(step.bytes);
                let answer = match kind {
                    0 => Err(libc::EINTR),
                    1 => Err(libc::EIO),
                    2 if available > 0 => Ok(index.index(available) + 1),
                    3 if available > 0 => Ok(1),
                    _ => Ok(available),
                };
                if let Ok(count) = answer {
                    have += count;
                }
                match transfer.advance(answer) {
                    Verdict::Done => {
                        prop_assert!(have >= needed);
                        return Ok(());
                    }
                    Verdict::Truncated { at } => {
                        prop_assert!(held < needed && have == held);
                        // Where reading stopped is no length of the file.
                        prop_assert_eq!(at, file_bytes.max(plan.offset));
                        return Ok(());
                    }
                    Verdict::Failed { errno, .. } => {
                        prop_assert!(errno == libc::EIO || errno == libc::EINTR);
                        return Ok(());
                    }
                    Verdict::Continue | Verdict::Retry { .. } => prop_assert!(have < needed),
                }
            }
            prop_assert!(false, "no end");
        }
    }
}
