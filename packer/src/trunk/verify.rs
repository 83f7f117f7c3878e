//! A packed trunk against the checkpoint it was packed from.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use k3_config::Bytes;
use k3_formats::trunk::{Codec, PackedBlock, bf16_x3};
use k3_formats::{PackedTrunk, ReadAt};
use k3_io::{FileReader, TrunkFiles};
use serde::Serialize;

use super::error::TrunkError;
use super::source::{TrunkSource, length, shape};
use crate::error::PackError;

/// A trunk that agrees with its checkpoint in every bit.
#[derive(Debug, Clone, Serialize)]
pub struct Verified {
    /// Blocks that were decoded and compared.
    pub blocks: u32,
    /// Bytes of the checkpoint that were compared.
    pub raw_bytes: u64,
    /// Bytes of the trunk that were read: blocks, padded to whole pages.
    pub extent_bytes: u64,
    /// Wall time.
    pub seconds: f64,
}

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} blocks agree with the checkpoint\n  decoded  {} to {}\n  time     {:.1} s: {:.2} \
             GB/s of raw",
            self.blocks,
            Bytes(self.extent_bytes),
            Bytes(self.raw_bytes),
            self.seconds,
            self.raw_bytes as f64 / self.seconds.max(1e-9) / 1e9
        )
    }
}

/// Reads and decodes every block of the trunk in `directories`, and compares its
/// checksum with the table and its bytes with `source`, cut as the trunk is.
/// `on_bytes` hears of each block, from any thread.
///
/// # Errors
///
/// Files that are no whole trunk of this checkpoint, and [`TrunkError::Differs`]
/// with the first place and the number of blocks.
pub fn verify(
    source: TrunkSource,
    directories: &[PathBuf],
    threads: NonZeroUsize,
    cancel: &AtomicBool,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<Verified, PackError> {
    let started = Instant::now();
    let files = match TrunkFiles::open(directories)? {
        TrunkFiles::Packed(packed) => packed,
        TrunkFiles::Foreign { json, .. } => {
            let path = json.label().to_owned();
            return Err(TrunkError::ForeignTrunk { path }.into());
        }
    };
    let trunk = files.open(&source.identity())?;
    let check = Check {
        source: source.recut(trunk.block_bytes()),
        trunk,
        files: files.files,
        cancel,
        on_bytes,
        next: AtomicU32::new(0),
        differences: Mutex::new(Vec::new()),
    };
    let checked = check.run(threads.get());
    let blocks = check.trunk.blocks();
    let total = u32::try_from(blocks.len()).expect("a table is capped");
    let differences = check.differences.into_inner();
    let mut differences = differences.unwrap_or_else(PoisonError::into_inner);
    // A table that is shorter than the sweep has nothing wrong in itself.
    let expected = check.source.blocks().len();
    if blocks.len() != expected {
        let path = check.files[check.trunk.file_index(0)].label().display();
        let found = blocks.len();
        let text = format!("{path}: the table has {found} blocks, the checkpoint {expected}");
        differences.push((u32::MAX, text));
    }
    differences.sort();
    let count = u32::try_from(differences.len()).expect("no more than blocks");
    if checked < total && cancel.load(Ordering::Relaxed) {
        return Err(TrunkError::CheckStopped {
            checked,
            total,
            differences: count,
        }
        .into());
    }
    let all: Vec<String> = differences.into_iter().map(|(_, text)| text).collect();
    if let Some(first) = all.first() {
        return Err(TrunkError::Differs {
            differences: count,
            total: total.max(count),
            first: first.clone(),
            all,
        }
        .into());
    }
    Ok(Verified {
        blocks: total,
        raw_bytes: blocks.iter().map(|block| block.raw_bytes).sum(),
        extent_bytes: blocks.iter().map(PackedBlock::extent_bytes).sum(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// What threads share.
struct Check<'a> {
    source: TrunkSource,
    trunk: PackedTrunk,
    files: Vec<FileReader>,
    cancel: &'a AtomicBool,
    on_bytes: &'a (dyn Fn(u64) + Sync),
    next: AtomicU32,
    /// Index of a block, and what is wrong with it.
    differences: Mutex<Vec<(u32, String)>>,
}

/// A thread's memory, as large as the largest block it has met.
#[derive(Default)]
struct Buffers {
    extent: Vec<u8>,
    decoded: Vec<u8>,
    expected: Vec<u8>,
}

impl Check<'_> {
    /// Compares all blocks with some threads; returns how many were compared.
    fn run(&self, threads: usize) -> u32 {
        let largest = self
            .trunk
            .blocks()
            .iter()
            .map(|block| block.raw_bytes)
            .max();
        let largest = usize::try_from(largest.unwrap_or(1)).unwrap_or(usize::MAX);
        // The same memory as packing takes.
        let threads = threads
            .min((320 << 20) / largest.saturating_mul(3).max(1))
            .max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| self.compare()))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    let result = thread.join();
                    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .sum()
        })
    }

    fn compare(&self) -> u32 {
        let mut buffers = Buffers::default();
        let mut checked = 0;
        while !self.cancel.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(block) = self.trunk.blocks().get(index as usize) else {
                break;
            };
            if let Err(difference) = self.block(index, block, &mut buffers) {
                let differences = self.differences.lock();
                let mut differences = differences.unwrap_or_else(PoisonError::into_inner);
                differences.push((index, difference));
            }
            checked += 1;
            (self.on_bytes)(block.raw_bytes);
        }
        checked
    }

    /// Compares one block; the text says what differs and where.
    fn block(&self, index: u32, packed: &PackedBlock, buffers: &mut Buffers) -> Result<(), String> {
        let file = &self.files[self.trunk.file_index(packed.stripe)];
        let place = format!("{}: offset {}", file.label().display(), packed.offset);
        if !self.source.matches(index as usize, packed) {
            return Err(format!(
                "{place}: block {index} is of other rows than the checkpoint's sweep has there"
            ));
        }
        let block = &self.source.blocks()[index as usize];
        let Buffers {
            extent,
            decoded,
            expected,
        } = buffers;
        let extent_bytes = usize::try_from(packed.extent_bytes()).expect("below its raw size");
        extent.resize(extent_bytes, 0);
        file.read_exact_at(packed.offset, extent)
            .map_err(|error| error.to_string())?;
        file.drop_cache(packed.offset, extent.len() as u64);
        self.trunk
            .check_block(index, extent, file.label())
            .map_err(|error| error.to_string())?;
        expected.resize(length(block), 0);
        self.source
            .read(block, expected)
            .map_err(|error| error.to_string())?;
        let stored = usize::try_from(packed.stored_bytes).expect("below its raw size");
        let payload = &extent[..stored];
        let found = match packed.codec {
            Codec::Raw => payload,
            Codec::Bf16X3 => {
                decoded.resize(length(block), 0);
                let [rows, cols] = shape(block);
                bf16_x3::decode(payload, rows, cols, decoded)
                    .map_err(|error| format!("{place}: block {index}: {error}"))?;
                decoded
            }
        };
        let differs = found.iter().zip(&*expected).position(|(a, b)| a != b);
        match differs {
            None => Ok(()),
            Some(at) => Err(format!(
                "{place}: block {index} ({}): byte {at} is {:#04x}, but {} has {:#04x} at offset {}",
                packed.codec,
                found[at],
                self.source.shard(block).label().display(),
                expected[at],
                block.offset + at as u64
            )),
        }
    }
}
