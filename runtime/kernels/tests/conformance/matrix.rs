//! Matrix products: every shape, every batch size, split rows and positions.

use crate::buffers::{Bytes, Floats};
use crate::compare::{against_scalar, assert_same, unwritten};
use crate::values::{self, Class, Random};
use crate::{scalar, slow};
use k3_kernels::KernelSet;

const POSITIONS: [usize; 6] = [1, 2, 3, 5, 8, 16];

/// Widths around every block, and around the chunks of long rows.
fn widths() -> Vec<usize> {
    let mut widths: Vec<usize> = (0..=70).collect();
    widths.extend([95, 96, 97, 127, 128, 129]);
    widths
}

const LONG_WIDTHS: [usize; 9] = [511, 512, 513, 1023, 1024, 1025, 2047, 2049, 3111];

type Product = fn(&[u8], &[f32], usize, &mut [f32]);

/// A product of a weight matrix with f32 activations.
struct Kernel {
    name: &'static str,
    get: fn(&KernelSet) -> Product,
    weights: fn(&mut Random, Class, usize) -> Vec<u8>,
    repeat: fn(Class, &mut [u8], usize),
}

const KERNELS: [Kernel; 4] = [
    Kernel {
        name: "matmul_bf16",
        get: |set| set.matmul_bf16,
        weights: values::bf16_bytes,
        repeat: values::repeat::<2>,
    },
    Kernel {
        name: "matmul_f32",
        get: |set| set.matmul_f32,
        weights: values::f32_bytes,
        repeat: values::repeat::<4>,
    },
    Kernel {
        name: "router_bf16",
        get: |set| set.router_bf16,
        weights: values::bf16_bytes,
        repeat: values::repeat::<2>,
    },
    Kernel {
        name: "router_f32",
        get: |set| set.router_f32,
        weights: values::f32_bytes,
        repeat: values::repeat::<4>,
    },
];

/// One case: shape and class decide everything, the seed included.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: usize,
    cols: usize,
    positions: usize,
    class: Class,
    seed: u64,
}

/// Every shape with every class; more seeds in the slow tier.
fn cases(widths: &[usize], rows: &[usize], positions: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &cols in widths {
        for &rows in rows {
            for &positions in positions {
                for class in Class::ALL {
                    for seed in 0..seeds() {
                        cases.push(Case {
                            rows,
                            cols,
                            positions,
                            class,
                            seed: seed << 32 | (cols * 1000 + rows * 20 + positions) as u64,
                        });
                    }
                }
            }
        }
    }
    cases
}

/// Seeds per case.
fn seeds() -> u64 {
    if slow() { 8 } else { 1 }
}

fn check(kernel: &Kernel, case: Case) {
    let random = &mut Random::new(case.seed);
    let Case {
        rows,
        cols,
        positions,
        class,
        ..
    } = case;
    let odd = random.below(32) as usize * 2 + 1;
    let mut weights = (kernel.weights)(random, class, rows * cols);
    (kernel.repeat)(class, &mut weights, cols);
    let weights = Bytes::new(&weights, odd);
    let mut x = values::f32s(random, class, positions * cols);
    values::oppose(class, &mut x, cols);
    let x = Floats::new(&x, odd);
    let what = format!("{} {case:?}", kernel.name);
    let whole = against_scalar(&what, &unwritten(rows * positions), odd, |set, out| {
        (kernel.get)(set)(weights.get(), x.get(), positions, out);
    });

    // Rows computed in two pieces equal rows computed at once.
    let row_bytes = weights.get().len() / rows;
    let cut = 1 + random.below(u32::try_from(rows).expect("few")) as usize;
    let split = against_scalar(&what, &unwritten(rows * positions), odd, |set, out| {
        let (top, bottom) = weights.get().split_at(cut.min(rows) * row_bytes);
        let (out_top, out_bottom) = out.split_at_mut(cut.min(rows) * positions);
        (kernel.get)(set)(top, x.get(), positions, out_top);
        (kernel.get)(set)(bottom, x.get(), positions, out_bottom);
    });
    assert_same(&whole, &split, &format!("{what}, rows split at {cut}"));

    // A position computed alone equals the same position in a batch.
    let position = random.below(u32::try_from(positions).expect("few")) as usize;
    let alone = against_scalar(&what, &unwritten(rows), odd, |set, out| {
        let x = &x.get()[position * cols..][..cols];
        (kernel.get)(set)(weights.get(), x, 1, out);
    });
    let column: Vec<f32> = whole[position..]
        .iter()
        .copied()
        .step_by(positions)
        .collect();
    assert_same(
        &column,
        &alone,
        &format!("{what}, position {position} alone"),
    );
}

#[test]
fn products_equal_the_definition() {
    let rows: Vec<usize> = (1..=19).collect();
    for kernel in &KERNELS {
        for case in cases(&widths(), &rows, &POSITIONS) {
            check(kernel, case);
        }
    }
}

#[test]
fn products_of_long_rows_equal_the_definition() {
    for kernel in &KERNELS {
        for case in cases(&LONG_WIDTHS, &[1, 4, 9], &POSITIONS) {
            check(kernel, case);
        }
    }
}

/// Row counts around the blocks of row tiles, and every group of positions.
const MANY_ROWS: [usize; 10] = [23, 24, 25, 31, 47, 48, 49, 65, 97, 129];
const ALL_POSITIONS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16];

#[test]
fn products_of_many_rows_equal_the_definition() {
    for kernel in &KERNELS {
        for case in cases(&[19, 273], &MANY_ROWS, &ALL_POSITIONS) {
            check(kernel, case);
        }
    }
}

fn check_mxfp4(case: Case) {
    let random = &mut Random::new(case.seed);
    let Case {
        rows,
        cols,
        positions,
        class,
        ..
    } = case;
    let odd = random.below(32) as usize * 2 + 1;
    let mut packed = values::bytes(random, rows * cols / 2);
    values::repeat_nibbles(class, &mut packed);
    let packed = Bytes::new(&packed, odd);
    let scales = Bytes::new(&values::scales(random, class, rows * cols / 32), odd + 2);
    let mut x = values::f32s(random, class, positions * cols);
    values::oppose(class, &mut x, cols);
    let x = Floats::new(&x, odd);
    let what = format!("matmul_mxfp4 {case:?}");
    let nan_scales = scales.get().iter().filter(|&&scale| scale == 255).count() as u64;
    let whole = against_scalar(&what, &unwritten(rows * positions), odd, |set, out| {
        let skipped = (set.matmul_mxfp4)(packed.get(), scales.get(), x.get(), positions, out);
        assert_eq!(skipped, nan_scales, "{what}, {}: skipped groups", set.isa);
    });

    let cut = random.below(u32::try_from(rows + 1).expect("few")) as usize;
    let split = against_scalar(&what, &unwritten(rows * positions), odd, |set, out| {
        let (packed_top, packed_bottom) = packed.get().split_at(cut * cols / 2);
        let (scales_top, scales_bottom) = scales.get().split_at(cut * cols / 32);
        let (top, bottom) = out.split_at_mut(cut * positions);
        let skipped = (set.matmul_mxfp4)(packed_top, scales_top, x.get(), positions, top)
            + (set.matmul_mxfp4)(packed_bottom, scales_bottom, x.get(), positions, bottom);
        assert_eq!(skipped, nan_scales, "{what}, {}: skipped groups", set.isa);
    });
    assert_same(&whole, &split, &format!("{what}, rows split at {cut}"));

    let position = random.below(u32::try_from(positions).expect("few")) as usize;
    let mut alone = unwritten(rows);
    let one = &x.get()[position * cols..][..cols];
    (scalar().matmul_mxfp4)(packed.get(), scales.get(), one, 1, &mut alone);
    let column: Vec<f32> = whole[position..]
        .iter()
        .copied()
        .step_by(positions)
        .collect();
    assert_same(
        &column,
        &alone,
        &format!("{what}, position {position} alone"),
    );
}

#[test]
fn mxfp4_products_equal_the_definition() {
    let rows: Vec<usize> = (1..=19).collect();
    for case in cases(&[0, 32, 64, 96, 128, 160, 192, 1120], &rows, &POSITIONS) {
        check_mxfp4(case);
    }
}

#[test]
fn mxfp4_products_of_many_rows_equal_the_definition() {
    for case in cases(&[64, 352], &MANY_ROWS, &ALL_POSITIONS) {
        check_mxfp4(case);
    }
}

/// Every nibble at every place of a group, with activations that tell places
/// and signs apart.
#[test]
fn every_nibble_at_every_place_decodes_alike() {
    let x: Vec<f32> = (0..32_u16).map(|i| f32::from(2 * i + 1)).collect();
    for place in 0..32 {
        for nibble in 0..16_u8 {
            let mut packed = vec![0_u8; 16];
            packed[place / 2] = nibble << (4 * (place % 2));
            let out = against_scalar(
                &format!("nibble {nibble} at {place}"),
                &unwritten(1),
                0,
                |set, out| {
                    (set.matmul_mxfp4)(&packed, &[127], &x, 1, out);
                },
            );
            let value = k3_kernels::e2m1_value(nibble) * f64::from(x[place]);
            assert_eq!(f64::from(out[0]), value, "nibble {nibble} at {place}");
        }
    }
}

#[test]
fn column_products_equal_the_definition() {
    for cols in 0..=40 {
        for n in (0..=35).chain([47, 48, 49, 127, 128, 129]) {
            for (seed, class) in (0..seeds()).flat_map(|seed| Class::ALL.map(|c| (seed, c))) {
                let random = &mut Random::new(seed << 32 | (cols * 1000 + n) as u64);
                let mut weights = values::bf16_bytes(random, class, n * cols);
                let mut x = values::f32s(random, class, n);
                if class == Class::Wide {
                    // Whole rows repeat here: the sum runs over them.
                    for pair in weights.chunks_exact_mut((4 * cols).max(1)) {
                        let (first, second) = pair.split_at_mut(2 * cols);
                        second.copy_from_slice(first);
                    }
                    for pair in x.chunks_exact_mut(2) {
                        pair[1] = -pair[0];
                    }
                }
                let weights = Bytes::new(&weights, 2 * n + 1);
                let x = Floats::new(&x, n);
                let what = format!("columns_bf16 {n} x {cols} {class:?}");
                against_scalar(&what, &unwritten(cols), n, |set, out| {
                    (set.columns_bf16)(weights.get(), x.get(), out);
                });
            }
        }
    }
}
