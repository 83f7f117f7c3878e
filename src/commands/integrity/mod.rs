//! Getting a checkpoint, checking it, mending it.
//!
//! | module | holds |
//! |---|---|
//! | [`fetch`], [`verify`], [`repair`] | the commands |
//! | [`hub`] | what the environment says about the hub |
//! | [`onlooker`] | progress on a terminal, and Ctrl-C |

pub(crate) mod fetch;
mod hub;
mod onlooker;
pub(crate) mod repair;
pub(crate) mod verify;

use k3_integrity::check::{BadKind, BadRange};

use crate::render::escape;
use crate::render::wrap::wrap;

/// Ranges that are listed for a person.
const LISTED_MAX: usize = 40;

/// A bad range: its place, what it holds, and `more`, within the width of a
/// terminal.
fn shown(bad: &BadRange, more: &str) -> String {
    let what = match bad.kind {
        BadKind::Mismatch => "other bytes",
        BadKind::Missing => "the file is not there",
        BadKind::Short => "the file ends before",
        BadKind::Long => "too many bytes",
        BadKind::Unreadable => "cannot be read",
    };
    let detail = bad
        .detail
        .as_ref()
        .map_or_else(String::new, |detail| format!(" ({detail})"));
    let place = format!(
        "{} at {}, {} bytes: {what}",
        bad.file, bad.offset, bad.bytes
    );
    let content = format!("{}{detail}{more}", bad.content);
    wrap(&format!(
        "  {}\n    {}\n",
        escape::line(&place),
        escape::line(&content)
    ))
}

/// Some of a list, and how many more there are.
fn list<T>(all: &[T], show: impl Fn(&T) -> String) -> String {
    let mut text: String = all.iter().take(LISTED_MAX).map(show).collect();
    if let Some(more) = all.len().checked_sub(LISTED_MAX + 1) {
        text.push_str(&format!("  and {} more, which --json lists\n", more + 1));
    }
    text
}
