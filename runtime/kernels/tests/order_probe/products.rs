//! Matrix products, the column product, the router, MXFP4.

use crate::assert_order;
use crate::orders::{self, Probe, ROWS, Random, round};

fn bf16(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| {
            let [zero_0, zero_1, low, high] = value.to_le_bytes();
            assert_eq!([zero_0, zero_1], [0, 0], "a bf16 value");
            [low, high]
        })
        .collect()
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The mistakes that show without a remainder.
fn wrong_lanes(probe: &Probe) -> Vec<(&'static str, Vec<f32>)> {
    vec![
        ("serial", probe.sums(orders::serial)),
        ("descending", probe.sums(orders::descending)),
        ("4 lanes", probe.sums(orders::four_lanes)),
        ("8 lanes", probe.sums(orders::eight_lanes)),
        ("16 lanes, halving tree", probe.sums(orders::halving_tree)),
        ("16 lanes, linear tree", probe.sums(orders::linear_tree)),
        ("f32 accumulator", probe.sums(orders::in_f32)),
    ]
}

/// The mistakes that need one.
fn wrong_rests(probe: &Probe) -> Vec<(&'static str, Vec<f32>)> {
    vec![
        ("rest in the lanes", probe.sums(orders::rest_in_lanes)),
        ("rest onto lane 0", probe.sums(orders::rest_in_lane_0)),
        ("rest summed apart", probe.sums(orders::rest_apart)),
    ]
}

#[test]
fn bf16_products_use_sixteen_lanes_and_their_tree() {
    let probe = Probe::bf16(1, 256);
    let weights = bf16(&probe.rows.concat());
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.matmul_bf16)(&weights, &probe.x, 1, &mut out);
            out
        },
        &probe.sums(orders::matmul),
        &wrong_lanes(&probe),
        ROWS / 2,
    );
}

#[test]
fn the_remainder_is_added_serially_after_the_tree() {
    let probe = Probe::bf16(2, 256 + 13);
    let weights = bf16(&probe.rows.concat());
    let mut wrong = wrong_lanes(&probe);
    wrong.extend(wrong_rests(&probe));
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.matmul_bf16)(&weights, &probe.x, 1, &mut out);
            out
        },
        &probe.sums(orders::matmul),
        &wrong,
        ROWS / 4,
    );
}

#[test]
fn f32_products_use_the_same_order() {
    let probe = Probe::f32(3, 256 + 13);
    let weights = le_bytes(&probe.rows.concat());
    let mut wrong = wrong_lanes(&probe);
    wrong.extend(wrong_rests(&probe));
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.matmul_f32)(&weights, &probe.x, 1, &mut out);
            out
        },
        &probe.sums(orders::matmul),
        &wrong,
        ROWS / 4,
    );
}

/// Output of several positions is `[rows][positions]`, each as if alone.
#[test]
fn positions_are_the_inner_index_of_the_output() {
    let probe = Probe::bf16(4, 100);
    let weights = bf16(&probe.rows.concat());
    let doubled: Vec<f32> = probe.x.iter().map(|x| 2.0 * x).collect();
    let right = probe.sums(orders::matmul);
    let interleaved: Vec<f32> = right.iter().flat_map(|&y| [y, 2.0 * y]).collect();
    let transposed: Vec<f32> = right
        .iter()
        .copied()
        .chain(right.iter().map(|y| 2.0 * y))
        .collect();
    let x = [probe.x.clone(), doubled].concat();
    assert_order(
        |set| {
            let mut out = vec![0.0; 2 * ROWS];
            (set.matmul_bf16)(&weights, &x, 2, &mut out);
            out
        },
        &interleaved,
        &[("[positions][rows]", transposed)],
        ROWS,
    );
}

#[test]
fn columns_are_summed_in_matmul_order_over_the_rows() {
    let probe = Probe::bf16(5, 128 + 9);
    // Row i of the matrix holds element i of every probe row.
    let transposed: Vec<f32> = (0..probe.x.len())
        .flat_map(|i| probe.rows.iter().map(move |row| row[i]))
        .collect();
    let weights = bf16(&transposed);
    let mut wrong = wrong_lanes(&probe);
    wrong.extend(wrong_rests(&probe));
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.columns_bf16)(&weights, &probe.x, &mut out);
            out
        },
        &probe.sums(orders::matmul),
        &wrong,
        ROWS / 4,
    );
}

#[test]
fn router_logits_are_summed_serially() {
    let probe = Probe::bf16(6, 256 + 13);
    let wrong = [
        ("matmul order", probe.sums(orders::matmul)),
        ("8 lanes", probe.sums(orders::eight_lanes)),
        ("descending", probe.sums(orders::descending)),
        ("f32 accumulator", probe.sums(orders::in_f32)),
    ];
    let right = probe.sums(orders::serial);
    let weights = bf16(&probe.rows.concat());
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.router_bf16)(&weights, &probe.x, 1, &mut out);
            out
        },
        &right,
        &wrong,
        ROWS / 2,
    );
    let weights = le_bytes(&probe.rows.concat());
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.router_f32)(&weights, &probe.x, 1, &mut out);
            out
        },
        &right,
        &wrong,
        ROWS / 2,
    );
}

/// The E2M1 magnitudes, by the lower three bits of a nibble.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

fn nibble(value: f32) -> u8 {
    let index = E2M1
        .iter()
        .position(|&m| m == value.abs())
        .expect("an E2M1 value");
    u8::try_from(index).expect("small") | u8::from(value.is_sign_negative()) << 3
}

/// `2^exponent`, for exponents of normal f64.
fn power(exponent: i32) -> f64 {
    f64::from_bits(u64::from((1023 + exponent).unsigned_abs()) << 52)
}

/// The f64 sum of a row of MXFP4 products: `inside` sums a group's unscaled
/// products, `scale` multiplies; groups ascending.
fn grouped(products: &[f64], scale: f64, inside: fn(&[f64]) -> f64) -> f64 {
    products
        .chunks(32)
        .fold(0.0, |sum, group| sum + inside(group) * scale)
}

#[test]
fn mxfp4_products_use_eight_lanes_per_group() {
    let probe = Probe::new(7, 512, |random: &mut Random| {
        let magnitude = E2M1[usize::try_from(random.below(7)).expect("small") + 1];
        if random.below(2) == 0 {
            magnitude
        } else {
            -magnitude
        }
    });
    let packed: Vec<u8> = probe
        .rows
        .concat()
        .chunks_exact(2)
        .map(|pair| nibble(pair[0]) | nibble(pair[1]) << 4)
        .collect();
    // Row r is scaled by 2^(r - 8).
    let exponents: Vec<i32> = (-8..8).collect();
    let scales: Vec<u8> = exponents
        .iter()
        .flat_map(|exponent| [u8::try_from(127 + exponent).expect("a byte"); 16])
        .collect();
    let rows = |sum: &dyn Fn(&[f64], f64) -> f64| -> Vec<f32> {
        (0..ROWS)
            .map(|row| round(sum(&probe.products(row), power(exponents[row]))))
            .collect()
    };
    let scaled = |products: &[f64], scale: f64| -> Vec<f64> {
        products.iter().map(|product| product * scale).collect()
    };
    let wrong = [
        (
            "serial inside a group",
            rows(&|p, s| grouped(p, s, orders::serial)),
        ),
        (
            "4 lanes inside a group",
            rows(&|p, s| grouped(p, s, orders::four_lanes)),
        ),
        (
            "16 lanes inside a group",
            rows(&|p, s| grouped(p, s, orders::matmul)),
        ),
        (
            "16 lanes over the row",
            rows(&|p, s| orders::matmul(&scaled(p, s))),
        ),
        (
            "8 lanes over the row",
            rows(&|p, s| orders::eight_lanes(&scaled(p, s))),
        ),
        ("fully serial", rows(&|p, s| orders::serial(&scaled(p, s)))),
        (
            "groups descending",
            rows(&|p, s| {
                p.chunks(32)
                    .rev()
                    .fold(0.0, |sum, g| sum + orders::group(g) * s)
            }),
        ),
    ];
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            let skipped = (set.matmul_mxfp4)(&packed, &scales, &probe.x, 1, &mut out);
            assert_eq!(skipped, 0);
            out
        },
        &rows(&|products, scale| grouped(products, scale, orders::group)),
        &wrong,
        ROWS / 2,
    );
}

/// One element at a time: `E2M1 * 2^(scale - 127)`, low nibble = even element.
#[test]
fn mxfp4_elements_decode_exactly() {
    for scale in [0_u8, 1, 100, 126, 127, 128, 253, 254] {
        for (index, magnitude) in (0..16_u8).map(|n| (n, E2M1[usize::from(n & 7)])) {
            let value = f64::from(magnitude) * power(i32::from(scale) - 127);
            let value = if index < 8 { value } else { -value };
            for place in [0_usize, 1, 30, 31] {
                let mut packed = [0_u8; 16];
                packed[place / 2] = index << (4 * (place % 2));
                let mut x = [0.0_f32; 32];
                x[place] = 1.0;
                // A sum that starts at +0.0 never becomes -0.0.
                let right = round(value + 0.0);
                assert_order(
                    |set| {
                        let mut out = vec![f32::NAN];
                        (set.matmul_mxfp4)(&packed, &[scale], &x, 1, &mut out);
                        out
                    },
                    &[right],
                    &[],
                    0,
                );
            }
        }
    }
}

/// A NaN scale removes its group, whatever the group and the activations hold,
/// and is counted once for each row.
#[test]
fn nan_scales_skip_their_group_and_are_counted_once() {
    let packed = [0x77_u8; 3 * 2 * 16];
    let scales = [127, 255, 127, 255, 255, 255];
    let mut x = vec![1.0_f32; 2 * 96];
    x[32..64].fill(f32::INFINITY);
    x[96 + 32..96 + 64].fill(f32::NAN);
    for set in crate::sets() {
        let mut out = vec![f32::NAN; 4];
        let skipped = (set.matmul_mxfp4)(&packed, &scales, &x, 2, &mut out);
        assert_eq!(skipped, 4, "{}", set.isa);
        assert_eq!(out, [384.0, 384.0, 0.0, 0.0], "{}", set.isa);
    }
}
