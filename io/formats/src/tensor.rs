//! Where a tensor lies and what shape it has.

use std::fmt;

use crate::dtype::Dtype;

/// Most dimensions a stored tensor may have here. Kimi K3's deepest tensor, the
/// patch embedding, has four.
pub const MAX_DIMENSIONS: usize = 4;

/// Shape of a tensor, outermost dimension first, stored inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dimensions: [u64; MAX_DIMENSIONS],
    rank: u8,
}

impl Shape {
    /// No dimensions, one element.
    pub const SCALAR: Self = Self {
        dimensions: [0; MAX_DIMENSIONS],
        rank: 0,
    };

    /// The shape with these dimensions; `None` when there are more than
    /// [`MAX_DIMENSIONS`]. The empty shape is a scalar.
    pub fn new(dimensions: &[u64]) -> Option<Self> {
        let mut shape = Self::SCALAR;
        for &dimension in dimensions {
            if !shape.push(dimension) {
                return None;
            }
        }
        Some(shape)
    }

    /// Appends an inner dimension; `false` when the shape is full.
    pub(crate) fn push(&mut self, dimension: u64) -> bool {
        match self.dimensions.get_mut(usize::from(self.rank)) {
            Some(place) => {
                *place = dimension;
                self.rank += 1;
                true
            }
            None => false,
        }
    }

    /// The dimensions, outermost first.
    pub fn as_slice(&self) -> &[u64] {
        &self.dimensions[..usize::from(self.rank)]
    }

    /// Product of the dimensions (1 for a scalar); `None` when it exceeds u64.
    pub fn element_count(&self) -> Option<u64> {
        // A zero anywhere makes the product zero, but an overflow before it
        // still counts as one: no honest writer produces such a shape.
        self.as_slice()
            .iter()
            .try_fold(1_u64, |product, &dimension| product.checked_mul(dimension))
    }

    /// Bytes of a tensor of this shape; `None` when they exceed u64.
    pub fn size_bytes(&self, dtype: Dtype) -> Option<u64> {
        self.element_count()?.checked_mul(dtype.size_bytes())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.as_slice())
    }
}

/// One stored tensor: where its bytes lie and how to read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorRef {
    /// Index of the shard file in the order the shards were given.
    pub shard: u16,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// First byte, counted from the start of the shard file.
    pub offset: u64,
    /// Length in bytes: the shape's elements times the element size.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_checked() {
        let shape = Shape::new(&[3, 5]).unwrap();
        assert_eq!(shape.as_slice(), [3, 5]);
        assert_eq!(shape.size_bytes(Dtype::Bf16), Some(30));
        assert_eq!(Shape::new(&[]).unwrap().element_count(), Some(1));
        assert_eq!(Shape::new(&[0, 7]).unwrap().element_count(), Some(0));
        assert_eq!(Shape::new(&[1, 2, 3, 4, 5]), None);
        let huge = Shape::new(&[1 << 32, 1 << 32]).unwrap();
        assert_eq!(huge.element_count(), None);
        let wide = Shape::new(&[1 << 62]).unwrap();
        assert_eq!(wide.size_bytes(Dtype::F32), None);
        assert_eq!(wide.size_bytes(Dtype::U8), Some(1 << 62));
    }
}
