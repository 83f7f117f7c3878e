//! A packed trunk, opened.

use std::path::{Path, PathBuf};

use super::PAGE_BYTES;
use super::fault::{EntryFault, TrunkFault};
use super::header::{IDENTITY_OFFSET, INDEX_OFFSET, SET_ID_OFFSET, StripeHeader};
use super::provenance::{OtherMatrix, compare_matrices};
use super::table::{ENTRY_BYTES, PackedBlock, table_bytes, table_hash};
use crate::error::FormatError;
use crate::identity::Identity;
use crate::manifest::Manifest;
use crate::read_at::ReadAt;

/// Where every block of a trunk lies, read from all its stripe files.
///
/// Opening reads headers and table alone. Whoever reads a block compares it with
/// [`PackedTrunk::check_block`].
#[derive(Debug, Clone)]
pub struct PackedTrunk {
    set_id: [u8; 32],
    block_bytes: u64,
    /// Place of each stripe in the files given.
    files: Vec<usize>,
    blocks: Vec<PackedBlock>,
    /// Indices of the blocks, by shard and source offset.
    by_source: Vec<u32>,
}

impl PackedTrunk {
    /// Reads the headers of `files`, in any order, and the table.
    ///
    /// # Errors
    ///
    /// Files that are no packed trunk, of another version, length or checkpoint
    /// than `identity`, damaged, of several packings, twice or not all there;
    /// and a table that contradicts itself or the files.
    pub fn open(files: &[&dyn ReadAt], identity: &Identity) -> Result<Self, FormatError> {
        let headers = files
            .iter()
            .map(|file| StripeHeader::read(*file))
            .collect::<Result<Vec<_>, _>>()?;
        for (file, header) in files.iter().zip(&headers) {
            if header.identity != *identity {
                let fault = TrunkFault::Identity {
                    expected: *identity,
                    found: header.identity,
                };
                return Err(fail(file.label(), IDENTITY_OFFSET, fault));
            }
        }
        let stripes = in_order(files, &headers)?;
        let headers: Vec<&StripeHeader> = stripes.iter().map(|place| &headers[*place]).collect();
        let first = files[stripes[0]];
        let blocks = read_table(first, &headers)?;
        let by_source = by_source(first, headers[0], &blocks)?;
        Ok(Self {
            set_id: headers[0].set_id,
            block_bytes: headers[0].block_bytes,
            files: stripes,
            blocks,
            by_source,
        })
    }

    /// The name of the set: what the packer was asked for, hashed.
    #[must_use]
    pub fn set_id(&self) -> &[u8; 32] {
        &self.set_id
    }

    /// Largest block, in raw bytes: what a sweep must be cut into to match.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Every block, in sweep order.
    #[must_use]
    pub fn blocks(&self) -> &[PackedBlock] {
        &self.blocks
    }

    /// Files the trunk is spread over.
    #[must_use]
    pub fn stripe_count(&self) -> usize {
        self.files.len()
    }

    /// Place of a stripe's file in the list given to [`PackedTrunk::open`].
    ///
    /// # Panics
    ///
    /// When there is no such stripe.
    #[must_use]
    pub fn file_index(&self, stripe: u16) -> usize {
        self.files[usize::from(stripe)]
    }

    /// Index of the block whose first byte lies at `source_offset` of `shard`.
    /// A model of fewer layers is a part of the trunk, found this way.
    #[must_use]
    pub fn find(&self, shard: u16, source_offset: u64) -> Option<u32> {
        let wanted = (shard, source_offset);
        let place = self
            .by_source
            .binary_search_by_key(&wanted, |index| source(&self.blocks[*index as usize]));
        place.ok().map(|place| self.by_source[place])
    }

    /// Compares what the trunk was packed from with `manifest`, read from the file
    /// at `manifest_path`: the hash of each matrix with that of its tensor. `shards`
    /// are the names of the checkpoint's shards, `paths` those of the trunk's files,
    /// both in order. Gives the number of matrices that were compared: all that the
    /// manifest has.
    ///
    /// # Errors
    ///
    /// [`TrunkFault::OtherWeights`], naming the first that differs.
    pub fn compare_with(
        &self,
        manifest: &Manifest,
        manifest_path: &Path,
        shards: &[String],
        paths: &[PathBuf],
    ) -> Result<u64, FormatError> {
        compare_matrices(&self.blocks, manifest, shards).map_err(|other| {
            let OtherMatrix {
                block,
                matrix,
                shard,
            } = *other;
            let entry = &self.blocks[block as usize];
            let fault = TrunkFault::OtherWeights {
                block,
                matrix,
                shard,
                manifest: manifest_path.to_path_buf(),
            };
            fail(&paths[self.file_index(entry.stripe)], entry.offset, fault)
        })
    }

    /// Compares the `extent` of block `index`, read from the file at `path`,
    /// with its checksum.
    ///
    /// # Errors
    ///
    /// [`TrunkFault::BlockDamaged`], also for an extent of another length.
    ///
    /// # Panics
    ///
    /// When there is no such block.
    pub fn check_block(&self, index: u32, extent: &[u8], path: &Path) -> Result<(), FormatError> {
        let block = &self.blocks[index as usize];
        let found = super::checksum(index, extent);
        if found == block.checksum && extent.len() as u64 == block.extent_bytes() {
            return Ok(());
        }
        let fault = TrunkFault::BlockDamaged {
            block: index,
            bytes: block.extent_bytes(),
            expected: block.checksum,
            found,
        };
        Err(fail(path, block.offset, fault))
    }
}

fn fail(path: &Path, offset: u64, fault: TrunkFault) -> FormatError {
    FormatError::Trunk {
        path: path.to_path_buf(),
        offset,
        fault: Box::new(fault),
    }
}

fn source(block: &PackedBlock) -> (u16, u64) {
    (block.shard, block.source_offset)
}

/// Places of the stripes in `files`, by index; they are one whole set.
fn in_order(files: &[&dyn ReadAt], headers: &[StripeHeader]) -> Result<Vec<usize>, FormatError> {
    let (Some(first), Some(first_file)) = (headers.first(), files.first()) else {
        return Err(fail(Path::new("trunk"), 0, TrunkFault::NoFiles));
    };
    let mut places: Vec<Option<usize>> = vec![None; usize::from(first.count)];
    for (place, (file, header)) in files.iter().zip(headers).enumerate() {
        let same_set = header.set_id == first.set_id
            && header.table_hash == first.table_hash
            && (header.count, header.block_count) == (first.count, first.block_count)
            && header.block_bytes == first.block_bytes;
        if !same_set {
            let other = first_file.label().to_path_buf();
            return Err(fail(
                file.label(),
                SET_ID_OFFSET,
                TrunkFault::OtherSet { other },
            ));
        }
        if let Some(other) = places[usize::from(header.index)].replace(place) {
            let fault = TrunkFault::DuplicateStripe {
                index: header.index,
                other: files[other].label().to_path_buf(),
            };
            return Err(fail(file.label(), INDEX_OFFSET, fault));
        }
    }
    let missing: Vec<u16> = (0..first.count)
        .filter(|index| places[usize::from(*index)].is_none())
        .collect();
    if !missing.is_empty() {
        let count = first.count;
        let fault = TrunkFault::MissingStripes { count, missing };
        return Err(fail(first_file.label(), INDEX_OFFSET, fault));
    }
    Ok(places.into_iter().flatten().collect())
}

/// The blocks by the table in `file`, compared with the headers of all stripes.
fn read_table(
    file: &dyn ReadAt,
    headers: &[&StripeHeader],
) -> Result<Vec<PackedBlock>, FormatError> {
    let first = headers[0];
    // The header was compared with the length of the file.
    let length = usize::try_from(table_bytes(first.block_count)).expect("a table fits memory");
    let mut table = vec![0; length];
    file.read_exact_at(first.table_offset, &mut table)?;
    let (expected, found) = (first.table_hash, table_hash(&table));
    if found != expected {
        let fault = TrunkFault::TableDamaged {
            bytes: length as u64,
            expected,
            found,
        };
        return Err(fail(file.label(), first.table_offset, fault));
    }
    let (entries, padding) = table.split_at(first.block_count as usize * ENTRY_BYTES);
    let entry_offset = |block: u32| first.table_offset + u64::from(block) * ENTRY_BYTES as u64;
    let entry_fault = |block: u32, fault| {
        let offset = entry_offset(block);
        fail(file.label(), offset, TrunkFault::Entry { block, fault })
    };
    let mut filling = Filling::new(headers);
    let mut blocks = Vec::with_capacity(first.block_count as usize);
    for (index, entry) in (0..).zip(entries.chunks_exact(ENTRY_BYTES)) {
        let block = PackedBlock::decode(entry)
            .and_then(|block| filling.add(&block).map(|()| block))
            .map_err(|fault| entry_fault(index, fault))?;
        blocks.push(block);
    }
    let last = first.block_count - 1;
    filling.finish().map_err(|fault| entry_fault(last, fault))?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(entry_fault(last, EntryFault::Reserved));
    }
    Ok(blocks)
}

/// How far each stripe is filled by the blocks seen so far.
struct Filling<'a> {
    headers: &'a [&'a StripeHeader],
    ends: Vec<u64>,
    counts: Vec<u32>,
}

impl<'a> Filling<'a> {
    fn new(headers: &'a [&'a StripeHeader]) -> Self {
        Self {
            headers,
            ends: vec![PAGE_BYTES as u64; headers.len()],
            counts: vec![0; headers.len()],
        }
    }

    /// Blocks of a stripe follow one another without holes.
    fn add(&mut self, block: &PackedBlock) -> Result<(), EntryFault> {
        let stripe = usize::from(block.stripe);
        let Some(expected) = self.ends.get(stripe).copied() else {
            return Err(EntryFault::Stripe {
                stripe: block.stripe,
                count: self.headers[0].count,
            });
        };
        if block.offset != expected {
            return Err(EntryFault::Offset {
                expected,
                found: block.offset,
            });
        }
        let (end, limit) = (
            expected.saturating_add(block.extent_bytes()),
            self.headers[stripe].blocks_end(),
        );
        if end > limit {
            return Err(EntryFault::End { end, limit });
        }
        self.ends[stripe] = end;
        self.counts[stripe] += 1;
        Ok(())
    }

    /// The blocks are all there are, and nothing lies behind them.
    fn finish(&self) -> Result<(), EntryFault> {
        for (index, header) in self.headers.iter().enumerate() {
            let (count, end) = (self.counts[index], self.ends[index]);
            if count != header.stripe_blocks || end != header.blocks_end() {
                return Err(EntryFault::Sum {
                    stripe: header.index,
                    count,
                    end,
                    stated: header.stripe_blocks,
                    limit: header.blocks_end(),
                });
            }
        }
        Ok(())
    }
}

/// Indices of the blocks by source, each of which is there once.
fn by_source(
    file: &dyn ReadAt,
    header: &StripeHeader,
    blocks: &[PackedBlock],
) -> Result<Vec<u32>, FormatError> {
    let mut order: Vec<u32> = (0..header.block_count).collect();
    order.sort_unstable_by_key(|index| (source(&blocks[*index as usize]), *index));
    for pair in order.windows(2) {
        let [other, block] = [pair[0], pair[1]];
        let [a, b] = [other, block].map(|index| &blocks[index as usize]);
        let matrix = |block: &PackedBlock| (block.shard, block.matrix_offset());
        let fault = if source(a) == source(b) {
            EntryFault::SameSource { other }
        } else if matrix(a) == matrix(b) && a.matrix_hash != b.matrix_hash {
            EntryFault::MatrixHash { other }
        } else {
            continue;
        };
        let offset = header.table_offset + u64::from(block) * ENTRY_BYTES as u64;
        let fault = TrunkFault::Entry { block, fault };
        return Err(fail(file.label(), offset, fault));
    }
    Ok(order)
}
