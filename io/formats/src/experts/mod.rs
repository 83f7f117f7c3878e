//! Routed experts: a dense table instead of half a million names.

mod directory;
mod name;
mod reference;

pub use directory::ExpertDirectory;
pub(crate) use directory::{AddedPart, DirectoryBuilder, Sample, matrix_form};
pub use name::{EXPERT_PARTS, ExpertPart};
pub(crate) use name::{ExpertName, layer_of};
pub use reference::{ExpertRef, Segment, Segments};
