//! `serde` visitors that turn a header's JSON into entries without a tree.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::dtype::Dtype;
use crate::error::TensorFault;
use crate::tensor::{MAX_DIMENSIONS, Shape};

/// One tensor's entry as the header states it, not yet compared with anything.
pub(super) struct RawEntry {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// What receives a header's content in file order. An error stops the reading;
/// the receiver keeps the reason itself.
pub(super) trait EntrySink<'de> {
    /// Called with the name before the entry is read, so that a syntax error in
    /// the entry can be reported under it.
    fn name(&mut self, name: Cow<'de, str>);
    /// Called with the entry of the last name.
    fn entry(&mut self, entry: Result<RawEntry, TensorFault>) -> Result<(), Stop>;
    /// Called for each pair of `__metadata__`.
    fn metadata(&mut self, key: String, value: String);
}

/// The receiver wants no more.
pub(super) struct Stop;

/// The header's outer object.
pub(super) struct HeaderSeed<'s, S>(pub(super) &'s mut S);

impl<'de, S: EntrySink<'de>> DeserializeSeed<'de> for HeaderSeed<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: EntrySink<'de>> Visitor<'de> for HeaderSeed<'_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_metadata = false;
        while let Some(name) = map.next_key_seed(TextSeed)? {
            if name == "__metadata__" {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(de::Error::custom("__metadata__ stands twice"));
                }
                map.next_value_seed(MetadataSeed(self.0))?;
                continue;
            }
            self.0.name(name);
            let entry = map.next_value_seed(EntrySeed)?;
            self.0
                .entry(entry)
                .map_err(|Stop| de::Error::custom("stopped"))?;
        }
        Ok(())
    }
}

/// A string, borrowed from the input unless it has escapes.
struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// `__metadata__`: strings only.
struct MetadataSeed<'s, S>(&'s mut S);

impl<'de, S: EntrySink<'de>> DeserializeSeed<'de> for MetadataSeed<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: EntrySink<'de>> Visitor<'de> for MetadataSeed<'_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("__metadata__ as an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(TextSeed)? {
            let value = map.next_value_seed(TextSeed)?;
            self.0.metadata(key.into_owned(), value.into_owned());
        }
        Ok(())
    }
}

/// One tensor's object. Faults in its values leave the JSON intact, so they are
/// returned as values, to be reported with the tensor's name.
struct EntrySeed;

impl<'de> DeserializeSeed<'de> for EntrySeed {
    type Value = Result<RawEntry, TensorFault>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed {
    type Value = Result<RawEntry, TensorFault>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut dtype = None;
        let mut shape = None;
        let mut offsets: Option<(u64, u64)> = None;
        while let Some(key) = map.next_key_seed(TextSeed)? {
            let twice = match &*key {
                "dtype" => dtype.replace(map.next_value_seed(DtypeSeed)?).is_some(),
                "shape" => shape.replace(map.next_value_seed(ShapeSeed)?).is_some(),
                "data_offsets" => offsets.replace(map.next_value()?).is_some(),
                _ => return Err(de::Error::unknown_field(&key, FIELDS)),
            };
            if twice {
                return Err(de::Error::custom(format_args!("{key} stands twice")));
            }
        }
        let dtype = dtype.ok_or_else(|| de::Error::missing_field("dtype"))?;
        let shape = shape.ok_or_else(|| de::Error::missing_field("shape"))?;
        let (begin, end) = offsets.ok_or_else(|| de::Error::missing_field("data_offsets"))?;
        let entry = || {
            Ok(RawEntry {
                dtype: dtype?,
                shape: shape?,
                begin,
                end,
            })
        };
        Ok(entry())
    }
}

const FIELDS: &[&str] = &["dtype", "shape", "data_offsets"];

struct DtypeSeed;

impl<'de> DeserializeSeed<'de> for DtypeSeed {
    type Value = Result<Dtype, TensorFault>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for DtypeSeed {
    type Value = Result<Dtype, TensorFault>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of an element type")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Dtype::from_name(name).ok_or_else(|| {
            let short = name.chars().take(40).collect();
            TensorFault::UnknownDtype(short)
        }))
    }
}

struct ShapeSeed;

impl<'de> DeserializeSeed<'de> for ShapeSeed {
    type Value = Result<Shape, TensorFault>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed {
    type Value = Result<Shape, TensorFault>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut shape = Shape::SCALAR;
        let mut fits = true;
        while let Some(dimension) = sequence.next_element::<u64>()? {
            fits &= shape.push(dimension);
        }
        Ok(if fits {
            Ok(shape)
        } else {
            Err(TensorFault::TooManyDimensions {
                limit: MAX_DIMENSIONS,
            })
        })
    }
}
