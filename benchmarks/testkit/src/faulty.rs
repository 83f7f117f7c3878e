//! Files that misbehave, for tests of error paths.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k3_formats::{FormatError, ReadAt};

/// One way for a file to misbehave. Offsets are bytes from its start.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The file says it has only this many bytes.
    Truncated {
        /// Bytes left.
        len_bytes: u64,
    },
    /// The file keeps its announced length, but was cut to this many bytes
    /// after it was opened.
    CutWhileOpen {
        /// Bytes left.
        len_bytes: u64,
    },
    /// Any read that touches this byte is refused by the system.
    ErrorAt {
        /// The byte.
        offset: u64,
    },
    /// This read, counted from 0, is refused; later ones are not.
    ErrorOnRead {
        /// Which read.
        read: u64,
    },
    /// Every read takes at least this long.
    Delay {
        /// The wait before each read.
        wait: Duration,
    },
    /// The bits of `mask` are inverted in one byte.
    BitFlip {
        /// The byte.
        offset: u64,
        /// Bits to invert.
        mask: u8,
    },
}

/// Another file with faults added, in the order they were added.
#[derive(Debug)]
pub struct FaultyReadAt<R> {
    inner: R,
    faults: Vec<Fault>,
    reads: AtomicU64,
}

impl<R: ReadAt> FaultyReadAt<R> {
    /// The file without a fault yet.
    #[must_use]
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            faults: Vec::new(),
            reads: AtomicU64::new(0),
        }
    }

    /// Adds a fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Reads asked for so far, refused ones included.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn refused(&self, offset: u64, wanted_bytes: u64) -> FormatError {
        FormatError::Read {
            path: self.inner.label().to_owned(),
            offset,
            wanted_bytes,
            source: io::Error::other("injected fault"),
        }
    }

    fn short(&self, offset: u64, wanted_bytes: u64, len_bytes: u64) -> FormatError {
        FormatError::ShortRead {
            path: self.inner.label().to_owned(),
            offset,
            wanted_bytes,
            got_bytes: len_bytes.saturating_sub(offset),
        }
    }
}

impl<R: ReadAt> ReadAt for FaultyReadAt<R> {
    fn label(&self) -> &Path {
        self.inner.label()
    }

    fn len_bytes(&self) -> u64 {
        let truncated = |fault: &Fault| match fault {
            Fault::Truncated { len_bytes } => Some(*len_bytes),
            _ => None,
        };
        let shortest = self.faults.iter().filter_map(truncated).min();
        shortest.unwrap_or(u64::MAX).min(self.inner.len_bytes())
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let wanted = buffer.len() as u64;
        let end = offset.saturating_add(wanted);
        for fault in &self.faults {
            match *fault {
                Fault::Truncated { len_bytes } | Fault::CutWhileOpen { len_bytes }
                    if end > len_bytes =>
                {
                    return Err(self.short(offset, wanted, len_bytes));
                }
                Fault::ErrorAt { offset: bad } if (offset..end).contains(&bad) => {
                    return Err(self.refused(offset, wanted));
                }
                Fault::ErrorOnRead { read: bad } if bad == read => {
                    return Err(self.refused(offset, wanted));
                }
                Fault::Delay { wait } => std::thread::sleep(wait),
                _ => {}
            }
        }
        self.inner.read_exact_at(offset, buffer)?;
        for fault in &self.faults {
            if let Fault::BitFlip { offset: bad, mask } = *fault
                && (offset..end).contains(&bad)
            {
                let place = usize::try_from(bad - offset).expect("inside the buffer");
                buffer[place] ^= mask;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use k3_formats::MemoryFile;

    use super::*;

    fn file() -> FaultyReadAt<MemoryFile> {
        FaultyReadAt::new(MemoryFile::new("ten", (0..10).collect()))
    }

    fn read(file: &impl ReadAt, offset: u64, len: usize) -> Result<Vec<u8>, FormatError> {
        let mut buffer = vec![0; len];
        file.read_exact_at(offset, &mut buffer).map(|()| buffer)
    }

    #[test]
    fn without_faults_it_is_the_file() {
        let file = file();
        assert_eq!(file.len_bytes(), 10);
        assert_eq!(read(&file, 7, 3).unwrap(), [7, 8, 9]);
        assert_eq!(file.read_count(), 1);
    }

    #[test]
    fn truncation_is_told_or_not() {
        let told = file().with(Fault::Truncated { len_bytes: 6 });
        let untold = file().with(Fault::CutWhileOpen { len_bytes: 6 });
        assert_eq!((told.len_bytes(), untold.len_bytes()), (6, 10));
        for file in [told, untold] {
            assert_eq!(read(&file, 4, 2).unwrap(), [4, 5]);
            let error = read(&file, 4, 3).unwrap_err();
            assert!(matches!(
                error,
                FormatError::ShortRead {
                    offset: 4,
                    wanted_bytes: 3,
                    got_bytes: 2,
                    ..
                }
            ));
        }
    }

    #[test]
    fn errors_hit_their_byte_or_their_read() {
        let at = file().with(Fault::ErrorAt { offset: 5 });
        assert!(read(&at, 0, 5).is_ok() && read(&at, 6, 4).is_ok());
        assert!(matches!(
            read(&at, 3, 3),
            Err(FormatError::Read { offset: 3, .. })
        ));
        let once = file().with(Fault::ErrorOnRead { read: 1 });
        let answers: Vec<bool> = (0..3).map(|_| read(&once, 0, 1).is_ok()).collect();
        assert_eq!(answers, [true, false, true]);
    }

    #[test]
    fn bits_flip_wherever_the_read_begins() {
        let flipped = file().with(Fault::BitFlip {
            offset: 5,
            mask: 0x81,
        });
        assert_eq!(read(&flipped, 5, 1).unwrap(), [0x84]);
        assert_eq!(read(&flipped, 4, 3).unwrap(), [4, 0x84, 6]);
        assert_eq!(read(&flipped, 6, 1).unwrap(), [6]);
    }

    #[test]
    fn delays_delay() {
        let wait = Duration::from_millis(5);
        let slow = file().with(Fault::Delay { wait });
        let start = Instant::now();
        read(&slow, 0, 1).unwrap();
        assert!(start.elapsed() >= wait);
    }
}
