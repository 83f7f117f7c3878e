//! Decoders and the product, in turn.

use std::hint::black_box;

use k3_kernels::KernelSet;
use k3_models::parallel::Inline;
use k3_runtime::statistics::Spread;

use super::{Coders, CodingRequest, ExpertMatrix, Rates, huffman, palette};
use crate::rounds::{Compared, Kernel, Pass, places};
use crate::values::Random;

/// Times all three; `None` when it was stopped before the first round's end.
pub(super) fn rates(
    matrices: &[ExpertMatrix],
    coders: &Coders,
    request: &CodingRequest<'_>,
    told: &mut dyn FnMut(f64),
) -> Option<Rates> {
    let kernels: [Box<dyn Kernel + '_>; 3] = [
        Box::new(Scales::new(matrices, coders)),
        Box::new(Values::new(matrices, coders)),
        Box::new(Product::new(matrices, request)),
    ];
    let mut passes = kernels.map(|kernel| Pass::calibrated(vec![kernel], request.pass_seconds));
    let all: usize = matrices.iter().map(ExpertMatrix::bytes).sum();
    #[allow(
        clippy::cast_precision_loss,
        reason = "bytes of a sample, calls of a moment"
    )]
    let mean = |calls: u64| calls as f64 * all as f64 / matrices.len() as f64;
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let mut compared = Compared::default();
    for round in 0..request.rounds {
        if request.cancel.is_requested() {
            break;
        }
        for place in places(round, passes.len()) {
            seconds[place].push(passes[place].run(&Inline));
            compared.add(passes[place].compare(round));
        }
        #[allow(clippy::cast_precision_loss, reason = "rounds are few")]
        told((round + 1) as f64 / request.rounds as f64);
    }
    let rate = |place: usize| {
        let bytes = mean(passes[place].calls());
        let rates: Vec<f64> = seconds[place].iter().map(|&took| bytes / took).collect();
        Spread::of(&rates)
    };
    Some(Rates {
        scales: rate(0)?,
        values: rate(1)?,
        product: rate(2)?,
        mismatches: compared.mismatches,
    })
}

/// One matrix after the other, so that none stays in a cache from its last turn.
#[derive(Debug, Clone, Copy)]
struct Turn(usize);

impl Turn {
    fn next(&mut self, count: usize) -> usize {
        let index = self.0 % count;
        self.0 += 1;
        index
    }
}

struct Scales<'m> {
    matrices: &'m [ExpertMatrix],
    coders: &'m Coders,
    coded: Vec<palette::Coded>,
    out: Vec<u8>,
    turn: Turn,
}

impl<'m> Scales<'m> {
    fn new(matrices: &'m [ExpertMatrix], coders: &'m Coders) -> Self {
        let coded = matrices
            .iter()
            .map(|matrix| coders.palette.encode(&matrix.scales));
        Self {
            coded: coded.collect(),
            matrices,
            coders,
            out: Vec::new(),
            turn: Turn(0),
        }
    }

    fn run(&mut self) -> &'m [u8] {
        let index = self.turn.next(self.matrices.len());
        let scales = &self.matrices[index].scales;
        self.out.resize(scales.len(), 0);
        self.coders
            .palette
            .decode(&self.coded[index], &mut self.out);
        scales
    }
}

impl Kernel for Scales<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.out);
    }

    fn compare(&mut self, _round: usize) -> Compared {
        let scales = self.run();
        differing(&self.out, scales)
    }
}

struct Values<'m> {
    matrices: &'m [ExpertMatrix],
    coders: &'m Coders,
    coded: Vec<huffman::Coded>,
    out: Vec<u8>,
    turn: Turn,
}

impl<'m> Values<'m> {
    fn new(matrices: &'m [ExpertMatrix], coders: &'m Coders) -> Self {
        let coded = matrices
            .iter()
            .map(|matrix| coders.code.encode(&matrix.packed));
        Self {
            coded: coded.collect(),
            matrices,
            coders,
            out: Vec::new(),
            turn: Turn(0),
        }
    }

    fn run(&mut self) -> &'m [u8] {
        let index = self.turn.next(self.matrices.len());
        let packed = &self.matrices[index].packed;
        self.out.resize(packed.len(), 0);
        self.coders.code.decode(&self.coded[index], &mut self.out);
        packed
    }
}

impl Kernel for Values<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.out);
    }

    fn compare(&mut self, _round: usize) -> Compared {
        let packed = self.run();
        differing(&self.out, packed)
    }
}

/// The product with one position.
struct Product<'m> {
    set: &'static KernelSet,
    matrices: &'m [ExpertMatrix],
    x: Vec<f32>,
    out: Vec<f32>,
    turn: Turn,
}

impl<'m> Product<'m> {
    fn new(matrices: &'m [ExpertMatrix], request: &CodingRequest<'_>) -> Self {
        let widest = matrices.iter().map(|matrix| matrix.columns).max();
        Self {
            set: KernelSet::for_isa(request.isa).expect("an available set"),
            matrices,
            x: Random::new(1).normal(widest.expect("matrices were counted")),
            out: Vec::new(),
            turn: Turn(0),
        }
    }

    fn run(&mut self) -> &'m ExpertMatrix {
        let matrix = &self.matrices[self.turn.next(self.matrices.len())];
        let rows = 2 * matrix.packed.len() / matrix.columns;
        self.out.resize(rows, 0.0);
        let x = &self.x[..matrix.columns];
        black_box((self.set.matmul_mxfp4)(
            &matrix.packed,
            &matrix.scales,
            x,
            1,
            &mut self.out,
        ));
        matrix
    }
}

impl Kernel for Product<'_> {
    fn call(&mut self) {
        self.run();
        black_box(&mut self.out);
    }

    fn compare(&mut self, round: usize) -> Compared {
        let matrix = self.run();
        let row = (37 * round + 11) % self.out.len();
        let (packed, scales) = (matrix.columns / 2, matrix.columns / 32);
        let mut expected = [0.0];
        let scalar = KernelSet::for_isa(k3_kernels::Isa::Scalar).expect("always available");
        (scalar.matmul_mxfp4)(
            &matrix.packed[row * packed..][..packed],
            &matrix.scales[row * scales..][..scales],
            &self.x[..matrix.columns],
            1,
            &mut expected,
        );
        Compared::of(&self.out[row..=row], &expected)
    }
}

fn differing(found: &[u8], expected: &[u8]) -> Compared {
    let differ = found.iter().zip(expected).filter(|(f, e)| f != e).count();
    Compared {
        values: expected.len() as u64,
        mismatches: differ as u64,
    }
}
