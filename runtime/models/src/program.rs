//! The order in which a sweep consumes weights.
//!
//! A family declares its program once. Whoever feeds it may read ahead along
//! the program as far as memory allows, across the end of one sweep into the
//! next: the order never changes from sweep to sweep.

use std::ops::Range;
use std::path::{Path, PathBuf};

use k3_config::{BlockFootprint, BlockKind};
use k3_formats::trunk::{Codec, PackedBlock};
use k3_formats::{Dtype, TensorRef};

use crate::ids::LayerIndex;

/// Position of a block in [`SweepProgram::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

impl BlockIndex {
    /// The index as a `usize`, for slices.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Consecutive rows of one trunk matrix: the unit that is read, pinned,
/// leased and multiplied.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// The family's name for the product this block takes part in.
    pub op: u8,
    /// The decoder layer, or the output head.
    pub kind: BlockKind,
    /// Type of the stored elements.
    pub dtype: Dtype,
    /// First row within the matrix.
    pub row_start: u32,
    /// Rows in this block, at least 1.
    pub row_count: u32,
    /// Rows of the whole matrix.
    pub row_total: u32,
    /// Elements per row.
    pub cols: u32,
    /// Rows that are used together: blocks are cut between groups of as many.
    pub row_quantum: u32,
    /// Shard file that holds the block.
    pub shard: u16,
    /// Absolute offset of the block's first byte in the shard; no alignment.
    pub offset: u64,
    /// How the block is stored where it is read.
    pub codec: Codec,
    /// Size in bytes as it is stored where it is read: what [`SweepRun::block`]
    /// is given.
    ///
    /// [`SweepRun::block`]: crate::SweepRun::block
    pub bytes: u64,
    /// Size in bytes of the elements as they are in the shard.
    pub raw_bytes: u64,
    /// Where it is read: in the shard, unless [`SweepProgram::place`] has said
    /// otherwise.
    pub place: BlockPlace,
}

/// Where a block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// The file: a shard, or beyond their count a file of a trunk of its own.
    pub file: u32,
    /// Absolute offset of its first byte in the file.
    pub offset: u64,
    /// Bytes to read there, of which the first [`Block::bytes`] are the block.
    pub read_bytes: u64,
}

impl Block {
    /// Whether this is the first block of its matrix.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.row_start == 0
    }

    /// Whether this is the last block of its matrix.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.row_start + self.row_count == self.row_total
    }

    /// Whether `packed` is this block: of the same place, cut in the same way.
    #[must_use]
    pub fn is_packed_as(&self, packed: &PackedBlock) -> bool {
        (packed.shard, packed.source_offset) == (self.shard, self.offset)
            && (packed.row_start, packed.row_count) == (self.row_start, self.row_count)
            && (packed.row_total, packed.cols) == (self.row_total, self.cols)
            && (packed.dtype, packed.raw_bytes) == (self.dtype, self.raw_bytes)
    }

    /// Whether a packed form of the block can be multiplied: a packed kernel
    /// takes a matrix row by row, for one product. Rows that are used in groups
    /// take part in more than one, also by columns, and are stored as they are.
    #[must_use]
    pub fn may_be_packed(&self) -> bool {
        self.row_quantum == 1
    }
}

/// The blocks that score the experts of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// The layer.
    pub layer: LayerIndex,
    /// Its blocks, in [`SweepProgram::blocks`].
    pub blocks: Range<u32>,
}

impl Router {
    /// Its blocks, in sweep order.
    pub fn block_indices(&self) -> impl Iterator<Item = BlockIndex> + use<> {
        self.blocks.clone().map(BlockIndex)
    }
}

/// One step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Hand over the embedding row of every position.
    Embed,
    /// Hand over the layer's parts of the pages that are not in memory, if there
    /// are any: its attention comes next.
    Past(LayerIndex),
    /// Hand over one block.
    Block(BlockIndex),
    /// The layer's router has run: ask for its experts.
    Route(LayerIndex),
    /// Hand over every demanded expert, in any order, then finish the layer's
    /// mixture.
    Experts(LayerIndex),
    /// The layer is complete.
    EndLayer(LayerIndex),
}

/// Everything a sweep reads, in order.
#[derive(Debug, Clone)]
pub struct SweepProgram {
    /// The embedding table; only the rows of a sweep's tokens are read.
    pub embedding: TensorRef,
    /// All streamed blocks, in sweep order.
    pub blocks: Vec<Block>,
    /// The steps; blocks of kind [`BlockKind::Head`] come last.
    pub steps: Vec<Step>,
    /// The routers of all layers with experts, ascending.
    pub routers: Vec<Router>,
    /// Number and path of the files that hold [placed](Self::place) blocks and are no
    /// shards; for messages.
    pub trunk_files: Vec<(u32, PathBuf)>,
}

impl SweepProgram {
    /// A program without steps yet.
    #[must_use]
    pub fn new(embedding: TensorRef) -> Self {
        Self {
            embedding,
            blocks: Vec::new(),
            steps: vec![Step::Embed],
            routers: Vec::new(),
            trunk_files: Vec::new(),
        }
    }

    /// Appends the blocks of one matrix `tensor`: `[rows][cols]`.
    ///
    /// A block holds as many rows as fit `block_bytes`, in multiples of
    /// `row_quantum`, and at least one quantum. Only the last block of a
    /// matrix may be shorter.
    ///
    /// # Panics
    ///
    /// If the tensor is no matrix or `row_quantum` does not divide its rows:
    /// shapes are checked when a layout is bound.
    pub fn push_matrix(
        &mut self,
        kind: BlockKind,
        op: u8,
        tensor: &TensorRef,
        row_quantum: u32,
        block_bytes: u64,
    ) {
        let [rows, cols] = tensor.shape.as_slice() else {
            panic!(
                "only matrices are streamed, not {:?}",
                tensor.shape.as_slice()
            );
        };
        let row_total = u32::try_from(*rows).expect("row counts are capped");
        let cols_count = u32::try_from(*cols).expect("column counts are capped");
        assert!(row_quantum > 0 && row_total.is_multiple_of(row_quantum));
        let row_bytes = cols * tensor.dtype.size_bytes();
        let quantum_bytes = row_bytes * u64::from(row_quantum);
        let quanta = (block_bytes / quantum_bytes.max(1)).max(1);
        let rows_per_block = u32::try_from(quanta)
            .unwrap_or(u32::MAX)
            .saturating_mul(row_quantum)
            .min(row_total);
        let mut row_start = 0;
        while row_start < row_total {
            let row_count = rows_per_block.min(row_total - row_start);
            let index = u32::try_from(self.blocks.len()).expect("block counts are capped");
            let offset = tensor.offset + u64::from(row_start) * row_bytes;
            let bytes = u64::from(row_count) * row_bytes;
            self.blocks.push(Block {
                op,
                kind,
                dtype: tensor.dtype,
                row_start,
                row_count,
                row_total,
                cols: cols_count,
                row_quantum,
                shard: tensor.shard,
                offset,
                codec: Codec::Raw,
                bytes,
                raw_bytes: bytes,
                place: BlockPlace {
                    file: u32::from(tensor.shard),
                    offset,
                    read_bytes: bytes,
                },
            });
            self.steps.push(Step::Block(BlockIndex(index)));
            row_start += row_count;
        }
    }

    /// Block `index` is read at `place`, where `codec` has made `bytes` of it.
    ///
    /// # Panics
    ///
    /// If it may not be packed, or the place is shorter than the block.
    pub fn place(&mut self, index: BlockIndex, codec: Codec, bytes: u64, place: BlockPlace) {
        let block = &mut self.blocks[index.index()];
        assert!(codec == Codec::Raw || block.may_be_packed());
        assert!(codec != Codec::Raw || bytes == block.raw_bytes);
        assert!(bytes <= place.read_bytes);
        block.codec = codec;
        block.bytes = bytes;
        block.place = place;
    }

    /// Path of file `file`, as far as it is known: of a file of the trunk that no
    /// shard is.
    #[must_use]
    pub fn trunk_file(&self, file: u32) -> Option<&Path> {
        let found = self.trunk_files.iter().find(|(number, _)| *number == file);
        found.map(|(_, path)| path.as_path())
    }

    /// Block `index`.
    #[must_use]
    pub fn block(&self, index: BlockIndex) -> &Block {
        &self.blocks[index.index()]
    }

    /// Appends the blocks of a router, as [`Self::push_matrix`] does, and the
    /// step that asks for the layer's experts.
    pub fn push_router(&mut self, layer: LayerIndex, op: u8, tensor: &TensorRef, block_bytes: u64) {
        let kind = BlockKind::Layer(u32::from(layer.0));
        let count =
            |blocks: &[Block]| u32::try_from(blocks.len()).expect("block counts are capped");
        let first = count(&self.blocks);
        self.push_matrix(kind, op, tensor, 1, block_bytes);
        let blocks = first..count(&self.blocks);
        self.routers.push(Router { layer, blocks });
        self.steps.push(Step::Route(layer));
    }

    /// The router of the layer right after `layer`, if that has one.
    #[must_use]
    pub fn next_router(&self, layer: LayerIndex) -> Option<&Router> {
        let routers = self.routers.iter();
        let mut routers = routers.skip_while(|router| router.layer <= layer);
        routers
            .next()
            .filter(|router| router.layer.index() == layer.index() + 1)
    }

    /// Blocks that looking a layer ahead reads before their turn: all routers
    /// but one of the first layer, before which nothing is known.
    pub fn lookahead_blocks(&self) -> impl Iterator<Item = BlockIndex> + '_ {
        let routers = self.routers.iter();
        let later = routers.filter(|router| router.layer > LayerIndex(0));
        later.flat_map(Router::block_indices)
    }

    /// Size in bytes of one embedding row.
    #[must_use]
    pub fn embedding_row_bytes(&self) -> u64 {
        self.embedding.bytes / self.embedding.shape.as_slice()[0].max(1)
    }

    /// The blocks as a plan sees them.
    #[must_use]
    pub fn block_footprints(&self) -> Vec<BlockFootprint> {
        self.blocks
            .iter()
            .map(|block| BlockFootprint {
                kind: block.kind,
                bytes: block.bytes,
            })
            .collect()
    }
}
