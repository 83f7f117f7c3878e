//! Tensors by name: one arena of names, one array of entries, one hash table.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::dtype::Dtype;
use crate::tensor::{Shape, TensorRef};

/// A tensor of the table in 40 bytes; names and shapes live elsewhere.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    offset: u64,
    bytes: u64,
    name_start: u32,
    name_bytes: u32,
    shape: u32,
    shard: u16,
    dtype: Dtype,
}

/// An index that no entry has: an empty place of the hash table.
const EMPTY: u32 = u32::MAX;

/// What [`NameTable::insert`] did.
pub(super) enum Inserted {
    /// The name is new.
    New,
    /// The name is there already, with this tensor.
    Present(TensorRef),
    /// The table's 32-bit counts are exhausted.
    Full,
}

/// Names are hashed to 64 bits with a random key, so that no file can be built
/// to make them collide; equal hashes are confirmed by the name.
#[derive(Debug)]
pub(super) struct NameTable {
    arena: String,
    entries: Vec<Entry>,
    /// Open addressing with linear probing, a power of two, at most half full.
    places: Vec<u32>,
    shapes: Vec<Shape>,
    shape_numbers: HashMap<Shape, u32>,
    hasher: RandomState,
}

impl NameTable {
    pub(super) fn new() -> Self {
        Self {
            arena: String::new(),
            entries: Vec::new(),
            places: vec![EMPTY; 16],
            shapes: Vec::new(),
            shape_numbers: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, name: &str, tensor: TensorRef) -> Inserted {
        if 2 * (self.entries.len() + 1) > self.places.len() {
            self.grow();
        }
        let hash = self.hasher.hash_one(name);
        let place = match self.probe(hash, name) {
            Ok(index) => return Inserted::Present(self.tensor(index)),
            Err(place) => place,
        };
        let (Ok(index), Ok(name_start), Ok(name_bytes)) = (
            u32::try_from(self.entries.len()),
            u32::try_from(self.arena.len()),
            u32::try_from(name.len()),
        ) else {
            return Inserted::Full;
        };
        if index == EMPTY {
            return Inserted::Full;
        }
        self.arena.push_str(name);
        let shape = self.shape_number(tensor.shape);
        self.entries.push(Entry {
            hash,
            offset: tensor.offset,
            bytes: tensor.bytes,
            name_start,
            name_bytes,
            shape,
            shard: tensor.shard,
            dtype: tensor.dtype,
        });
        self.places[place] = index;
        Inserted::New
    }

    /// Number of the entry with this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.probe(self.hasher.hash_one(name), name).ok()
    }

    pub(super) fn name(&self, index: usize) -> &str {
        let entry = &self.entries[index];
        let start = entry.name_start as usize;
        &self.arena[start..start + entry.name_bytes as usize]
    }

    pub(super) fn tensor(&self, index: usize) -> TensorRef {
        let entry = &self.entries[index];
        TensorRef {
            shard: entry.shard,
            dtype: entry.dtype,
            shape: self.shapes[entry.shape as usize],
            offset: entry.offset,
            bytes: entry.bytes,
        }
    }

    /// Drops what only [`NameTable::insert`] needs.
    pub(super) fn freeze(&mut self) {
        self.shape_numbers = HashMap::new();
        self.arena.shrink_to_fit();
        self.entries.shrink_to_fit();
        self.shapes.shrink_to_fit();
    }

    /// The entry with this name, or the place where it would go.
    fn probe(&self, hash: u64, name: &str) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let mut place = place_of(hash, mask);
        loop {
            let index = self.places[place];
            if index == EMPTY {
                return Err(place);
            }
            let index = index as usize;
            if self.entries[index].hash == hash && self.name(index) == name {
                return Ok(index);
            }
            place = (place + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mask = self.places.len() * 2 - 1;
        self.places.clear();
        self.places.resize(mask + 1, EMPTY);
        for (index, entry) in (0..).zip(&self.entries) {
            let mut place = place_of(entry.hash, mask);
            while self.places[place] != EMPTY {
                place = (place + 1) & mask;
            }
            self.places[place] = index;
        }
    }

    /// The number of a shape; there are few, whatever the number of tensors.
    fn shape_number(&mut self, shape: Shape) -> u32 {
        let shapes = &mut self.shapes;
        *self.shape_numbers.entry(shape).or_insert_with(|| {
            let number = u32::try_from(shapes.len()).expect("no more shapes than entries");
            shapes.push(shape);
            number
        })
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "only the low bits select a place"
)]
fn place_of(hash: u64, mask: usize) -> usize {
    hash as usize & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(offset: u64) -> TensorRef {
        TensorRef {
            shard: 3,
            dtype: Dtype::U8,
            shape: Shape::new(&[offset % 5]).unwrap(),
            offset,
            bytes: offset % 5,
        }
    }

    #[test]
    fn many_names_are_found_and_no_other() {
        let mut table = NameTable::new();
        for number in 0..5000 {
            let inserted = table.insert(&format!("name.{number}"), tensor(number));
            assert!(matches!(inserted, Inserted::New));
        }
        table.freeze();
        assert_eq!(table.len(), 5000);
        assert_eq!(table.shapes.len(), 5);
        for number in 0..5000 {
            let name = format!("name.{number}");
            let index = table.find(&name).unwrap();
            assert_eq!(table.name(index), name);
            assert_eq!(table.tensor(index), tensor(number));
        }
        assert_eq!(table.find("name.5000"), None);
        assert_eq!(table.find(""), None);
    }

    #[test]
    fn a_second_insert_returns_the_first() {
        let mut table = NameTable::new();
        table.insert("a", tensor(1));
        assert!(
            matches!(table.insert("a", tensor(2)), Inserted::Present(first) if first == tensor(1))
        );
        assert_eq!(table.len(), 1);
        assert!(size_of::<Entry>() <= 48, "{}", size_of::<Entry>());
    }
}
