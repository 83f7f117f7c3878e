//! Latent attention in both forms.

use crate::assert_order;
use crate::orders::{self, Probe, ROWS, Random, round};

/// `1 / sqrt(192)` in f32 steps, as for heads of 128 + 64.
fn scale() -> f32 {
    1.0 / 192.0_f32.sqrt()
}

/// A probe whose row is the latent followed by the rope, and the latent's width.
fn probe(seed: u64, latent: usize, rope: usize) -> Probe {
    Probe::f32(seed, latent + rope)
}

/// Every row's score in one order over (latent products, rope products).
fn scores(probe: &Probe, latent: usize, order: impl Fn(&[f64], &[f64]) -> f64) -> Vec<f32> {
    (0..ROWS)
        .map(|row| {
            let products = probe.products(row);
            let (latent, rope) = products.split_at(latent);
            round(order(latent, rope)) * scale()
        })
        .collect()
}

/// The scale applied in f64, before the rounding.
fn scores_scaled_in_f64(
    probe: &Probe,
    latent: usize,
    order: impl Fn(&[f64], &[f64]) -> f64,
) -> Vec<f32> {
    (0..ROWS)
        .map(|row| {
            let products = probe.products(row);
            let (latent, rope) = products.split_at(latent);
            round(order(latent, rope) * f64::from(scale()))
        })
        .collect()
}

fn onto(sum: f64, products: &[f64]) -> f64 {
    products.iter().fold(sum, |sum, product| sum + product)
}

#[test]
fn latent_scores_add_the_rope_serially_to_the_reduced_latent() {
    for latent in [64, 64 + 11] {
        let probe = probe(10, latent, 24);
        let right = |latent: &[f64], rope: &[f64]| onto(orders::matmul(latent), rope);
        let wrong = [
            (
                "one matmul row over latent and rope",
                scores(&probe, latent, |l, r| orders::matmul(&[l, r].concat())),
            ),
            (
                "rope summed apart",
                scores(&probe, latent, |l, r| orders::matmul(l) + orders::serial(r)),
            ),
            (
                "rope in matmul order",
                scores(&probe, latent, |l, r| orders::matmul(l) + orders::matmul(r)),
            ),
            (
                "fully serial",
                scores(&probe, latent, |l, r| orders::serial(&[l, r].concat())),
            ),
            (
                "rope first",
                scores(&probe, latent, |l, r| orders::serial(r) + orders::matmul(l)),
            ),
        ];
        assert_order(
            |set| {
                let mut out = vec![0.0; ROWS];
                let (qa, q_rope) = probe.x.split_at(latent);
                (set.mla_scores_latent)(qa, q_rope, &probe.rows.concat(), scale(), &mut out);
                out
            },
            &scores(&probe, latent, right),
            &wrong,
            2,
        );
    }
}

/// Without cancellation the sum has bits that the first rounding drops.
#[test]
fn scores_are_rounded_before_the_scale() {
    let random = &mut Random(14);
    let (nope, rope) = (48, 16);
    let row = |random: &mut Random| (0..nope + rope).map(|_| random.value(-3, 2)).collect();
    let probe = Probe {
        x: row(random),
        rows: (0..ROWS).map(|_| row(random)).collect(),
    };
    let (q_nope, q_rope) = probe.x.split_at(nope);
    let latent = |l: &[f64], r: &[f64]| onto(orders::matmul(l), r);
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.mla_scores_latent)(q_nope, q_rope, &probe.rows.concat(), scale(), &mut out);
            out
        },
        &scores(&probe, nope, latent),
        &[("scale in f64", scores_scaled_in_f64(&probe, nope, latent))],
        2,
    );
    let expanded = |n: &[f64], r: &[f64]| onto(orders::serial(n), r);
    let (keys, ropes) = split_rows(&probe, nope);
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.mla_scores_expanded)(q_nope, q_rope, &keys, &ropes, scale(), &mut out);
            out
        },
        &scores(&probe, nope, expanded),
        &[("scale in f64", scores_scaled_in_f64(&probe, nope, expanded))],
        2,
    );
}

/// The first `at` columns of every row, and the others.
fn split_rows(probe: &Probe, at: usize) -> (Vec<f32>, Vec<f32>) {
    let part = |range: fn(&[f32], usize) -> &[f32]| -> Vec<f32> {
        probe
            .rows
            .iter()
            .flat_map(|row| range(row, at))
            .copied()
            .collect()
    };
    (part(|row, at| &row[..at]), part(|row, at| &row[at..]))
}

#[test]
fn expanded_scores_are_serial_over_nope_then_rope() {
    let nope = 64;
    let probe = probe(11, nope, 24);
    let right = |nope: &[f64], rope: &[f64]| onto(orders::serial(nope), rope);
    let wrong = [
        (
            "matmul order",
            scores(&probe, nope, |n, r| orders::matmul(&[n, r].concat())),
        ),
        (
            "rope before nope",
            scores(&probe, nope, |n, r| onto(orders::serial(r), n)),
        ),
        (
            "rope summed apart",
            scores(&probe, nope, |n, r| orders::serial(n) + orders::serial(r)),
        ),
    ];
    let (keys, ropes) = split_rows(&probe, nope);
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            let (q_nope, q_rope) = probe.x.split_at(nope);
            (set.mla_scores_expanded)(q_nope, q_rope, &keys, &ropes, scale(), &mut out);
            out
        },
        &scores(&probe, nope, right),
        &wrong,
        2,
    );
}

/// A cache in which probe row r is latent channel r over the positions.
fn cache_of(probe: &Probe, stride: usize) -> Vec<f32> {
    let mut cache = vec![f32::NAN; probe.x.len() * stride];
    for (channel, row) in probe.rows.iter().enumerate() {
        for (s, &value) in row.iter().enumerate() {
            cache[s * stride + channel] = value;
        }
    }
    cache
}

#[test]
fn latent_mixtures_are_serial_in_f64_over_positions() {
    let probe = Probe::f32(12, 100);
    let stride = ROWS + 3;
    let cache = cache_of(&probe, stride);
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.mla_mix_latent)(&probe.x, &cache, stride, &mut [0.0; ROWS], &mut out);
            out
        },
        &probe.sums(orders::serial),
        &[
            ("matmul order over positions", probe.sums(orders::matmul)),
            ("descending", probe.sums(orders::descending)),
            ("f32 accumulator", probe.sums(orders::in_f32)),
        ],
        ROWS / 2,
    );
}

#[test]
fn expanded_mixtures_round_product_and_sum_in_f32() {
    let random = &mut Random(13);
    let weights: Vec<f32> = (0..40).map(|_| random.value(-6, 0).abs()).collect();
    let values: Vec<f32> = (0..40 * ROWS).map(|_| random.value(-3, 3)).collect();
    let mix = |step: &dyn Fn(f32, f32, f32) -> f32, order: &[usize]| -> Vec<f32> {
        (0..ROWS)
            .map(|j| {
                order
                    .iter()
                    .fold(0.0, |sum, &s| step(sum, weights[s], values[s * ROWS + j]))
            })
            .collect()
    };
    let ascending: Vec<usize> = (0..40).collect();
    let descending: Vec<usize> = (0..40).rev().collect();
    let apart = |sum: f32, p: f32, v: f32| sum + p * v;
    // An f32 product is exact in f64, so this is the fused form but for a
    // double rounding.
    let fused = |sum: f32, p: f32, v: f32| round(f64::from(sum) + f64::from(p) * f64::from(v));
    let in_f64: Vec<f32> = (0..ROWS)
        .map(|j| {
            round((0..40).fold(0.0, |sum, s| {
                sum + f64::from(weights[s]) * f64::from(values[s * ROWS + j])
            }))
        })
        .collect();
    assert_order(
        |set| {
            let mut out = vec![0.0; ROWS];
            (set.mla_mix_expanded)(&weights, &values, &mut out);
            out
        },
        &mix(&apart, &ascending),
        &[
            ("fused", mix(&fused, &ascending)),
            ("descending", mix(&apart, &descending)),
            ("f64 accumulator", in_f64),
        ],
        ROWS / 4,
    );
}
