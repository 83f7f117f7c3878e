//! Pages that lie in a file: what the table of a sequence and its sweeps need of
//! whoever has the file.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// Why a page could not be written away or read back, for every sequence that it
/// concerns.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<dyn Error + Send + Sync>);

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        Self::other(error)
    }
}

/// One layer's part of a page, as it was read ahead of the layer: its elements,
/// for as long as the value lives.
pub type PastPart = Box<dyn Deref<Target = [f32]> + Send + Sync>;

/// Where pages lie that are not in memory. A place holds one page: as many parts
/// as there are layers that have one, each written and read by itself.
pub trait PageStore: Send + Sync + fmt::Debug {
    /// Writes `values`, a whole part, as part `part` of the page at `place`.
    ///
    /// # Errors
    ///
    /// What the file system reports.
    fn write(&self, place: u32, part: usize, values: &[f32]) -> Result<(), StoreError>;

    /// Reads the same back, on the spot.
    ///
    /// # Errors
    ///
    /// What the file system reports, and a part that is not what was written.
    fn read(&self, place: u32, part: usize, values: &mut [f32]) -> Result<(), StoreError>;
}

/// Pages beyond those in memory, for the sequences of a pool.
#[derive(Debug, Clone)]
pub struct Spill {
    /// Where they go.
    pub store: Arc<dyn PageStore>,
    /// Places there.
    pub place_count: usize,
    /// Pages that each sequence has in memory, at least one.
    pub memory_pages: usize,
    /// Elements of one layer's part.
    pub part_len: usize,
}
