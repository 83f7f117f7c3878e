//! A trunk that lies in files of its own.
//!
//! Two kinds: what `k3-pack trunk` writes (blocks in sweep order, each with its
//! codec and checksum, bound to the checkpoint's identity), and the raw copy that
//! other tools of the field make. Everything else of a model (experts, vectors,
//! the embedding) stays in the checkpoint's shards.

mod foreign;

use std::mem::size_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_config::BlockKind;
use k3_formats::trunk::{ForeignTrunk, PackedBlock, PackedTrunk};
use k3_formats::{FormatError, Identity, ReadAt, ShardIndex};
use k3_io::{FileReader, TrunkFiles, read_manifest};
use k3_models::{Block, BlockIndex, BlockPlace, SweepProgram};

use self::foreign::{Moved, copy_of, moved};
use crate::error::RunError;
use crate::report::{ChecksumUse, TrunkFormat, TrunkReport};

/// Places of a model's blocks outside its shards.
#[derive(Debug)]
pub struct Trunk {
    /// Number of the first of its files among all of a checkpoint's.
    first_file: u32,
    paths: Vec<PathBuf>,
    kind: Kind,
    checksums: Checksums,
    /// Matrices whose source has the hash of the checkpoint's manifest.
    manifest_matrices: Option<u64>,
}

/// The checkpoint that a trunk is opened for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// The snapshot's directory.
    pub(crate) model_dir: &'a Path,
    pub(crate) index: &'a ShardIndex,
    pub(crate) identity: &'a Identity,
    pub(crate) shards: &'a [FileReader],
}

/// What is done with the checksums of a packed trunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Every block that is read is compared with its own.
    Compared,
    /// Nothing.
    Ignored,
}

#[derive(Debug)]
enum Kind {
    Packed(Arc<PackedTrunk>),
    Foreign {
        /// Tensors by where they lie in the shards, ascending.
        tensors: Vec<Moved>,
    },
}

impl Trunk {
    /// Opens the trunk in `directories` for the checkpoint `beside` it. Returns
    /// its files as well.
    ///
    /// # Errors
    ///
    /// No trunk there, one that is damaged, incomplete or of another checkpoint, and
    /// one that was packed from other weights than the checkpoint's manifest has.
    pub(crate) fn open(
        directories: &[PathBuf],
        beside: Beside<'_>,
        checksums: Checksums,
    ) -> Result<(Self, Vec<FileReader>), RunError> {
        let (kind, readers) = match TrunkFiles::open(directories)? {
            TrunkFiles::Packed(packed) => {
                let trunk = packed.open(beside.identity)?;
                (Kind::Packed(Arc::new(trunk)), packed.files)
            }
            TrunkFiles::Foreign { json, bin } => {
                let trunk = ForeignTrunk::open(&json, &bin)?;
                let tensors = moved(&trunk, beside.index, beside.shards, &json, &bin)?;
                (Kind::Foreign { tensors }, vec![bin])
            }
        };
        let first_file = u32::try_from(beside.shards.len()).expect("shards have 16-bit numbers");
        let paths = readers.iter().map(|file| file.label().to_path_buf());
        let mut trunk = Self {
            first_file,
            paths: paths.collect(),
            kind,
            checksums,
            manifest_matrices: None,
        };
        trunk.compare_with_manifest(beside)?;
        Ok((trunk, readers))
    }

    /// Compares what a packed trunk was made of with the checkpoint's manifest,
    /// where there is one.
    fn compare_with_manifest(&mut self, beside: Beside<'_>) -> Result<(), RunError> {
        let Kind::Packed(packed) = &self.kind else {
            return Ok(());
        };
        // One that cannot be used is no reason to go on without: it may be all
        // that tells a changed shard.
        let found = read_manifest(beside.model_dir, *beside.identity)?;
        if let Some((path, manifest)) = found {
            let shards = beside.shards.iter().map(ReadAt::file_name);
            let shards: Vec<_> = shards.collect();
            let count = packed.compare_with(&manifest, &path, &shards, &self.paths)?;
            self.manifest_matrices = Some(count);
        }
        Ok(())
    }

    /// Its files.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What it is to the blocks of `program`, which was
    /// [placed](Self::place); nothing compared yet.
    #[must_use]
    pub fn report(&self, program: &SweepProgram) -> TrunkReport {
        let (source, checksums) = match (&self.kind, self.checksums) {
            (Kind::Packed(_), Checksums::Compared) => (TrunkFormat::Packed, ChecksumUse::Compared),
            (Kind::Packed(_), Checksums::Ignored) => (TrunkFormat::Packed, ChecksumUse::Off),
            (Kind::Foreign { .. }, _) => (TrunkFormat::RawCopy, ChecksumUse::None),
        };
        let files = self.paths.iter();
        let files = files.map(|path| path.display().to_string()).collect();
        TrunkReport {
            manifest_matrices: self.manifest_matrices,
            ..TrunkReport::new(program, source, files, checksums)
        }
    }

    /// The block size it was cut with; `None` where any will do.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Packed(packed) => Some(packed.block_bytes()),
            Kind::Foreign { .. } => None,
        }
    }

    /// Memory its tables take, those of its [checks](Self::checks) included.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let bytes = match &self.kind {
            // The table, its order by source, and the numbers of the checks.
            Kind::Packed(packed) => {
                packed.blocks().len() * (size_of::<PackedBlock>() + 2 * size_of::<u32>())
            }
            Kind::Foreign { tensors } => tensors.len() * size_of::<Moved>(),
        };
        bytes as u64
    }

    /// What a person should know about it: where less tells that it belongs to the
    /// checkpoint than could.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match &self.kind {
            Kind::Packed(_) => None,
            Kind::Foreign { .. } => Some(format!(
                "{}: has no checksums and does not say which weights it holds; the first bytes \
                 of every tensor were compared with the checkpoint; the output head is read there",
                self.paths[0].display()
            )),
        }
    }

    /// Says of every block of `program` where it is read.
    ///
    /// # Errors
    ///
    /// [`RunError::TrunkBlocks`] when blocks are cut in another way.
    pub fn place(&self, program: &mut SweepProgram) -> Result<(), RunError> {
        let files = self.paths.iter().cloned().enumerate();
        program.trunk_files = files.map(|(at, path)| (self.file(at), path)).collect();
        for at in 0..program.blocks.len() {
            let block = &program.blocks[at];
            let (codec, bytes, place) = match &self.kind {
                Kind::Packed(packed) => {
                    let found = packed.find(block.shard, block.offset);
                    let found = found.map(|index| &packed.blocks()[index as usize]);
                    let entry = found.filter(|entry| block.is_packed_as(entry));
                    let entry = entry.ok_or_else(|| self.foreign_cut(block, found))?;
                    let place = BlockPlace {
                        file: self.file(packed.file_index(entry.stripe)),
                        offset: entry.offset,
                        read_bytes: entry.extent_bytes(),
                    };
                    (entry.codec, entry.stored_bytes, place)
                }
                Kind::Foreign { tensors } => {
                    let Some(offset) = copy_of(tensors, block) else {
                        // The output head stays in the shards; anything else
                        // that is missing makes it a trunk of something else.
                        if block.kind == BlockKind::Head {
                            continue;
                        }
                        return Err(self.lacks(block));
                    };
                    let place = BlockPlace {
                        file: self.file(0),
                        offset,
                        read_bytes: block.bytes,
                    };
                    (block.codec, block.bytes, place)
                }
            };
            let index = u32::try_from(at).expect("block counts are capped");
            program.place(BlockIndex(index), codec, bytes, place);
        }
        Ok(())
    }

    /// The checksums of the blocks of `program`, which was [placed](Self::place);
    /// `None` for a trunk without, or where they are ignored.
    #[must_use]
    pub fn checks(&self, program: &SweepProgram) -> Option<TrunkChecks> {
        let (Kind::Packed(packed), Checksums::Compared) = (&self.kind, self.checksums) else {
            return None;
        };
        let number = |block: &Block| {
            let number = packed.find(block.shard, block.offset);
            number.expect("the program was placed by this trunk")
        };
        Some(TrunkChecks {
            numbers: program.blocks.iter().map(number).collect(),
            packed: Arc::clone(packed),
            paths: self.paths.clone(),
        })
    }

    fn file(&self, place: usize) -> u32 {
        self.first_file + u32::try_from(place).expect("few stripes")
    }

    fn lacks(&self, block: &Block) -> RunError {
        let of = match block.kind {
            BlockKind::Layer(layer) => format!("of layer {layer} "),
            BlockKind::Head => String::new(),
        };
        RunError::ForeignTrunk {
            path: self.paths[0].clone(),
            what: format!("the {} x {} matrix {of}", block.row_total, block.cols)
                .trim_end()
                .to_owned(),
            found: "missing".to_owned(),
            expected: format!("at offset {} of shard {}", block.offset, block.shard),
        }
    }

    fn foreign_cut(&self, block: &Block, found: Option<&PackedBlock>) -> RunError {
        RunError::TrunkBlocks {
            path: self.paths[0].clone(),
            shard: block.shard,
            offset: block.offset,
            rows: block.row_count,
            cols: block.cols,
            found: found.map(|entry| (entry.row_count, entry.cols)),
        }
    }
}

/// Checksums of a program's blocks.
#[derive(Debug)]
pub struct TrunkChecks {
    packed: Arc<PackedTrunk>,
    /// Number in the trunk of every block of the program.
    numbers: Vec<u32>,
    paths: Vec<PathBuf>,
}

impl TrunkChecks {
    /// Compares what was read of block `index` of the program, padding
    /// included, with its checksum.
    ///
    /// # Errors
    ///
    /// [`FormatError::Trunk`], naming the place.
    pub fn check(&self, index: usize, read: &[u8]) -> Result<(), FormatError> {
        let number = self.numbers[index];
        let entry = &self.packed.blocks()[number as usize];
        let path = &self.paths[self.packed.file_index(entry.stripe)];
        self.packed.check_block(number, read, path)
    }
}
