//! The product of one block, whatever its form.

use std::ops::Range;
use std::path::Path;

use k3_formats::Dtype;
use k3_formats::trunk::Codec;
use k3_kernels::{Bf16X3, KernelSet};

use crate::error::ModelError;
use crate::kimi_k3::op::Op;
use crate::program::{Block, SweepProgram};

/// Rows of weights and the kernel that multiplies them.
pub(super) enum Product<'a> {
    /// Elements row by row.
    Plain {
        weights: &'a [u8],
        row_bytes: usize,
        kernel: fn(&[u8], &[f32], usize, &mut [f32]),
    },
    /// `bf16-x3`.
    X3 {
        weights: Bf16X3<'a>,
        kernel: fn(Bf16X3<'_>, Range<usize>, &[f32], usize, &mut [f32]),
    },
}

impl<'a> Product<'a> {
    /// The product of `block`, stored as `bytes`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Packed`] for a packed block that is none.
    pub(super) fn new(
        kernels: &KernelSet,
        op: Op,
        program: &SweepProgram,
        block: &Block,
        bytes: &'a [u8],
    ) -> Result<Self, ModelError> {
        let [rows, cols] = [block.row_count, block.cols].map(|count| count as usize);
        match block.codec {
            Codec::Raw => Ok(Self::Plain {
                weights: bytes,
                row_bytes: bytes.len() / rows,
                kernel: match (op, block.dtype) {
                    (Op::Router, Dtype::Bf16) => kernels.router_bf16,
                    (Op::Router, _) => kernels.router_f32,
                    (_, Dtype::Bf16) => kernels.matmul_bf16,
                    (_, _) => kernels.matmul_f32,
                },
            }),
            Codec::Bf16X3 => Ok(Self::X3 {
                weights: Bf16X3::new(bytes, rows, cols).map_err(|fault| ModelError::Packed {
                    codec: block.codec,
                    path: program
                        .trunk_file(block.place.file)
                        .unwrap_or(Path::new("packed trunk"))
                        .to_path_buf(),
                    offset: block.place.offset,
                    fault: fault.to_string(),
                })?,
                kernel: if op == Op::Router {
                    kernels.router_bf16_x3
                } else {
                    kernels.matmul_bf16_x3
                },
            }),
        }
    }

    /// `rows` of the block times `x`, `[positions][cols]`, into `out`,
    /// `[rows][positions]`.
    pub(super) fn rows(&self, rows: Range<usize>, x: &[f32], positions: usize, out: &mut [f32]) {
        match self {
            Self::Plain {
                weights,
                row_bytes,
                kernel,
            } => {
                let weights = &weights[rows.start * row_bytes..rows.end * row_bytes];
                kernel(weights, x, positions, out);
            }
            Self::X3 { weights, kernel } => kernel(*weights, rows, x, positions, out),
        }
    }
}
