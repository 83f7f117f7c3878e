//! From `serde_json`'s line and column to a byte offset in the file.

use std::path::Path;

use crate::error::FormatError;

/// Marks that editors put before a text and JSON does not allow.
const BYTE_ORDER_MARKS: [(&[u8], &str); 3] = [
    (b"\xEF\xBB\xBF", "UTF-8"),
    (b"\xFF\xFE", "UTF-16"),
    (b"\xFE\xFF", "UTF-16"),
];

/// What is wrong with a file that starts with a byte order mark.
pub(crate) fn byte_order_mark(start: &[u8]) -> Option<String> {
    let (_, encoding) = BYTE_ORDER_MARKS
        .iter()
        .find(|(mark, _)| start.starts_with(mark))?;
    Some(format!(
        "the file begins with a byte order mark of {encoding}, which JSON does not allow: an \
         editor put it there; save the file as UTF-8 without a mark or fetch it again"
    ))
}

/// The error of a JSON text that starts at `base_offset` in the file.
pub(crate) fn json_error(
    path: &Path,
    text: &[u8],
    base_offset: u64,
    error: &serde_json::Error,
) -> FormatError {
    // The message repeats line and column at its end; the offset says it better.
    let message = error.to_string();
    let detail = match message.rfind(" at line ") {
        Some(end) if error.line() > 0 => message[..end].to_owned(),
        _ => message,
    };
    FormatError::Json {
        path: path.to_path_buf(),
        offset: base_offset + byte_offset(text, error.line(), error.column()) as u64,
        detail,
    }
}

/// Offset of a one-based line and column; columns count bytes.
fn byte_offset(text: &[u8], line: usize, column: usize) -> usize {
    let line_start = text
        .split_inclusive(|&byte| byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>();
    (line_start + column.saturating_sub(1)).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_point_at_the_byte() {
        for text in ["{\"a\": 1,\n \"b\": x}", "x", "[1,\n\n2,x]", "{\"a\" x"] {
            let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
            let error = json_error(Path::new("file"), text.as_bytes(), 8, &error);
            let FormatError::Json { offset, detail, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(
                *offset,
                8 + text.find('x').unwrap() as u64,
                "{text}: {detail}"
            );
            assert!(!detail.contains("column"), "{detail}");
        }
    }
}
