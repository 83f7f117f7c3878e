//! Whether an answer is the range that was asked for.

use super::{Answer, HttpError};

/// What an answer to a request for a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeAnswer {
    /// The range.
    Part,
    /// The whole file: the server takes no ranges.
    Whole,
}

/// Compares an answer with the request for `begin..end` of a file of
/// `file_bytes` bytes.
///
/// # Errors
///
/// [`HttpError::Answer`] when it is of another file, place or length.
pub(crate) fn range_answer(
    answer: &Answer,
    (begin, end): (u64, u64),
    file_bytes: u64,
) -> Result<RangeAnswer, HttpError> {
    let fault = |reason| {
        Err(HttpError::Answer {
            url: answer.address.to_string(),
            reason,
        })
    };
    let (is_part, wanted) = match answer.status {
        206 => (true, end - begin),
        _ => (false, file_bytes),
    };
    if let Some(stated) = answer.content_length()
        && stated != wanted
    {
        return fault(format!("announces {stated} bytes instead of {wanted}"));
    }
    if !is_part {
        return Ok(RangeAnswer::Whole);
    }
    let stated = answer.header("content-range").unwrap_or("no Content-Range");
    match parse_content_range(stated) {
        Some((first, last, total))
            if first == begin
                && last + 1 == end
                && total.is_none_or(|total| total == file_bytes) =>
        {
            Ok(RangeAnswer::Part)
        }
        _ => fault(format!(
            "answers with {stated:.80?} to a request for bytes {begin}-{} of {file_bytes}",
            end - 1
        )),
    }
}

/// First and last byte and the length of the file, where it is known.
fn parse_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let total = match total {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < u64::MAX).then_some((first, last, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_strictly() {
        assert_eq!(parse_content_range("bytes 5-9/20"), Some((5, 9, Some(20))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, 9, None)));
        let max = format!("bytes 0-{}/1", u64::MAX);
        for wrong in [
            "",
            "5-9/20",
            "bytes 9-5/20",
            "bytes */20",
            "bytes 5-/20",
            &max,
        ] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
