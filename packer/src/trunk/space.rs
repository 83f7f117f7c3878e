//! Whether there is room, before anything is written.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use k3_formats::trunk::{CodecChoice, PAGE_BYTES, extent_bytes, table_bytes};
use nix::sys::statvfs::statvfs;

use super::encode::{Encoder, extent_max};
use super::error::TrunkError;
use super::plan::TrunkPlan;
use super::session::Session;
use super::source::{TrunkSource, length};
use crate::aligned::AlignedBuffer;
use crate::error::PackError;

/// Most space left free beside a trunk: a tenth of it, and no more than this.
pub const TRUNK_RESERVE_BYTES_MAX: u64 = 5_000_000_000;

/// Blocks encoded to learn how small the others will be.
const SAMPLE_BLOCKS: usize = 16;
/// The sample is off by less than this part of the size.
const SAMPLE_MARGIN_PARTS: u64 = 50;

/// What is still to be written to one disk.
struct Disk {
    path: PathBuf,
    /// As raw blocks: the most it can be.
    raw_bytes: u64,
    /// By a sample of packed ones.
    likely_bytes: u64,
}

/// Compares the free space of each disk with what is still to be written.
///
/// # Errors
///
/// [`TrunkError::NoSpace`] with the figures, and a sample that cannot be read.
pub(super) fn require(
    source: &TrunkSource,
    plan: &TrunkPlan,
    session: &Session,
) -> Result<(), PackError> {
    let all_raw = disks(source, plan, session, None)?;
    if short(&all_raw, plan, |disk| disk.raw_bytes)?.is_none() {
        return Ok(());
    }
    let is_estimate = plan.settings.codec == CodecChoice::Auto;
    let ratio = match is_estimate {
        true => Some(sample(source, session.done())?),
        false => None,
    };
    let likely = disks(source, plan, session, ratio)?;
    match short(&likely, plan, |disk| disk.likely_bytes)? {
        None => Ok(()),
        Some((disk, reserve_bytes, available_bytes)) => Err(TrunkError::NoSpace {
            path: disk.path.clone(),
            needed_bytes: disk.likely_bytes,
            is_estimate,
            reserve_bytes,
            available_bytes,
        }
        .into()),
    }
}

/// Encoded bytes for each million raw ones, of blocks from `done` on.
fn sample(source: &TrunkSource, done: u32) -> Result<u64, PackError> {
    let blocks = &source.blocks()[done as usize..];
    let packable: Vec<_> = blocks
        .iter()
        .filter(|block| block.may_be_packed())
        .collect();
    let step = packable.len().div_ceil(SAMPLE_BLOCKS).max(1);
    let (mut raw_bytes, mut stored_bytes) = (0_u64, 0_u64);
    let mut encoder = Encoder::new(source);
    let mut buffer = AlignedBuffer::new(extent_max(source));
    for block in packable.into_iter().step_by(step) {
        let (encoded, _) = encoder
            .encode(source, block, 0, CodecChoice::Auto, &mut buffer)
            .map_err(TrunkError::Source)?;
        raw_bytes += length(block) as u64;
        stored_bytes += extent_bytes(encoded.stored_bytes);
    }
    let millionths = u128::from(stored_bytes) * 1_000_000 / u128::from(raw_bytes.max(1));
    Ok(u64::try_from(millionths).unwrap_or(u64::MAX))
}

/// What goes to each disk; directories may share one.
fn disks(
    source: &TrunkSource,
    plan: &TrunkPlan,
    session: &Session,
    millionths: Option<u64>,
) -> Result<Vec<Disk>, PackError> {
    let mut raw = vec![PAGE_BYTES as u64; plan.set.weights.len()];
    raw[0] += table_bytes(source.block_count());
    let mut likely = raw.clone();
    let rest = session.done() as usize..;
    for (block, stripe) in source.blocks()[rest.clone()]
        .iter()
        .zip(&plan.stripes[rest])
    {
        let stripe = usize::from(*stripe);
        let extent = extent_bytes(block.bytes);
        raw[stripe] += extent;
        likely[stripe] += match millionths.filter(|_| block.may_be_packed()) {
            Some(parts) => scaled(extent, parts),
            None => extent,
        };
    }
    let mut disks: BTreeMap<u64, Disk> = BTreeMap::new();
    for ((path, raw), likely) in session.directories().iter().zip(raw).zip(likely) {
        let metadata = path
            .metadata()
            .map_err(TrunkError::writing(path, "ask for the disk"))?;
        let disk = disks.entry(metadata.dev()).or_insert_with(|| Disk {
            path: path.clone(),
            raw_bytes: 0,
            likely_bytes: 0,
        });
        disk.raw_bytes += raw;
        disk.likely_bytes += likely;
    }
    Ok(disks.into_values().collect())
}

/// `bytes` times a number of millionths, and a margin.
fn scaled(bytes: u64, millionths: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(millionths) / 1_000_000;
    let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
    scaled
        .saturating_add(scaled / SAMPLE_MARGIN_PARTS)
        .min(bytes)
}

/// The first disk that has too little, with the reserve and what is free.
fn short<'a>(
    disks: &'a [Disk],
    plan: &TrunkPlan,
    need: impl Fn(&Disk) -> u64,
) -> Result<Option<(&'a Disk, u64, u64)>, PackError> {
    for disk in disks {
        let found = statvfs(&disk.path)
            .map_err(|error| TrunkError::writing(&disk.path, "ask for the space")(error.into()))?;
        // Their types differ between platforms.
        #[allow(clippy::useless_conversion, reason = "u32 on some platforms")]
        let available =
            u64::from(found.blocks_available()).saturating_mul(found.fragment_size().into());
        let needed = need(disk);
        let reserve = plan.settings.reserve_bytes.min(needed / 10);
        if needed.saturating_add(reserve) > available {
            return Ok(Some((disk, reserve, available)));
        }
    }
    Ok(None)
}
