//! Products with weights from memory, and reading that memory.

use std::hint::black_box;

use k3_kernels::{KernelSet, MXFP4_GROUP, Mxfp4Group};

use super::{Group, Spec, Work, scalar};
use crate::rounds::{Compared, Kernel};
use crate::values::Random;
use crate::weights::{
    BF16_CALL_ROWS, BF16_COLUMNS, MXFP4_CALL_ROWS, MXFP4_COLUMNS, PackedRows, WeightKind, Weights,
};

/// Positions that share the weights.
pub const POSITIONS: [usize; 5] = [1, 2, 4, 8, 16];
/// Bytes of one call of a read.
const READ_BYTES: usize = 4 << 20;
/// The name of a product from packed rows.
pub(super) const PACKED: &str = "bf16-x3";
/// The name of an MXFP4 product from prepared activations.
pub(super) const PREPARED: &str = "mxfp4 prepared";
/// Rows of a router: the released number of experts.
const ROUTER_ROWS: usize = 896;

/// What is measured over weights.
pub(super) fn specs() -> Vec<Spec> {
    let mut specs = vec![read_spec(None)];
    specs.extend(POSITIONS.map(bf16_spec));
    specs.extend(POSITIONS.map(bf16_x3_spec));
    specs.extend(POSITIONS.map(mxfp4_spec));
    specs.extend(POSITIONS.map(mxfp4_prepared_spec));
    specs.push(router_spec());
    specs
}

/// Reading weights of either kind.
#[must_use]
pub fn read_spec(weights: Option<WeightKind>) -> Spec {
    Spec {
        group: Group::Read,
        name: "read",
        positions: None,
        shape: "4 MiB",
        work: Work {
            bytes: READ_BYTES as u64,
            operations: READ_BYTES as u64 / 8,
        },
        weights: Some(weights.unwrap_or(WeightKind::Bf16)),
        beside: None,
        build: |set, weights, _| Box::new(Read { set, weights }),
    }
}

/// A bf16 product with `positions` activations.
#[must_use]
pub fn bf16_spec(positions: usize) -> Spec {
    Spec {
        group: Group::Bf16,
        name: "bf16",
        positions: Some(positions),
        shape: "12288 x 7168",
        work: product_work(BF16_CALL_ROWS * BF16_COLUMNS, 16, positions),
        weights: Some(WeightKind::Bf16),
        beside: None,
        build: |set, weights, positions| {
            Box::new(Bf16 {
                body: set.matmul_bf16,
                definition: scalar().matmul_bf16,
                weights,
                product: Product::new(BF16_CALL_ROWS, BF16_COLUMNS, positions),
            })
        },
    }
}

/// The same from packed rows, beside the product from rows as they are. Bytes
/// are those of the weights as they are.
#[must_use]
pub fn bf16_x3_spec(positions: usize) -> Spec {
    Spec {
        group: Group::Bf16X3,
        name: PACKED,
        weights: Some(WeightKind::Bf16X3),
        beside: Some(bf16_spec),
        build: |set, weights, positions| {
            Box::new(PackedBf16 {
                set,
                weights,
                product: Product::new(BF16_CALL_ROWS, BF16_COLUMNS, positions),
            })
        },
        ..bf16_spec(positions)
    }
}

/// An MXFP4 product with `positions` activations.
#[must_use]
pub fn mxfp4_spec(positions: usize) -> Spec {
    Spec {
        group: Group::Mxfp4,
        name: "mxfp4",
        positions: Some(positions),
        shape: "3072 x 3584",
        // Four bits a value, and eight for every 32.
        work: Work {
            bytes: (MXFP4_CALL_ROWS * MXFP4_COLUMNS * 17 / 32) as u64,
            ..product_work(MXFP4_CALL_ROWS * MXFP4_COLUMNS, 0, positions)
        },
        weights: Some(WeightKind::Mxfp4),
        beside: None,
        build: |set, weights, positions| {
            Box::new(Mxfp4 {
                set,
                weights,
                product: Product::new(MXFP4_CALL_ROWS, MXFP4_COLUMNS, positions),
                prepared: Vec::new(),
                chosen: Vec::new(),
            })
        },
    }
}

/// The same from activations that are prepared once, as a layer's are for all
/// its experts.
#[must_use]
pub fn mxfp4_prepared_spec(positions: usize) -> Spec {
    Spec {
        name: PREPARED,
        build: |set, weights, positions| {
            let product = Product::new(MXFP4_CALL_ROWS, MXFP4_COLUMNS, positions);
            let mut prepared = vec![Mxfp4Group::default(); product.x.len() / MXFP4_GROUP];
            (set.mxfp4_prepare)(&product.x, &mut prepared);
            Box::new(Mxfp4 {
                set,
                weights,
                product,
                prepared,
                chosen: (0..positions).collect(),
            })
        },
        ..mxfp4_spec(positions)
    }
}

fn router_spec() -> Spec {
    Spec {
        group: Group::Router,
        name: "router",
        positions: Some(1),
        shape: "896 x 7168",
        work: product_work(ROUTER_ROWS * BF16_COLUMNS, 16, 1),
        weights: Some(WeightKind::Bf16),
        beside: None,
        build: |set, weights, positions| {
            Box::new(Bf16 {
                body: set.router_bf16,
                definition: scalar().router_bf16,
                weights,
                product: Product::new(ROUTER_ROWS, BF16_COLUMNS, positions),
            })
        },
    }
}

fn product_work(values: usize, bits: usize, positions: usize) -> Work {
    Work {
        bytes: (values * bits / 8) as u64,
        operations: (values * positions) as u64,
    }
}

struct Read<'w> {
    set: &'static KernelSet,
    weights: &'w Weights,
}

impl Kernel for Read<'_> {
    fn call(&mut self) {
        black_box((self.set.read_sums)(self.weights.take(READ_BYTES)));
    }

    fn compare(&mut self, _round: usize) -> Compared {
        let bytes = self.weights.take(READ_BYTES);
        let found = (self.set.read_sums)(bytes);
        let expected = (scalar().read_sums)(bytes);
        let differ = found.iter().zip(&expected).filter(|(f, e)| f != e).count();
        Compared {
            values: found.len() as u64,
            mismatches: differ as u64,
        }
    }
}

/// Activations and outputs of a product.
struct Product {
    rows: usize,
    columns: usize,
    positions: usize,
    x: Vec<f32>,
    out: Vec<f32>,
}

impl Product {
    fn new(rows: usize, columns: usize, positions: usize) -> Self {
        Self {
            rows,
            columns,
            positions,
            x: Random::new(positions as u64).normal(positions * columns),
            out: vec![0.0; rows * positions],
        }
    }

    /// Compares the first row, the last and two others; `definition` computes
    /// one of them.
    fn compare(&self, round: usize, definition: impl Fn(usize, &mut [f32])) -> Compared {
        let rows = self.rows;
        let sample = [
            0,
            rows - 1,
            (37 * round + 11) % rows,
            (101 * round + 50) % rows,
        ];
        let mut all = Compared::default();
        let mut expected = vec![0.0; self.positions];
        for row in sample {
            definition(row, &mut expected);
            let found = &self.out[row * self.positions..][..self.positions];
            all.add(Compared::of(found, &expected));
        }
        all
    }
}

type Bf16Body = fn(&[u8], &[f32], usize, &mut [f32]);

struct Bf16<'w> {
    body: Bf16Body,
    definition: Bf16Body,
    weights: &'w Weights,
    product: Product,
}

impl<'w> Bf16<'w> {
    fn run(&mut self) -> &'w [u8] {
        let product = &mut self.product;
        let weights = self.weights.take(product.rows * product.columns * 2);
        (self.body)(weights, &product.x, product.positions, &mut product.out);
        weights
    }
}

impl Kernel for Bf16<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.product.out);
    }

    fn compare(&mut self, round: usize) -> Compared {
        let weights = self.run();
        let Product {
            columns,
            positions,
            ref x,
            ..
        } = self.product;
        self.product.compare(round, |row, out| {
            let row = &weights[row * columns * 2..][..columns * 2];
            (self.definition)(row, x, positions, out);
        })
    }
}

struct PackedBf16<'w> {
    set: &'static KernelSet,
    weights: &'w Weights,
    product: Product,
}

impl<'w> PackedBf16<'w> {
    fn run(&mut self) -> PackedRows<'w> {
        let product = &mut self.product;
        let rows = self.weights.take_packed();
        let (x, positions, out) = (&product.x, product.positions, &mut product.out);
        (self.set.matmul_bf16_x3)(rows.packed, 0..product.rows, x, positions, out);
        rows
    }
}

impl Kernel for PackedBf16<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.product.out);
    }

    fn compare(&mut self, round: usize) -> Compared {
        let PackedRows { raw, .. } = self.run();
        let Product {
            columns,
            positions,
            ref x,
            ..
        } = self.product;
        self.product.compare(round, |row, out| {
            let row = &raw[row * columns * 2..][..columns * 2];
            (scalar().matmul_bf16)(row, x, positions, out);
        })
    }
}

struct Mxfp4<'w> {
    set: &'static KernelSet,
    weights: &'w Weights,
    product: Product,
    /// Empty where the product takes the activations as they are.
    prepared: Vec<Mxfp4Group>,
    /// All positions, where there are prepared groups.
    chosen: Vec<usize>,
}

impl<'w> Mxfp4<'w> {
    fn run(&mut self) -> crate::weights::Mxfp4Rows<'w> {
        let Product {
            ref x,
            positions,
            ref mut out,
            ..
        } = self.product;
        let rows = self.weights.take_mxfp4();
        let (packed, scales) = (rows.packed, rows.scales);
        black_box(if self.prepared.is_empty() {
            (self.set.matmul_mxfp4)(packed, scales, x, positions, out)
        } else {
            let (prepared, chosen) = (&self.prepared, &self.chosen);
            (self.set.matmul_mxfp4_prepared)(packed, scales, x, prepared, chosen, out)
        });
        rows
    }
}

impl Kernel for Mxfp4<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.product.out);
    }

    fn compare(&mut self, round: usize) -> Compared {
        let rows = self.run();
        let Product {
            columns,
            positions,
            ref x,
            ..
        } = self.product;
        self.product.compare(round, |row, out| {
            let packed = &rows.packed[row * columns / 2..][..columns / 2];
            let scales = &rows.scales[row * columns / 32..][..columns / 32];
            (scalar().matmul_mxfp4)(packed, scales, x, positions, out);
        })
    }
}
