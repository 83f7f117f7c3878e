//! Files as read engines see them: open, grouped by device, direct where the
//! file system really does direct reads.

mod dio;
mod file;
mod table;

pub use file::{DirectFile, DirectPolicy};
pub use table::{FileId, FileTable};
