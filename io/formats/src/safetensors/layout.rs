//! Whether the tensors of a shard tile its data exactly.

use std::borrow::Cow;

use crate::error::{FormatError, TensorFault};
use crate::read_at::ReadAt;

/// A tensor's range in the data part, with the name for messages.
pub(super) struct Span<'de> {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Where the entry stands in the file.
    pub(super) entry_offset: u64,
    pub(super) name: Cow<'de, str>,
}

/// Checks that the spans follow one another from 0 to the end of the file,
/// whose data part starts at `data_offset`. Sorts `spans`.
///
/// # Errors
///
/// An overlap, a hole, a file that ends too early or too late.
pub(super) fn check_tiling(
    file: &dyn ReadAt,
    data_offset: u64,
    spans: &mut [Span<'_>],
) -> Result<(), FormatError> {
    spans.sort_unstable_by_key(|span| (span.begin, span.end));
    let mut cursor = 0;
    let mut previous: Option<&Span<'_>> = None;
    for span in &*spans {
        if span.begin != cursor {
            return Err(FormatError::Tensor {
                path: file.label().to_path_buf(),
                offset: span.entry_offset,
                tensor: span.name.to_string(),
                fault: misplaced(span, cursor, previous),
            });
        }
        cursor = span.end;
        previous = Some(span);
    }
    // Every entry was checked not to wrap when the data offset is added.
    let expected_bytes = data_offset + cursor;
    let actual_bytes = file.len_bytes();
    if actual_bytes < expected_bytes {
        let available = actual_bytes.saturating_sub(data_offset);
        let cut = spans.iter().find(|span| span.end > available);
        return Err(FormatError::Truncated {
            path: file.label().to_path_buf(),
            tensor: cut.map(|span| span.name.to_string()).unwrap_or_default(),
            offset: data_offset + cut.map_or(0, |span| span.begin),
            expected_bytes,
            actual_bytes,
        });
    }
    if actual_bytes > expected_bytes {
        return Err(FormatError::TrailingData {
            path: file.label().to_path_buf(),
            offset: expected_bytes,
            extra_bytes: actual_bytes - expected_bytes,
        });
    }
    Ok(())
}

fn misplaced(span: &Span<'_>, cursor: u64, previous: Option<&Span<'_>>) -> TensorFault {
    match previous {
        Some(other) if span.begin < cursor => TensorFault::Overlap {
            begin: span.begin,
            other: other.name.to_string(),
            other_end: other.end,
        },
        _ => TensorFault::Hole {
            begin: span.begin,
            gap_bytes: span.begin - cursor,
        },
    }
}
