//! A pull reader for JSON files too long to hold: strings and structure only.
//!
//! The index of a large checkpoint is 55 MB of one flat object. This reader
//! keeps a window of it, hands out strings from the window, and leaves the
//! decoding of anything unusual (escapes, numbers) to `serde_json`.

use std::borrow::Cow;

use crate::error::FormatError;
use crate::json_error::byte_order_mark;
use crate::read_at::ReadAt;

/// Bytes kept of the file; also the longest string that is read.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;

/// Deepest nesting of a value that is skipped.
const DEPTH_MAX: usize = 32;

pub(crate) struct JsonStream<'f> {
    file: &'f dyn ReadAt,
    window: Vec<u8>,
    /// Bytes of `window` that hold file content.
    filled: usize,
    /// Next byte to read, within `window`.
    next: usize,
    /// File offset of the window's first byte.
    window_offset: u64,
}

impl<'f> JsonStream<'f> {
    pub(crate) fn new(file: &'f dyn ReadAt) -> Self {
        let length = usize::try_from(file.len_bytes()).unwrap_or(WINDOW_BYTES);
        Self {
            file,
            window: vec![0; length.min(WINDOW_BYTES)],
            filled: 0,
            next: 0,
            window_offset: 0,
        }
    }

    /// Gives a byte order mark its own message.
    pub(crate) fn refuse_byte_order_mark(&mut self) -> Result<(), FormatError> {
        self.refill()?;
        match byte_order_mark(&self.window[..self.filled]) {
            Some(detail) => Err(self.fault(0, detail)),
            None => Ok(()),
        }
    }

    /// File offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.window_offset + self.next as u64
    }

    pub(crate) fn fault(&self, offset: u64, detail: impl Into<String>) -> FormatError {
        FormatError::Json {
            path: self.file.label().to_path_buf(),
            offset,
            detail: detail.into(),
        }
    }

    /// Drops what was read and fills the window; `false` when nothing came.
    fn refill(&mut self) -> Result<bool, FormatError> {
        self.window.copy_within(self.next..self.filled, 0);
        self.window_offset += self.next as u64;
        self.filled -= self.next;
        self.next = 0;
        let read_offset = self.window_offset + self.filled as u64;
        let left = self.file.len_bytes().saturating_sub(read_offset);
        let room = self.window.len() - self.filled;
        let count = usize::try_from(left).unwrap_or(room).min(room);
        let target = &mut self.window[self.filled..self.filled + count];
        self.file.read_exact_at(read_offset, target)?;
        self.filled += count;
        Ok(count > 0)
    }

    /// The next byte that is not white space, unread; `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, FormatError> {
        loop {
            while self.next < self.filled {
                let byte = self.window[self.next];
                if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                    return Ok(Some(byte));
                }
                self.next += 1;
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }

    /// Reads one byte of structure.
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<(), FormatError> {
        let found = self.peek()?;
        if found == Some(wanted) {
            self.next += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("'{}'", char::from(wanted)), found))
    }

    /// After a member or item: `true` when another follows, `false` at `end`.
    pub(crate) fn another(&mut self, end: u8) -> Result<bool, FormatError> {
        let found = self.peek()?;
        if found != Some(b',') && found != Some(end) {
            return Err(self.unexpected(&format!("',' or '{}'", char::from(end)), found));
        }
        self.next += 1;
        Ok(found == Some(b','))
    }

    /// Reads an opening byte; `true` when the object or list is empty.
    pub(crate) fn open(&mut self, start: u8, end: u8) -> Result<bool, FormatError> {
        self.expect(start)?;
        let empty = self.peek()? == Some(end);
        if empty {
            self.next += 1;
        }
        Ok(empty)
    }

    pub(crate) fn unexpected(&self, wanted: &str, found: Option<u8>) -> FormatError {
        let found = match found {
            Some(byte) => format!("byte 0x{byte:02x}"),
            None => "the end of the file: it is cut short, fetch it again".to_owned(),
        };
        self.fault(self.offset(), format!("expected {wanted}, found {found}"))
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<Cow<'_, str>, FormatError> {
        self.expect(b'"')?;
        let mut length = 0;
        let mut has_escape = false;
        loop {
            let rest = &self.window[self.next + length..self.filled];
            let Some(step) = rest
                .iter()
                .position(|&b| b == b'"' || b == b'\\' || b < 0x20)
            else {
                length += rest.len();
                self.extend(length)?;
                continue;
            };
            length += step;
            match rest[step] {
                b'"' => break,
                b'\\' => {
                    has_escape = true;
                    // The escaped byte may be a quote; it ends nothing.
                    while self.next + length + 2 > self.filled {
                        self.extend(length + 1)?;
                    }
                    length += 2;
                }
                byte => {
                    let offset = self.offset() + length as u64;
                    return Err(self.fault(offset, format!("byte 0x{byte:02x} in a string")));
                }
            }
        }
        let start = self.next;
        self.next += length + 1;
        let offset = self.window_offset + start as u64;
        if has_escape {
            let quoted = &self.window[start - 1..=start + length];
            return serde_json::from_slice(quoted)
                .map(Cow::Owned)
                .map_err(|error| self.fault(offset, error.to_string()));
        }
        match std::str::from_utf8(&self.window[start..start + length]) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(error) => {
                let offset = offset + error.valid_up_to() as u64;
                Err(self.fault(offset, "a string that is not UTF-8"))
            }
        }
    }

    /// Makes more of a string visible, of which `length` bytes are already.
    /// Keeps the byte before it, the opening quote.
    fn extend(&mut self, length: usize) -> Result<(), FormatError> {
        self.next -= 1;
        let grown = self.refill();
        self.next += 1;
        if grown? {
            return Ok(());
        }
        if self.filled == self.window.len() && self.filled == WINDOW_BYTES {
            let detail = format!("a string longer than {} bytes", WINDOW_BYTES - 2);
            return Err(self.fault(self.offset(), detail));
        }
        let end = self.offset() + length as u64;
        Err(self.fault(
            end,
            "the file ends within a string: it is cut short, fetch it again",
        ))
    }

    /// Reads a number, `true`, `false` or `null` and returns its text.
    fn scalar(&mut self) -> Result<String, FormatError> {
        let offset = self.offset();
        let mut text = Vec::new();
        while let Some(byte) = self.peek_raw()? {
            if !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') {
                break;
            }
            text.push(byte);
            self.next += 1;
            if text.len() > 64 {
                return Err(self.fault(offset, "a number or word longer than 64 bytes"));
            }
        }
        if text.is_empty() {
            let found = self.peek()?;
            return Err(self.unexpected("a value", found));
        }
        match serde_json::from_slice::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) => Err(self.fault(offset, error.to_string())),
        }
    }

    fn peek_raw(&mut self) -> Result<Option<u8>, FormatError> {
        if self.next == self.filled && !self.refill()? {
            return Ok(None);
        }
        Ok(Some(self.window[self.next]))
    }

    /// Reads any value and drops it; returns the text of a number or word.
    pub(crate) fn skip(&mut self, depth: usize) -> Result<Option<String>, FormatError> {
        if depth > DEPTH_MAX {
            let detail = format!("values nested more than {DEPTH_MAX} deep");
            return Err(self.fault(self.offset(), detail));
        }
        match self.peek()? {
            Some(b'"') => drop(self.string()?),
            Some(b'{') => {
                let mut more = !self.open(b'{', b'}')?;
                while more {
                    drop(self.string()?);
                    self.expect(b':')?;
                    self.skip(depth + 1)?;
                    more = self.another(b'}')?;
                }
            }
            Some(b'[') => {
                let mut more = !self.open(b'[', b']')?;
                while more {
                    self.skip(depth + 1)?;
                    more = self.another(b']')?;
                }
            }
            _ => return self.scalar().map(Some),
        }
        Ok(None)
    }

    /// Checks that nothing but white space follows.
    pub(crate) fn finish(&mut self) -> Result<(), FormatError> {
        match self.peek()? {
            None => Ok(()),
            found => Err(self.unexpected("the end of the file", found)),
        }
    }
}
