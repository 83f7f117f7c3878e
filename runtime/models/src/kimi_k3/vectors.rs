//! The small tensors, resident as stored and widened layer by layer.
//!
//! Kept in their stored type: those stored as bf16 would double in f32, and
//! widening a layer's vectors costs next to nothing beside its matrices.

use k3_formats::{Dtype, TensorRef};
use k3_kernels::KernelSet;

use crate::error::ModelError;
use crate::kimi_k3::layout::{KimiK3Layout, VectorId};

/// All vectors of a layout, back to back.
#[derive(Debug)]
pub struct Vectors {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    start: usize,
    len: usize,
    dtype: Dtype,
}

impl Vectors {
    /// Bytes that [`Vectors::load`] will hold.
    #[must_use]
    pub fn planned_bytes(layout: &KimiK3Layout) -> u64 {
        layout
            .vectors()
            .iter()
            .map(|vector| vector.tensor.bytes)
            .sum()
    }

    /// Reads every vector of `layout` through `read`.
    ///
    /// # Errors
    ///
    /// What `read` returns, or [`ModelError::PaddingNotZero`].
    pub fn load<E: From<ModelError>>(
        layout: &KimiK3Layout,
        mut read: impl FnMut(&TensorRef, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let total = usize::try_from(Self::planned_bytes(layout)).expect("vectors fit in memory");
        let mut vectors = Self {
            bytes: vec![0; total],
            slots: Vec::with_capacity(layout.vectors().len()),
        };
        let mut start = 0;
        for vector in layout.vectors() {
            let bytes = usize::try_from(vector.tensor.bytes).expect("part of the total");
            read(&vector.tensor, &mut vectors.bytes[start..start + bytes])?;
            let slot = Slot {
                start,
                len: vector.len,
                dtype: vector.tensor.dtype,
            };
            let padding = vectors.padding(slot, bytes);
            if let Some(index) = padding.iter().position(|byte| *byte != 0) {
                return Err(E::from(ModelError::PaddingNotZero {
                    path: layout.path.clone(),
                    name: vector.name.clone(),
                    index: vector.len + index / element_bytes(slot.dtype),
                    heads: vector.len,
                }));
            }
            vectors.slots.push(slot);
            start += bytes;
        }
        Ok(vectors)
    }

    fn padding(&self, slot: Slot, stored_bytes: usize) -> &[u8] {
        let used = slot.len * element_bytes(slot.dtype);
        &self.bytes[slot.start + used..slot.start + stored_bytes]
    }

    /// Writes vector `id` to `out` as f32; exact for both stored types.
    ///
    /// # Panics
    ///
    /// If `out` has another length than the vector.
    pub(crate) fn widen(&self, kernels: &KernelSet, id: VectorId, out: &mut [f32]) {
        let slot = self.slots[id.0 as usize];
        assert_eq!(out.len(), slot.len, "vector {} has a fixed length", id.0);
        let bytes = &self.bytes[slot.start..slot.start + slot.len * element_bytes(slot.dtype)];
        if slot.dtype == Dtype::Bf16 {
            (kernels.widen_bf16)(bytes, out);
            return;
        }
        for (value, stored) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *value = f32::from_le_bytes(stored.try_into().expect("four bytes"));
        }
    }

    /// The fold of a residual mix: norm weight times projection, in f32.
    pub(crate) fn fold(
        &self,
        kernels: &KernelSet,
        [norm, projection]: [VectorId; 2],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        self.widen(kernels, norm, out);
        self.widen(kernels, projection, scratch);
        (kernels.multiply)(out, scratch);
    }
}

fn element_bytes(dtype: Dtype) -> usize {
    if dtype == Dtype::Bf16 { 2 } else { 4 }
}
