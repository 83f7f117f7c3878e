//! Orders of summation, right and wrong, over products that are exact in f64;
//! and data on which they differ.

/// One product after the other.
pub(crate) fn serial(products: &[f64]) -> f64 {
    let mut sum = 0.0;
    for product in products {
        sum += product;
    }
    sum
}

/// Serial from the last product to the first.
pub(crate) fn descending(products: &[f64]) -> f64 {
    products
        .iter()
        .rev()
        .fold(0.0, |sum, product| sum + product)
}

/// Lane `l` of `lanes` over the full blocks: products l, l + lanes, ...
fn lane(products: &[f64], lanes: usize, l: usize) -> f64 {
    let full = products.len() / lanes * lanes;
    serial(
        &products[..full]
            .iter()
            .copied()
            .skip(l)
            .step_by(lanes)
            .collect::<Vec<_>>(),
    )
}

fn lanes<const N: usize>(products: &[f64]) -> [f64; N] {
    std::array::from_fn(|l| lane(products, N, l))
}

/// The products behind the last full block of 16.
fn rest(products: &[f64]) -> &[f64] {
    &products[products.len() / 16 * 16..]
}

fn tree(a: [f64; 16]) -> f64 {
    let b0 = (a[0] + a[4]) + (a[8] + a[12]);
    let b1 = (a[1] + a[5]) + (a[9] + a[13]);
    let b2 = (a[2] + a[6]) + (a[10] + a[14]);
    let b3 = (a[3] + a[7]) + (a[11] + a[15]);
    (b0 + b1) + (b2 + b3)
}

/// The contract: 16 lanes, the tree, the rest serially onto the sum.
pub(crate) fn matmul(products: &[f64]) -> f64 {
    rest(products)
        .iter()
        .fold(tree(lanes(products)), |sum, p| sum + p)
}

/// Wrong: four lanes by i mod 4.
pub(crate) fn four_lanes(products: &[f64]) -> f64 {
    let a: [f64; 4] = lanes(products);
    let full = products.len() / 4 * 4;
    products[full..]
        .iter()
        .fold((a[0] + a[1]) + (a[2] + a[3]), |sum, p| sum + p)
}

/// Wrong: eight lanes by i mod 8.
pub(crate) fn eight_lanes(products: &[f64]) -> f64 {
    let full = products.len() / 8 * 8;
    products[full..]
        .iter()
        .fold(group_tree(lanes(products)), |sum, p| sum + p)
}

/// `(s0 + s1) + (s2 + s3)` with `s_j = a[j] + a[j + 4]`.
pub(crate) fn group_tree(a: [f64; 8]) -> f64 {
    let [s0, s1, s2, s3] = [a[0] + a[4], a[1] + a[5], a[2] + a[6], a[3] + a[7]];
    (s0 + s1) + (s2 + s3)
}

/// The contract inside an MXFP4 group.
pub(crate) fn group(products: &[f64]) -> f64 {
    group_tree(lanes(products))
}

/// Wrong: the right lanes, halved: l + 8, then + 4, + 2, + 1.
pub(crate) fn halving_tree(products: &[f64]) -> f64 {
    let mut a: Vec<f64> = lanes::<16>(products).to_vec();
    while a.len() > 1 {
        let half = a.len() / 2;
        a = (0..half).map(|l| a[l] + a[l + half]).collect();
    }
    rest(products).iter().fold(a[0], |sum, p| sum + p)
}

/// Wrong: the right lanes, added up one by one.
pub(crate) fn linear_tree(products: &[f64]) -> f64 {
    rest(products)
        .iter()
        .fold(serial(&lanes::<16>(products)), |sum, p| sum + p)
}

/// Wrong: the rest as one more, shorter block.
pub(crate) fn rest_in_lanes(products: &[f64]) -> f64 {
    let mut a = lanes::<16>(products);
    for (a, p) in a.iter_mut().zip(rest(products)) {
        *a += p;
    }
    tree(a)
}

/// Wrong: the rest onto lane 0 before the tree.
pub(crate) fn rest_in_lane_0(products: &[f64]) -> f64 {
    let mut a = lanes::<16>(products);
    a[0] = rest(products).iter().fold(a[0], |sum, p| sum + p);
    tree(a)
}

/// Wrong: the rest summed apart, then added.
pub(crate) fn rest_apart(products: &[f64]) -> f64 {
    tree(lanes(products)) + serial(rest(products))
}

/// Wrong: accumulated in f32.
#[allow(clippy::cast_possible_truncation, reason = "the mistake under test")]
pub(crate) fn in_f32(products: &[f64]) -> f64 {
    f64::from(products.iter().fold(0.0_f32, |sum, &p| sum + p as f32))
}

/// The one rounding to f32.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the rounding of the contract"
)]
pub(crate) fn round(sum: f64) -> f32 {
    sum as f32
}

/// `SplitMix64`, for data that is the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A magnitude in `2^low..2^high` with a random sign and mantissa.
    pub(crate) fn value(&mut self, low: i16, high: i16) -> f32 {
        let span = u64::from((high - low).unsigned_abs());
        let exponent = u32::try_from(self.below(span)).expect("small");
        let exponent = (exponent + 127).wrapping_add_signed(i32::from(low));
        let mantissa = u32::try_from(self.bits() >> 41).expect("23 bits");
        let sign = u32::try_from(self.bits() >> 63).expect("one bit");
        f32::from_bits(sign << 31 | exponent << 23 | mantissa)
    }
}

/// Activations and rows of weights whose large products cancel in pairs.
///
/// Half the places are paired at random: both hold the same large activation,
/// and every row holds opposite weights there. What is left of the sum is the
/// small products and the bits that they lost next to the large ones, which
/// depends on the order.
pub(crate) struct Probe {
    pub(crate) x: Vec<f32>,
    pub(crate) rows: Vec<Vec<f32>>,
}

/// How many rows a probe has.
pub(crate) const ROWS: usize = 16;

impl Probe {
    /// `n` columns; `weight` draws one weight, whose negation must be a weight.
    pub(crate) fn new(seed: u64, n: usize, mut weight: impl FnMut(&mut Random) -> f32) -> Self {
        let random = &mut Random(seed);
        let mut places: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            let j = usize::try_from(random.below(i as u64 + 1)).expect("small");
            places.swap(i, j);
        }
        let pairs: Vec<(usize, usize)> = places[..n / 4 * 2]
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect();
        let mut x: Vec<f32> = (0..n).map(|_| random.value(-3, 2)).collect();
        for &(a, b) in &pairs {
            x[a] = random.value(26, 42);
            x[b] = x[a];
        }
        let rows = (0..ROWS)
            .map(|_| {
                let mut row: Vec<f32> = (0..n).map(|_| weight(random)).collect();
                for &(a, b) in &pairs {
                    row[b] = -row[a];
                }
                row
            })
            .collect();
        Self { x, rows }
    }

    /// With bf16 weights.
    pub(crate) fn bf16(seed: u64, n: usize) -> Self {
        Self::new(seed, n, |random| {
            f32::from_bits(random.value(-4, 2).to_bits() & 0xFFFF_0000)
        })
    }

    /// With f32 weights.
    pub(crate) fn f32(seed: u64, n: usize) -> Self {
        Self::new(seed, n, |random| random.value(-4, 2))
    }

    /// The exact products of one row.
    pub(crate) fn products(&self, row: usize) -> Vec<f64> {
        self.rows[row]
            .iter()
            .zip(&self.x)
            .map(|(&w, &x)| f64::from(w) * f64::from(x))
            .collect()
    }

    /// Every row summed in one order.
    pub(crate) fn sums(&self, order: fn(&[f64]) -> f64) -> Vec<f32> {
        (0..ROWS)
            .map(|row| round(order(&self.products(row))))
            .collect()
    }
}
