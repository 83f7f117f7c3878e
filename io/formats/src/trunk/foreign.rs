//! The field's raw trunk: `trunk.json` beside `trunk.bin`.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::fault::TrunkFault;
use crate::dtype::Dtype;
use crate::error::FormatError;
use crate::json_error::{byte_order_mark, json_error};
use crate::read_at::{ReadAt, read_all};
use crate::tensor::Shape;

/// Longest `trunk.json` that is read; that of the released model has a megabyte.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// What the runs in `trunk.bin` are aligned to.
const ALIGNMENT: u64 = 4096;

/// A tensor in `trunk.bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTensor {
    /// First byte in `trunk.bin`; no alignment.
    pub offset: u64,
    /// Length in bytes: the shape's elements times the element size.
    pub bytes: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// The layer it is listed under.
    pub layer: u32,
    /// First byte in the shard it was copied from, where the trunk tells.
    pub source_offset: Option<u64>,
}

/// A raw trunk as other tools pack it: layer by layer a copy of the tensors that
/// are no expert's. Nothing binds it to a checkpoint but names and shapes.
#[derive(Debug, Clone)]
pub struct ForeignTrunk {
    tensors: HashMap<String, ForeignTensor>,
    /// The shard that each layer was copied from, where its file name is told.
    shards: Vec<Option<String>>,
}

impl ForeignTrunk {
    /// Reads `trunk.json` and compares it with the length of `trunk.bin`.
    ///
    /// # Errors
    ///
    /// JSON of another form; layers that are missing, twice, misaligned or
    /// beyond the file; tensors that are twice, beyond their layer, of an unknown
    /// type or of another length than their shape.
    pub fn open(json: &dyn ReadAt, bin: &dyn ReadAt) -> Result<Self, FormatError> {
        let text = read_all(json, JSON_BYTES_MAX)?;
        if let Some(detail) = byte_order_mark(&text) {
            return Err(FormatError::Json {
                path: json.label().to_path_buf(),
                offset: 0,
                detail,
            });
        }
        let file: File = serde_json::from_slice(&text)
            .map_err(|error| json_error(json.label(), &text, 0, &error))?;
        let fault = |(place, detail): (String, String)| FormatError::Trunk {
            path: json.label().to_path_buf(),
            offset: place_of(&text, &place),
            fault: Box::new(TrunkFault::Foreign { place, detail }),
        };
        file.check_runs(bin.len_bytes()).map_err(fault)?;
        let mut tensors = HashMap::new();
        for run in &file.layers {
            for (name, entry) in &run.tensors.0 {
                let tensor = run
                    .place(entry)
                    .map_err(|detail| fault((name.clone(), detail)))?;
                if let Some(first) = tensors.insert(name.clone(), tensor) {
                    let detail = format!("stands twice, first in layer {}", first.layer);
                    return Err(fault((name.clone(), detail)));
                }
            }
        }
        let mut layers = file.layers;
        layers.sort_unstable_by_key(|run| run.layer);
        let shards = layers.into_iter().map(|run| run.shard_name());
        Ok(Self {
            tensors,
            shards: shards.collect(),
        })
    }

    /// The tensor with that full name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ForeignTensor> {
        self.tensors.get(name)
    }

    /// Layers that are in it.
    #[must_use]
    pub fn layer_count(&self) -> u32 {
        u32::try_from(self.shards.len()).expect("counted by a 32-bit field")
    }

    /// File name of the shard that a layer was copied from; `None` where the trunk does
    /// not tell it by name.
    ///
    /// # Panics
    ///
    /// When there is no such layer.
    #[must_use]
    pub fn shard(&self, layer: u32) -> Option<&str> {
        self.shards[layer as usize].as_deref()
    }

    /// Tensors that are in it.
    #[must_use]
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }
}

/// Offset in the text of what a fault is about: of a tensor its name, of a layer
/// the start of the file.
fn place_of(text: &[u8], place: &str) -> u64 {
    let quoted = format!("\"{place}\"");
    let found = text
        .windows(quoted.len())
        .position(|window| window == quoted.as_bytes());
    found.unwrap_or(0) as u64
}

/// What is wrong, and with what.
type Fault = (String, String);

#[derive(Deserialize)]
struct File {
    n_layers: u32,
    align: u64,
    layers: Vec<Run>,
}

/// A layer: one contiguous copy. Fields that nothing here needs may be missing.
#[derive(Deserialize)]
struct Run {
    layer: u32,
    #[serde(default)]
    shard: ShardName,
    #[serde(default)]
    run_start: Option<u64>,
    nbytes: u64,
    file_off: u64,
    tensors: Tensors,
}

#[derive(Deserialize)]
struct Entry {
    off: u64,
    nbytes: u64,
    dtype: String,
    shape: Vec<u64>,
}

impl File {
    /// Layers are all there, once, each within the file and clear of the others.
    fn check_runs(&self, bin_bytes: u64) -> Result<(), Fault> {
        let fault = |place: &str, detail: String| Err((place.to_owned(), detail));
        if self.align != ALIGNMENT {
            let detail = format!("is {} instead of {ALIGNMENT}", self.align);
            return fault("align", detail);
        }
        if self.layers.len() as u64 != u64::from(self.n_layers) {
            let detail = format!(
                "is {}, but {} layers are listed",
                self.n_layers,
                self.layers.len()
            );
            return fault("n_layers", detail);
        }
        let mut seen = vec![false; self.layers.len()];
        let mut spans = Vec::with_capacity(self.layers.len());
        for run in &self.layers {
            let place = format!("layer {}", run.layer);
            match seen.get_mut(run.layer as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return fault(&place, "is listed twice".to_owned()),
                None => {
                    return fault(
                        &place,
                        format!("is beyond the {} that `n_layers` tells", self.n_layers),
                    );
                }
            }
            if !run.file_off.is_multiple_of(ALIGNMENT) {
                let detail = format!(
                    "has `file_off` {} instead of a multiple of {ALIGNMENT}",
                    run.file_off
                );
                return fault(&place, detail);
            }
            match run.file_off.checked_add(run.nbytes) {
                Some(end) if end <= bin_bytes => spans.push((run.file_off, end, run.layer)),
                _ => {
                    let detail = format!(
                        "has `nbytes` {} at `file_off` {}, but trunk.bin has {bin_bytes} bytes: it is \
                         cut short",
                        run.nbytes, run.file_off
                    );
                    return fault(&place, detail);
                }
            }
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            let [(_, end, layer), (start, _, next)] = [pair[0], pair[1]];
            if start < end {
                let detail =
                    format!("has `file_off` {start}, inside layer {layer}, which ends at {end}");
                return fault(&format!("layer {next}"), detail);
            }
        }
        Ok(())
    }
}

impl Run {
    /// The last part of the path, if it is one: some tools write a number.
    fn shard_name(self) -> Option<String> {
        let name = self.shard.0?;
        name.rsplit('/').next().map(ToOwned::to_owned)
    }

    fn place(&self, entry: &Entry) -> Result<ForeignTensor, String> {
        let dtype = Dtype::from_name(&entry.dtype).ok_or_else(|| {
            format!(
                "has `dtype` {:?} instead of one of safetensors' types, as BF16",
                entry.dtype
            )
        })?;
        let shape = Shape::new(&entry.shape).ok_or_else(|| {
            format!(
                "has a `shape` of {} dimensions, more than supported",
                entry.shape.len()
            )
        })?;
        if shape.size_bytes(dtype) != Some(entry.nbytes) {
            let expected = shape.size_bytes(dtype);
            let expected = expected.map_or("more than any file has".to_owned(), |n| n.to_string());
            return Err(format!(
                "has `nbytes` {} instead of {expected}, which {dtype} {shape} takes",
                entry.nbytes
            ));
        }
        let end = entry.off.checked_add(entry.nbytes);
        if end.is_none_or(|end| end > self.nbytes) {
            return Err(format!(
                "has `nbytes` {} at `off` {}, but layer {} has `nbytes` {}",
                entry.nbytes, entry.off, self.layer, self.nbytes
            ));
        }
        Ok(ForeignTensor {
            // Below the length of the file, as the run is.
            offset: self.file_off + entry.off,
            bytes: entry.nbytes,
            dtype,
            shape,
            layer: self.layer,
            source_offset: self.source_of(entry)?,
        })
    }
}

impl Run {
    /// Where the tensor lies in the shard, if the run says where it begins.
    fn source_of(&self, entry: &Entry) -> Result<Option<u64>, String> {
        let Some(start) = self.run_start else {
            return Ok(None);
        };
        match start.checked_add(entry.off) {
            Some(offset) => Ok(Some(offset)),
            None => Err(format!(
                "`off` {} behind a `run_start` of {start} is beyond every file",
                entry.off
            )),
        }
    }
}

/// A text, or anything else, which says nothing here.
#[derive(Default)]
struct ShardName(Option<String>);

impl<'de> Deserialize<'de> for ShardName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = ShardName;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }

            fn visit_str<E>(self, text: &str) -> Result<ShardName, E> {
                Ok(ShardName(Some(text.to_owned())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<ShardName, E> {
                Ok(ShardName(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<ShardName, E> {
                Ok(ShardName(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<ShardName, E> {
                Ok(ShardName(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<ShardName, E> {
                Ok(ShardName(None))
            }

            fn visit_unit<E>(self) -> Result<ShardName, E> {
                Ok(ShardName(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ShardName, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ShardName(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ShardName, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ShardName(None))
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}

/// Names and entries as written: a map would drop a name that stands twice.
struct Tensors(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Tensors;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensors, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Tensors(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}
