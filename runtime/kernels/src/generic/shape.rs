//! Shape checks shared by the definition and every instruction-set body.
//!
//! A mismatch is a bug of the caller and panics. The instruction-set bodies
//! rely on these checks for the safety of their pointer arithmetic.

/// Rows and columns of a matrix product, derived from the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatmulShape {
    /// Rows of the weight matrix.
    pub(crate) rows: usize,
    /// Columns of the weight matrix, the length of one position's input.
    pub(crate) cols: usize,
}

impl MatmulShape {
    /// Derives the shape of `x: [positions][cols]` and `out: [rows][positions]`.
    ///
    /// # Panics
    /// If `positions` is zero or does not divide both lengths.
    #[inline]
    pub(crate) fn new(x_len: usize, positions: usize, out_len: usize) -> Self {
        assert!(positions > 0, "a product needs at least one position");
        assert_eq!(x_len % positions, 0, "x is not [positions][cols]");
        assert_eq!(out_len % positions, 0, "out is not [rows][positions]");
        Self {
            rows: out_len / positions,
            cols: x_len / positions,
        }
    }

    /// As [`MatmulShape::new`], and `weights` holds `rows * cols` elements of
    /// `element_bytes` bytes.
    ///
    /// # Panics
    /// As [`MatmulShape::new`], or if the weights have another length.
    #[inline]
    pub(crate) fn with_weights(
        weights: &[u8],
        element_bytes: usize,
        x: &[f32],
        positions: usize,
        out: &[f32],
    ) -> Self {
        let shape = Self::new(x.len(), positions, out.len());
        assert_eq!(
            Some(weights.len()),
            shape
                .rows
                .checked_mul(shape.cols)
                .and_then(|count| count.checked_mul(element_bytes)),
            "weight bytes do not match {} rows of {} columns",
            shape.rows,
            shape.cols
        );
        shape
    }
}
