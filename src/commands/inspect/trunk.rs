//! A packed trunk: what it is of, and how it is stored.

use std::path::{Path, PathBuf};

use k3_config::Bytes;
use k3_formats::trunk::{Codec, PackedBlock, StripeHeader};
use k3_formats::{Identity, PackedTrunk, ReadAt as _};
use k3_io::{FileReader, IoError, PackedFiles, TrunkFiles, read_manifest};
use serde::Serialize;

use crate::error::CliError;
use crate::render::table;

/// A packed trunk in figures.
#[derive(Debug, Serialize)]
pub(super) struct TrunkCensus {
    /// The checkpoint it was packed from.
    identity: String,
    /// Whether that is the one it was looked at with; `None` without one.
    is_of_this_checkpoint: Option<bool>,
    /// Its name: BLAKE3 over what the packer was asked for.
    set_id: String,
    /// Most bytes of a block in the checkpoint.
    block_bytes: u64,
    blocks: usize,
    raw_bytes: u64,
    stored_bytes: u64,
    extent_bytes: u64,
    codecs: Vec<CodecRow>,
    stripes: Vec<StripeRow>,
    /// Matrices packed from the bytes that the checkpoint's manifest has a hash of;
    /// `None` without a manifest.
    manifest_matrices: Option<u64>,
    /// What is wrong, one sentence each.
    pub(super) problems: Vec<String>,
}

/// Blocks of one codec.
#[derive(Debug, Clone, Serialize)]
struct CodecRow {
    codec: &'static str,
    blocks: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

/// One file.
#[derive(Debug, Serialize)]
struct StripeRow {
    path: String,
    blocks: u32,
    file_bytes: u64,
}

/// The stripes in `directories`, if a packed trunk is what they hold and the first
/// is no checkpoint.
pub(super) fn stripes_of(directories: &[PathBuf]) -> Option<PackedFiles> {
    let mut names = directories.first()?.read_dir().ok()?.flatten();
    let is_checkpoint = names.any(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|end| end == "safetensors")
            || path.file_name().is_some_and(|name| name == "config.json")
    });
    match TrunkFiles::open(directories) {
        Ok(TrunkFiles::Packed(files)) if !is_checkpoint => Some(files),
        _ => None,
    }
}

/// The trunk in `directories`, against the checkpoint in `model`, whose shards have
/// these names in order, with `identity`.
///
/// # Errors
///
/// No trunk there, and one that cannot be read.
pub(super) fn beside(
    directories: &[PathBuf],
    model: &Path,
    shards: &[String],
    identity: Option<Identity>,
) -> Result<Option<TrunkCensus>, CliError> {
    let TrunkFiles::Packed(files) = TrunkFiles::open(directories)? else {
        return Ok(None);
    };
    let mut census = TrunkCensus::of(&files)?;
    let Some(identity) = identity else {
        return Ok(Some(census));
    };
    let is_of_this = census.identity == identity.to_string();
    census.is_of_this_checkpoint = Some(is_of_this);
    if !is_of_this {
        census
            .problems
            .push("the packed trunk is of another checkpoint".to_owned());
        return Ok(Some(census));
    }
    match read_manifest(model, identity) {
        Ok(None) => {}
        Ok(Some((path, manifest))) => {
            let trunk = files.open(&identity)?;
            let paths = files.files.iter().map(|file| file.label().to_owned());
            let paths: Vec<_> = paths.collect();
            match trunk.compare_with(&manifest, &path, shards, &paths) {
                Ok(count) => census.manifest_matrices = Some(count),
                Err(error) => census.problems.push(error.to_string()),
            }
        }
        Err(error) => census.problems.push(error.to_string()),
    }
    Ok(Some(census))
}

impl TrunkCensus {
    /// Of the stripes `files`, whatever checkpoint they are of.
    ///
    /// # Errors
    ///
    /// Stripes that are damaged, missing or of several trunks.
    pub(super) fn of(files: &PackedFiles) -> Result<Self, IoError> {
        let headers = files.files.iter().map(|file| StripeHeader::read(file));
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let identity = headers.first().map(|header| header.identity);
        let trunk = files.open(&identity.unwrap_or(Identity::from_bytes([0; 32])))?;
        let sum = |of: fn(&PackedBlock) -> u64| trunk.blocks().iter().map(of).sum();
        let stripe = |(file, header): (&FileReader, &StripeHeader)| StripeRow {
            path: file.label().display().to_string(),
            blocks: header.stripe_blocks,
            file_bytes: header.file_bytes,
        };
        Ok(Self {
            identity: headers[0].identity.to_string(),
            is_of_this_checkpoint: None,
            set_id: k3_formats::manifest::hex(trunk.set_id()),
            block_bytes: trunk.block_bytes(),
            blocks: trunk.blocks().len(),
            raw_bytes: sum(|block| block.raw_bytes),
            stored_bytes: sum(|block| block.stored_bytes),
            extent_bytes: sum(PackedBlock::extent_bytes),
            codecs: codecs(&trunk),
            stripes: files.files.iter().zip(&headers).map(stripe).collect(),
            manifest_matrices: None,
            problems: Vec::new(),
        })
    }

    /// To read.
    #[allow(clippy::cast_precision_loss, reason = "a share to a few digits")]
    pub(super) fn text(&self) -> String {
        let of = match self.is_of_this_checkpoint {
            Some(true) => " (this checkpoint)",
            Some(false) => " (another checkpoint)",
            None => "",
        };
        let share = 100.0 * self.stored_bytes as f64 / self.raw_bytes.max(1) as f64;
        let mut facts = vec![
            ("packed of", format!("{}{of}", self.identity)),
            (
                "blocks",
                format!("{}, at most {} each", self.blocks, Bytes(self.block_bytes)),
            ),
            ("raw", Bytes(self.raw_bytes).to_string()),
            (
                "stored",
                format!("{}, {share:.1} % of raw", Bytes(self.stored_bytes)),
            ),
            (
                "read",
                format!("{} with whole pages", Bytes(self.extent_bytes)),
            ),
        ];
        for row in &self.codecs {
            let (blocks, bytes) = (row.blocks, Bytes(row.stored_bytes));
            let text = format!("{}: {blocks} blocks, {bytes}", row.codec);
            facts.push(("codec", text));
        }
        let source = match self.manifest_matrices {
            Some(count) => format!("{count} matrices as the manifest has them"),
            None => "not compared with a manifest".to_owned(),
        };
        facts.push(("source", source));
        let mut text = table::facts(&facts);
        for stripe in &self.stripes {
            let (path, bytes) = (
                crate::render::escape::line(&stripe.path),
                Bytes(stripe.file_bytes),
            );
            text.push_str(&format!("{path}: {} blocks, {bytes}\n", stripe.blocks));
        }
        for problem in &self.problems {
            text.push_str(&crate::render::wrap::wrap(&format!("problem: {problem}")));
        }
        text
    }
}

fn codecs(trunk: &PackedTrunk) -> Vec<CodecRow> {
    let row = |codec: Codec| {
        let blocks = trunk.blocks().iter().filter(|block| block.codec == codec);
        let mut row = CodecRow {
            codec: codec.name(),
            blocks: 0,
            raw_bytes: 0,
            stored_bytes: 0,
        };
        for block in blocks {
            row.blocks += 1;
            row.raw_bytes += block.raw_bytes;
            row.stored_bytes += block.stored_bytes;
        }
        row
    };
    let mut rows = Codec::ALL.map(row).to_vec();
    rows.retain(|row| row.blocks > 0);
    rows
}
