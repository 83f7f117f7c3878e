//! Writing a planned checkpoint with several threads.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k3_formats::synth::{ShardLayout, SynthValues, config_json, shards, write_shard_index};
use k3_io::{CONFIG_NAME, INDEX_NAME};

use super::image::{self, PIECE_BYTES, ShardImage};
use super::plan::{Content, SynthPlan};
use super::shard_file::{ShardFile, disk_usage_bytes};
use super::target::Target;
use crate::aligned::AlignedBuffer;
use crate::error::PackError;

/// What a finished run has to tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SynthSummary {
    /// Bytes of headers and values written to the shards.
    pub written_bytes: u64,
    /// Space all files take on disk.
    pub disk_bytes: u64,
    /// Wall time, until everything was on the disk.
    pub seconds: f64,
    /// CPU time spent generating values, over all threads.
    pub generating_seconds: f64,
    /// Whether every write bypassed the page cache.
    pub direct: bool,
}

/// Writes the checkpoint. `on_bytes` hears of every piece written, from any
/// thread; once `cancel` is set the run ends within a piece per thread.
///
/// # Errors
///
/// What is in the way of the target, what the system reports about it, and
/// [`PackError::Interrupted`]. Nothing is left behind then.
pub fn write(
    plan: &SynthPlan,
    cancel: &AtomicBool,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<SynthSummary, PackError> {
    let settings = plan.settings();
    let started = Instant::now();
    let target = Target::create(&settings.out, settings.replace)?;
    let totals = write_shards(plan, target.directory(), cancel, on_bytes)?;
    write_small_files(plan, target.directory())?;
    if cancel.load(Ordering::Relaxed) {
        return Err(PackError::Interrupted);
    }
    let disk_bytes = disk_bytes(target.directory())
        .map_err(PackError::writing(target.directory(), "ask for the size"))?;
    target.commit()?;
    Ok(SynthSummary {
        written_bytes: totals.written_bytes,
        disk_bytes,
        seconds: started.elapsed().as_secs_f64(),
        generating_seconds: totals.generating.as_secs_f64(),
        direct: totals.buffered_shards == 0,
    })
}

fn write_shards(
    plan: &SynthPlan,
    directory: &Path,
    cancel: &AtomicBool,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<Totals, PackError> {
    let settings = plan.settings();
    let run = Run {
        values: SynthValues::new(settings.seed),
        queue: Mutex::new(Queue {
            layouts: Box::new(shards(&settings.config, settings.vision)),
            current: None,
        }),
        directory,
        content: settings.content,
        cancel,
        failed: AtomicBool::new(false),
        on_bytes,
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.threads.get())
            .map(|_| scope.spawn(|| run.work()))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                let result = thread.join();
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .fold(Ok(Totals::default()), merge)
    })
}

/// Sums of one thread, or of all.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    written_bytes: u64,
    generating: Duration,
    buffered_shards: usize,
}

/// Sums, or the error that explains more: an interruption is what others see
/// of a thread's failure.
fn merge(a: Result<Totals, PackError>, b: Result<Totals, PackError>) -> Result<Totals, PackError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(Totals {
            written_bytes: a.written_bytes + b.written_bytes,
            generating: a.generating + b.generating,
            buffered_shards: a.buffered_shards + b.buffered_shards,
        }),
        (Err(PackError::Interrupted), Err(error)) => Err(error),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// What threads share.
struct Run<'a> {
    values: SynthValues,
    queue: Mutex<Queue<'a>>,
    directory: &'a Path,
    content: Content,
    cancel: &'a AtomicBool,
    /// A thread has met an error: the others stop.
    failed: AtomicBool,
    on_bytes: &'a (dyn Fn(u64) + Sync),
}

/// A range of a shard to be generated and written.
type Piece = (Arc<ShardFile>, Range<u64>);

/// Shards not begun, and what is left of the one that is.
struct Queue<'a> {
    layouts: Box<dyn Iterator<Item = ShardLayout> + Send + 'a>,
    current: Option<(Arc<ShardFile>, std::vec::IntoIter<Range<u64>>)>,
}

impl Run<'_> {
    /// Takes pieces until there are none.
    fn work(&self) -> Result<Totals, PackError> {
        let result = self.pieces();
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn pieces(&self) -> Result<Totals, PackError> {
        let mut totals = Totals::default();
        let mut buffer = AlignedBuffer::new(PIECE_BYTES);
        while let Some((shard, range)) = self.next()? {
            let piece = shard.write(&self.values, &range, &mut buffer)?;
            totals.written_bytes += image::range_bytes(&range);
            totals.generating += piece.generating;
            totals.buffered_shards += usize::from(piece.is_direct == Some(false));
            (self.on_bytes)(image::range_bytes(&range));
        }
        Ok(totals)
    }

    /// The next piece in the order of the files.
    fn next(&self) -> Result<Option<Piece>, PackError> {
        // A thread that panicked in here ends the run anyway.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.cancel.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
                return Err(PackError::Interrupted);
            }
            if let Some((shard, ranges)) = &mut queue.current
                && let Some(range) = ranges.next()
            {
                return Ok(Some((Arc::clone(shard), range)));
            }
            queue.current = None;
            let Some(layout) = queue.layouts.next() else {
                return Ok(None);
            };
            let image = ShardImage::new(layout);
            let ranges = image.ranges(self.content);
            let shard = ShardFile::create(self.directory, image, self.content, &ranges)?;
            queue.current = Some((Arc::new(shard), ranges.into_iter()));
        }
    }
}

/// The index, and last the configuration, without which nothing is a model.
fn write_small_files(plan: &SynthPlan, directory: &Path) -> Result<(), PackError> {
    let settings = plan.settings();
    let path = directory.join(INDEX_NAME);
    let index = File::create_new(&path).and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write_shard_index(&settings.config, settings.vision, &mut out)?;
        out.into_inner()?.sync_all()
    });
    index.map_err(PackError::writing(path, "write"))?;
    let path = directory.join(CONFIG_NAME);
    let config = File::create_new(&path).and_then(|mut file| {
        file.write_all(config_json(&settings.config, settings.vision).as_bytes())?;
        file.sync_all()
    });
    config.map_err(PackError::writing(path, "write"))
}

/// Space the files of a directory take.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in directory.read_dir()? {
        sum += disk_usage_bytes(&entry?.metadata()?);
    }
    Ok(sum)
}
