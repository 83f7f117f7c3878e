//! Where a process may be killed: tests end it at any of these points.

use std::io;

/// Passed before each call that changes or looks at files. Tests make it fail; all
/// later ones fail too then, as those of a killed process are never made.
#[cfg(not(test))]
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "tests make it fail")]
pub(super) fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use shim::{STEPS_LEFT, step};

#[cfg(test)]
mod shim {
    use super::io;
    use std::cell::Cell;

    thread_local! {
        /// Steps until the thread counts as killed; `None` lives on.
        pub(in crate::prefix) static STEPS_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    pub(in crate::prefix) fn step() -> io::Result<()> {
        match STEPS_LEFT.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("killed")),
            Some(left) => {
                STEPS_LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
