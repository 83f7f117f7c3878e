//! Tensors in memory, by name.

use std::collections::HashMap;

use k3_formats::Dtype;

/// One tensor as it lies in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Full name, prefix included.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Little-endian, row-major.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// Elements, the product of the extents.
    #[must_use]
    pub fn element_count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The values of a BF16 or F32 tensor, widened exactly.
    ///
    /// # Panics
    /// On any other element type: such a tensor has no values by itself.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => self
                .bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            Dtype::Bf16 => self
                .bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|&[low, high]| f32::from_le_bytes([0, 0, low, high]))
                .collect(),
            other => panic!("{} is {other:?}, not BF16 or F32", self.name),
        }
    }
}

/// Tensors in a fixed order, found by name.
#[derive(Clone, Debug, Default)]
pub struct TensorSet {
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
}

impl TensorSet {
    /// Appends a tensor.
    ///
    /// # Panics
    /// When the name is taken.
    pub fn push(&mut self, tensor: Tensor) {
        let earlier = self.by_name.insert(tensor.name.clone(), self.tensors.len());
        assert!(earlier.is_none(), "two tensors named {}", tensor.name);
        self.tensors.push(tensor);
    }

    /// The tensor of this full name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    /// All tensors, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Tensor> {
        self.tensors.iter()
    }

    /// How many tensors there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }
}

impl<'a> IntoIterator for &'a TensorSet {
    type Item = &'a Tensor;
    type IntoIter = std::slice::Iter<'a, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The bytes of values as BF16, rounded to nearest, ties to even.
///
/// # Panics
/// On NaN, which no generator here makes on purpose.
#[must_use]
pub fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    let encode = |value: &f32| {
        assert!(!value.is_nan(), "NaN among the values to store");
        let bits = value.to_bits();
        let rounded = bits + 0x7fff + ((bits >> 16) & 1);
        let [_, _, low, high] = rounded.to_le_bytes();
        [low, high]
    };
    values.iter().flat_map(encode).collect()
}

/// The bytes of values as F32.
#[must_use]
pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_nearest_even() {
        // 1 + 2^-8 is a tie between 1 and 1 + 2^-7; 1 + 3*2^-8 between 1 + 2^-7 and 1 + 2^-6.
        let cases = [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 1.0 / 64.0),
            (1.003_907, 1.0 + 1.0 / 128.0),
            (-2.5, -2.5),
        ];
        for (value, expected) in cases {
            let tensor = Tensor {
                name: "t".into(),
                dtype: Dtype::Bf16,
                shape: vec![1],
                bytes: bf16_bytes(&[value]),
            };
            assert_eq!(tensor.to_f32(), [expected], "{value}");
        }
    }
}
