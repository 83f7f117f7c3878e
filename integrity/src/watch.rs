//! Who looks on.

use std::path::Path;

/// Hears of progress and may stop the work; called from any thread.
pub trait Watch: Send + Sync {
    /// Asked often; `false` ends the work soon.
    fn go_on(&self) -> bool {
        true
    }

    /// Something begins that takes so many bytes: "checking", "fetching".
    fn phase(&self, _label: &'static str, _total_bytes: u64) {}

    /// So many more bytes are done.
    fn bytes(&self, _count: u64) {}

    /// So many bytes have to be done again.
    fn undone(&self, _count: u64) {}

    /// A file is begun that is of no use to anybody until [`Watch::finished`].
    fn unfinished(&self, _path: &Path) {}

    /// It is complete, or gone.
    fn finished(&self, _path: &Path) {}

    /// Something a person should know.
    fn message(&self, _text: &str) {}
}

/// Nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watch for Silent {}
