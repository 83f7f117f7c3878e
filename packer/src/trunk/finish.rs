//! The end of a packing: table, headers, names.

use std::fs;
use std::path::PathBuf;

use k3_formats::trunk::{
    PAGE_BYTES, PackedBlock, StripeHeader, compare_matrices, encode_table, extent_bytes, table_hash,
};
use k3_io::FileReader;

use super::error::TrunkError;
use super::pipeline::Hooks;
use super::plan::TrunkPlan;
use super::session::{Session, names};
use super::source::TrunkSource;
use crate::error::PackError;
use crate::synth::target::sync_directory;

/// What a run has just made safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// There is a journal.
    Begun,
    /// It says that this many blocks are on the disk.
    Recorded(u32),
    /// The table is on the disk.
    Table,
    /// So are all headers.
    Headers,
    /// This stripe has its name.
    Named(u16),
    /// The journal is gone.
    Complete,
}

/// Makes the stripes whole and gives them their names.
///
/// # Errors
///
/// What the system reports; a later run goes on from wherever this one ended.
pub(super) fn finish(
    source: &TrunkSource,
    plan: &TrunkPlan,
    session: Session,
    hooks: &Hooks<'_>,
) -> Result<Packed, PackError> {
    let blocks = blocks(source, plan, &session);
    let manifest = compare(source, &blocks)?;
    let table = encode_table(&blocks);
    let headers = headers(plan, &blocks, &session.ends, &table);
    let first = session.stripes[0].as_ref();
    if let Some(first) = first {
        first.write_small(&table, headers[0].table_offset)?;
        first.sync()?;
    }
    hooks.at(Point::Table)?;
    for (header, stripe) in headers.iter().zip(&session.stripes) {
        if let Some(stripe) = stripe {
            stripe.write_small(&header.encode(), 0)?;
            stripe.sync()?;
        }
    }
    hooks.at(Point::Headers)?;
    let mut paths = Vec::new();
    // The one with the table last: without it none of the others opens.
    for header in headers.iter().rev() {
        let directory = &session.directories()[usize::from(header.index)];
        let [partial, name] = names(directory, header.index, header.count);
        if session.stripes[usize::from(header.index)].is_some() {
            fs::rename(&partial, &name).map_err(TrunkError::writing(&partial, "rename"))?;
            sync_directory(directory)
                .map_err(TrunkError::writing(directory, "write to the disk"))?;
            hooks.at(Point::Named(header.index))?;
        } else {
            require_same(header, &name)?;
        }
        paths.push(name);
    }
    paths.reverse();
    let escapes = session.entries.iter().map(|entry| u64::from(entry.escapes));
    let packed = Packed {
        escapes: escapes.sum(),
        manifest,
        blocks,
        headers,
        paths,
    };
    session.journal.remove()?;
    hooks.at(Point::Complete)?;
    Ok(packed)
}

/// A packed trunk that is there.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) blocks: Vec<PackedBlock>,
    /// Exponents stored beside the codes, over all blocks.
    pub(super) escapes: u64,
    /// Whether what was packed is what a manifest has.
    pub(super) manifest: ManifestState,
    pub(super) headers: Vec<StripeHeader>,
    pub(super) paths: Vec<PathBuf>,
}

/// Whether what was packed could be compared with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ManifestState {
    /// There is none.
    Absent,
    /// This many matrices have the hashes it says.
    Agrees(u64),
}

/// Compares what was packed with the manifest beside the shards, where there is
/// one.
fn compare(source: &TrunkSource, blocks: &[PackedBlock]) -> Result<ManifestState, PackError> {
    let (path, manifest) = match source.manifest() {
        Ok(None) => return Ok(ManifestState::Absent),
        Ok(Some(found)) => found,
        // It could be read when the packing began.
        Err(error) => return Err(error.into()),
    };
    match compare_matrices(blocks, &manifest, &source.shard_names()) {
        Ok(count) => Ok(ManifestState::Agrees(count)),
        Err(other) => Err(TrunkError::OtherWeights {
            shard: other.shard,
            matrix: other.matrix,
            manifest: path,
        }
        .into()),
    }
}

/// The table's entries.
fn blocks(source: &TrunkSource, plan: &TrunkPlan, session: &Session) -> Vec<PackedBlock> {
    let mut ends = vec![PAGE_BYTES as u64; plan.set.weights.len()];
    let entries = session.entries.iter().zip(&plan.stripes);
    let block = |(block, (entry, stripe)): (&k3_models::Block, (&super::encode::Entry, &u16))| {
        let end = &mut ends[usize::from(*stripe)];
        let offset = *end;
        *end += extent_bytes(entry.stored_bytes);
        PackedBlock {
            shard: block.shard,
            source_offset: block.offset,
            row_start: block.row_start,
            row_count: block.row_count,
            row_total: block.row_total,
            cols: block.cols,
            dtype: block.dtype,
            codec: entry.codec,
            stripe: *stripe,
            offset,
            stored_bytes: entry.stored_bytes,
            raw_bytes: block.bytes,
            checksum: entry.checksum,
            matrix_hash: entry.matrix_hash,
        }
    };
    let mut blocks: Vec<_> = source.blocks().iter().zip(entries).map(block).collect();
    // The last block of a matrix has its hash; the others are before it.
    let mut hash = [0; 32];
    for block in blocks.iter_mut().rev() {
        if block.row_start + block.row_count == block.row_total {
            hash = block.matrix_hash;
        }
        block.matrix_hash = hash;
    }
    blocks
}

fn headers(
    plan: &TrunkPlan,
    blocks: &[PackedBlock],
    ends: &[u64],
    table: &[u8],
) -> Vec<StripeHeader> {
    let count = plan.stripe_count();
    let header = |index: u16| {
        let in_stripe = blocks.iter().filter(|block| block.stripe == index).count();
        let end = ends[usize::from(index)];
        let (table_offset, file_bytes) = match index {
            0 => (end, end + table.len() as u64),
            _ => (0, end),
        };
        let number = |count: usize| u32::try_from(count).expect("block counts are capped");
        StripeHeader {
            identity: plan.set.identity,
            set_id: plan.set.id(),
            index,
            count,
            stripe_blocks: number(in_stripe),
            block_bytes: plan.set.block_bytes,
            block_count: number(blocks.len()),
            table_offset,
            table_hash: table_hash(table),
            file_bytes,
        }
    };
    (0..count).map(header).collect()
}

/// A stripe that had its name before this run is the one it should be.
fn require_same(header: &StripeHeader, name: &std::path::Path) -> Result<(), PackError> {
    let found = StripeHeader::read(&FileReader::open(name)?)?;
    if found == *header {
        return Ok(());
    }
    Err(TrunkError::Damaged {
        path: name.to_owned(),
        detail: "is of another packing than the journal".to_owned(),
    }
    .into())
}
