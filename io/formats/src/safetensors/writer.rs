//! Writing shards and shard indexes.
//!
//! The layout is under the caller's control: tensors are stored in the order
//! given, without holes, and the header may be padded to an alignment or to an
//! odd length, so that fixtures can place data anywhere.

use std::io::{self, Write};

use crate::dtype::Dtype;
use crate::tensor::Shape;

/// How a header is padded with trailing spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderPadding {
    /// So that the data begin at a multiple of this many bytes; the reference
    /// writer uses 8. Must not be zero.
    AlignDataTo(u64),
    /// This many spaces, whatever alignment that gives.
    Spaces(usize),
}

/// Collects the tensors of one shard and writes its header.
#[derive(Debug, Clone, Default)]
pub struct HeaderBuilder {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, Dtype, Shape)>,
    data_bytes: u64,
}

impl HeaderBuilder {
    /// A shard without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pair to `__metadata__`.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Appends a tensor after those added before.
    ///
    /// # Panics
    ///
    /// When `shape` has more than [`MAX_DIMENSIONS`](crate::MAX_DIMENSIONS)
    /// dimensions or the shard would exceed 64 bits.
    pub fn tensor(&mut self, name: impl Into<String>, dtype: Dtype, shape: &[u64]) -> &mut Self {
        let shape = Shape::new(shape).expect("at most four dimensions");
        self.data_bytes = shape
            .size_bytes(dtype)
            .and_then(|bytes| self.data_bytes.checked_add(bytes))
            .expect("a shard is smaller than 2^64 bytes");
        self.tensors.push((name.into(), dtype, shape));
        self
    }

    /// Bytes of all tensors: the length of the data part.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    /// Bytes of each tensor, in the order they are stored.
    pub fn tensor_bytes(&self) -> impl Iterator<Item = u64> {
        self.tensors
            .iter()
            .map(|(_, dtype, shape)| size_bytes(shape, *dtype))
    }

    /// The length field and the header: everything before the data.
    ///
    /// # Panics
    ///
    /// When `padding` asks for an alignment of zero.
    pub fn build(&self, padding: HeaderPadding) -> Vec<u8> {
        let mut file = vec![0; 8];
        self.push_json(&mut file);
        let spaces = match padding {
            HeaderPadding::Spaces(spaces) => spaces,
            HeaderPadding::AlignDataTo(alignment) => {
                let length = file.len() as u64;
                let spaces = length.next_multiple_of(alignment) - length;
                usize::try_from(spaces).expect("an alignment fits the address space")
            }
        };
        file.resize(file.len() + spaces, b' ');
        let header_bytes = (file.len() - 8) as u64;
        file[..8].copy_from_slice(&header_bytes.to_le_bytes());
        file
    }

    /// A whole shard in memory; `data` is the tensors' bytes one after another.
    ///
    /// # Panics
    ///
    /// When `data` is not [`HeaderBuilder::data_bytes`] long.
    pub fn build_file(&self, padding: HeaderPadding, data: &[u8]) -> Vec<u8> {
        assert_eq!(data.len() as u64, self.data_bytes, "length of the data");
        let mut file = self.build(padding);
        file.extend_from_slice(data);
        file
    }

    fn push_json(&self, file: &mut Vec<u8>) {
        let mut separator = b'{';
        if !self.metadata.is_empty() {
            file.extend_from_slice(b"{\"__metadata__\":");
            let mut inner = b'{';
            for (key, value) in &self.metadata {
                file.push(std::mem::replace(&mut inner, b','));
                push_string(file, key);
                file.push(b':');
                push_string(file, value);
            }
            file.push(b'}');
            separator = b',';
        }
        let mut begin = 0;
        for (name, dtype, shape) in &self.tensors {
            file.push(std::mem::replace(&mut separator, b','));
            let end = begin + size_bytes(shape, *dtype);
            push_string(file, name);
            let dimensions: Vec<String> = shape.as_slice().iter().map(u64::to_string).collect();
            let entry = format!(
                ":{{\"dtype\":\"{dtype}\",\"shape\":[{}],\"data_offsets\":[{begin},{end}]}}",
                dimensions.join(",")
            );
            file.extend_from_slice(entry.as_bytes());
            begin = end;
        }
        if separator == b'{' {
            file.push(b'{');
        }
        file.push(b'}');
    }
}

fn size_bytes(shape: &Shape, dtype: Dtype) -> u64 {
    shape
        .size_bytes(dtype)
        .expect("checked when the tensor was added")
}

fn push_string(file: &mut Vec<u8>, text: &str) {
    let quoted = serde_json::to_string(text).expect("a string always serialises");
    file.extend_from_slice(quoted.as_bytes());
}

/// Writes one shard tensor by tensor, without holding it in memory.
#[derive(Debug)]
pub struct ShardWriter<W> {
    out: W,
    remaining: std::vec::IntoIter<u64>,
}

impl<W: Write> ShardWriter<W> {
    /// Writes the header; the tensors' bytes follow in the builder's order.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W, header: &HeaderBuilder, padding: HeaderPadding) -> io::Result<Self> {
        out.write_all(&header.build(padding))?;
        let sizes: Vec<u64> = header.tensor_bytes().collect();
        Ok(Self {
            out,
            remaining: sizes.into_iter(),
        })
    }

    /// Writes the next tensor's bytes.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    ///
    /// # Panics
    ///
    /// When the header has no further tensor or one of another length.
    pub fn tensor(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(
            self.remaining.next(),
            Some(bytes.len() as u64),
            "length of the next tensor"
        );
        self.out.write_all(bytes)
    }

    /// Ends the shard and gives the output back.
    ///
    /// # Errors
    ///
    /// Those of flushing `out`.
    ///
    /// # Panics
    ///
    /// When tensors of the header were not written.
    pub fn finish(mut self) -> io::Result<W> {
        assert_eq!(self.remaining.len(), 0, "tensors left unwritten");
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes `model.safetensors.index.json`: each tensor's name with the file name
/// of its shard. `total_bytes` is the sum of all tensors.
///
/// # Errors
///
/// Those of `out`.
pub fn write_index<'a, W: Write>(
    mut out: W,
    total_bytes: u64,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> io::Result<()> {
    write!(
        out,
        "{{\n  \"metadata\": {{\n    \"total_size\": {total_bytes}\n  }},\n  \"weight_map\": {{"
    )?;
    let mut line = Vec::new();
    let mut separator = "\n";
    for (name, shard) in entries {
        line.clear();
        line.extend_from_slice(std::mem::replace(&mut separator, ",\n").as_bytes());
        line.extend_from_slice(b"    ");
        push_string(&mut line, name);
        line.extend_from_slice(b": ");
        push_string(&mut line, shard);
        out.write_all(&line)?;
    }
    out.write_all(b"\n  }\n}\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_places_the_data() {
        let mut header = HeaderBuilder::new();
        header
            .metadata("format", "pt")
            .tensor("a", Dtype::Bf16, &[3, 5]);
        for alignment in [1, 8, 4096] {
            let file = header.build(HeaderPadding::AlignDataTo(alignment));
            assert_eq!(file.len() as u64 % alignment, 0);
        }
        let plain = header.build(HeaderPadding::Spaces(0)).len();
        let file = header.build_file(HeaderPadding::Spaces(7), &[9; 30]);
        assert_eq!(file.len(), plain + 7 + 30);
        assert_eq!(&file[8..plain + 7], {
            let mut json = header.build(HeaderPadding::Spaces(0))[8..].to_vec();
            json.extend_from_slice(b"       ");
            json
        });
        assert!(serde_json::from_slice::<serde_json::Value>(&file[8..plain]).is_ok());
    }

    #[test]
    fn an_empty_header_is_an_empty_object() {
        let file = HeaderBuilder::new().build(HeaderPadding::Spaces(0));
        assert_eq!(file, [&2_u64.to_le_bytes()[..], b"{}"].concat());
    }

    #[test]
    fn the_streaming_writer_equals_the_builder() {
        let mut header = HeaderBuilder::new();
        header
            .tensor("x", Dtype::U8, &[3])
            .tensor("y", Dtype::F32, &[1]);
        let padding = HeaderPadding::AlignDataTo(8);
        let mut writer = ShardWriter::new(Vec::new(), &header, padding).unwrap();
        writer.tensor(&[1, 2, 3]).unwrap();
        writer.tensor(&[4, 5, 6, 7]).unwrap();
        let file = writer.finish().unwrap();
        assert_eq!(file, header.build_file(padding, &[1, 2, 3, 4, 5, 6, 7]));
    }

    #[test]
    #[should_panic(expected = "length of the next tensor")]
    fn the_streaming_writer_refuses_a_wrong_length() {
        let mut header = HeaderBuilder::new();
        header.tensor("x", Dtype::U8, &[3]);
        let mut writer = ShardWriter::new(Vec::new(), &header, HeaderPadding::Spaces(0)).unwrap();
        drop(writer.tensor(&[1]));
    }

    #[test]
    fn the_index_is_json_with_a_weight_map() {
        let mut text = Vec::new();
        write_index(
            &mut text,
            7,
            [("a\"b", "1.safetensors"), ("c", "2.safetensors")],
        )
        .unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["metadata"]["total_size"], 7);
        assert_eq!(value["weight_map"]["a\"b"], "1.safetensors");
        let mut empty = Vec::new();
        write_index(&mut empty, 0, []).unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&empty).is_ok());
    }
}
