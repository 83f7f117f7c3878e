//! Reading one shard's header.

use std::borrow::Cow;
use std::collections::HashMap;

use super::entry::{EntrySink, HeaderSeed, RawEntry, Stop};
use super::layout::{Span, check_tiling};
use crate::error::{FormatError, TensorFault};
use crate::json_error::json_error;
use crate::read_at::ReadAt;
use crate::shown::quoted;
use crate::tensor::TensorRef;
use serde::de::DeserializeSeed;

/// Longest header that is read, the limit of the format's reference
/// implementation. It bounds what a hostile file can make a reader allocate:
/// the header itself and at most twice its length for the checks.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Bytes of the length field.
pub(super) const LENGTH_BYTES: u64 = 8;

/// The header of a single shard, held as a list.
///
/// For a checkpoint use [`ShardIndex`](super::ShardIndex), which needs far less
/// memory per tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardHeader {
    /// Name and place of each tensor, in the header's order. The shard number
    /// is 0.
    pub tensors: Vec<(String, TensorRef)>,
    /// The pairs of `__metadata__`, in the header's order.
    pub metadata: Vec<(String, String)>,
    /// Where the data begin: the length field and the header.
    pub data_offset: u64,
}

impl ShardHeader {
    /// Reads and checks the header of one file.
    ///
    /// # Errors
    ///
    /// Any fault of the header itself or against the length of the file.
    pub fn read(file: &dyn ReadAt) -> Result<Self, FormatError> {
        let mut json = Vec::new();
        read_header_json(file, &mut json)?;
        let mut tensors: Vec<(String, TensorRef)> = Vec::new();
        let summary = parse_header(file, 0, &json, &mut |name, tensor| {
            tensors.push((name.to_owned(), tensor));
            Ok(())
        })?;
        let mut seen: HashMap<&str, u64> = HashMap::with_capacity(tensors.len());
        for (name, tensor) in &tensors {
            if let Some(first_offset) = seen.insert(name, tensor.offset) {
                return Err(FormatError::DuplicateTensor {
                    tensor: name.clone(),
                    first: file.label().to_path_buf(),
                    first_offset,
                    second: file.label().to_path_buf(),
                    second_offset: tensor.offset,
                });
            }
        }
        Ok(Self {
            tensors,
            metadata: summary.metadata,
            data_offset: LENGTH_BYTES + json.len() as u64,
        })
    }
}

/// Reads the header's JSON into `json`, whose old content is dropped.
///
/// # Errors
///
/// [`FormatError::HeaderLength`] when the declared length does not fit the file
/// or exceeds [`HEADER_BYTES_MAX`]; nothing is allocated then.
pub(super) fn read_header_json(file: &dyn ReadAt, json: &mut Vec<u8>) -> Result<(), FormatError> {
    let file_bytes = file.len_bytes();
    let fault = |header_bytes| FormatError::HeaderLength {
        path: file.label().to_path_buf(),
        header_bytes,
        file_bytes,
        limit_bytes: HEADER_BYTES_MAX,
    };
    if file_bytes < LENGTH_BYTES {
        return Err(fault(0));
    }
    let mut length = [0; 8];
    file.read_exact_at(0, &mut length)?;
    let header_bytes = u64::from_le_bytes(length);
    // The shortest header is "{}"; compared without adding, so nothing wraps.
    if header_bytes < 2 || header_bytes > HEADER_BYTES_MAX.min(file_bytes - LENGTH_BYTES) {
        return Err(fault(header_bytes));
    }
    let length = usize::try_from(header_bytes).map_err(|_| fault(header_bytes))?;
    json.clear();
    json.resize(length, 0);
    file.read_exact_at(LENGTH_BYTES, json)?;
    if json[0] != b'{' {
        return Err(FormatError::Json {
            path: file.label().to_path_buf(),
            offset: LENGTH_BYTES,
            detail: format!(
                "a header begins with '{{', found byte 0x{:02x}: not a safetensors file",
                json[0]
            ),
        });
    }
    Ok(())
}

/// What remains of a header beside its tensors.
pub(super) struct HeaderSummary {
    pub(super) metadata: Vec<(String, String)>,
    pub(super) tensor_count: u64,
    pub(super) tensor_bytes: u64,
}

/// Gives every tensor of the header to `sink` in the header's order, then
/// checks that they tile the file. `sink` may therefore see tensors of a header
/// that turns out to be wrong.
///
/// # Errors
///
/// Any fault of the header, and those of `sink`.
pub(super) fn parse_header(
    file: &dyn ReadAt,
    shard: u16,
    json: &[u8],
    sink: &mut dyn FnMut(&str, TensorRef) -> Result<(), FormatError>,
) -> Result<HeaderSummary, FormatError> {
    let data_offset = LENGTH_BYTES + json.len() as u64;
    let mut reader = HeaderReader {
        file,
        shard,
        json,
        data_offset,
        sink,
        spans: Vec::new(),
        metadata: Vec::new(),
        current: Cow::Borrowed(""),
        error: None,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let parsed = HeaderSeed(&mut reader)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    if let Err(error) = parsed {
        return Err(reader.failure(&error));
    }
    check_tiling(file, data_offset, &mut reader.spans)?;
    Ok(HeaderSummary {
        metadata: reader.metadata,
        tensor_count: reader.spans.len() as u64,
        tensor_bytes: file.len_bytes() - data_offset,
    })
}

struct HeaderReader<'a, 'de> {
    file: &'a dyn ReadAt,
    shard: u16,
    json: &'de [u8],
    data_offset: u64,
    sink: &'a mut dyn FnMut(&str, TensorRef) -> Result<(), FormatError>,
    spans: Vec<Span<'de>>,
    metadata: Vec<(String, String)>,
    /// Name of the entry being read.
    current: Cow<'de, str>,
    error: Option<FormatError>,
}

impl<'de> EntrySink<'de> for HeaderReader<'_, 'de> {
    fn name(&mut self, name: Cow<'de, str>) {
        self.current = name;
    }

    fn entry(&mut self, entry: Result<RawEntry, TensorFault>) -> Result<(), Stop> {
        let name = std::mem::take(&mut self.current);
        let entry_offset = self.entry_offset(&name);
        let result = entry
            .and_then(|entry| self.place(&entry))
            .map_err(|fault| FormatError::Tensor {
                path: self.file.label().to_path_buf(),
                offset: entry_offset,
                tensor: name.to_string(),
                fault,
            })
            .and_then(|tensor| (self.sink)(&name, tensor).map(|()| tensor));
        match result {
            Ok(tensor) => {
                let begin = tensor.offset - self.data_offset;
                self.spans.push(Span {
                    begin,
                    end: begin + tensor.bytes,
                    entry_offset,
                    name,
                });
                Ok(())
            }
            Err(error) => {
                self.error = Some(error);
                Err(Stop)
            }
        }
    }

    fn metadata(&mut self, key: String, value: String) {
        self.metadata.push((key, value));
    }
}

impl HeaderReader<'_, '_> {
    /// Compares an entry with itself; the file's length comes later, when it is
    /// known whether all entries together exceed it.
    fn place(&self, entry: &RawEntry) -> Result<TensorRef, TensorFault> {
        let RawEntry {
            dtype,
            shape,
            begin,
            end,
        } = *entry;
        let found = end
            .checked_sub(begin)
            .ok_or(TensorFault::ReversedRange { begin, end })?;
        let expected = shape
            .size_bytes(dtype)
            .ok_or_else(|| TensorFault::ShapeOverflow {
                shape: shape.to_string(),
                dtype: dtype.name(),
            })?;
        if expected != found {
            return Err(TensorFault::LengthMismatch {
                shape: shape.to_string(),
                dtype: dtype.name(),
                expected,
                found,
            });
        }
        if self.data_offset.checked_add(end).is_none() {
            return Err(TensorFault::RangeOverflow { end });
        }
        Ok(TensorRef {
            shard: self.shard,
            dtype,
            shape,
            offset: self.data_offset + begin,
            bytes: found,
        })
    }

    /// Where a name stands in the file. A name with escapes was decoded, so it
    /// is not part of the header's text; for it the header's start is given.
    fn entry_offset(&self, name: &str) -> u64 {
        let within = (name.as_ptr() as usize)
            .checked_sub(self.json.as_ptr() as usize)
            .filter(|&within| within < self.json.len());
        LENGTH_BYTES + within.unwrap_or(0) as u64
    }

    fn failure(self, error: &serde_json::Error) -> FormatError {
        if let Some(error) = self.error {
            return error;
        }
        let mut error = json_error(self.file.label(), self.json, LENGTH_BYTES, error);
        if let FormatError::Json { detail, .. } = &mut error {
            if !self.current.is_empty() {
                *detail = format!("tensor {}: {detail}", quoted(&self.current));
            }
            // Text that goes on or breaks off is what a wrong length looks like.
            *detail = format!(
                "{detail}: the header, {} bytes by the length at offset 0, is damaged or has \
                 another length; fetch this file again",
                self.json.len()
            );
        }
        error
    }
}
