//! The proof that `exp` and `tanh` are correctly rounded: all 2^32 inputs, in every body.
//!
//! `K3_SLOW=1 cargo test --release -p k3-kernels --test math_exhaustive -- --nocapture`
//!
//! Each result of the scalar function is compared with the oracle's, and each result of every
//! available instruction-set body with the scalar one. `docs/math.md` has the figures.

#![allow(clippy::print_stdout, reason = "the counts are this test's product")]

mod gates;
#[path = "math_oracle/mod.rs"]
mod oracle;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use k3_kernels::{Isa, KernelSet, math};
use oracle::{Decision, Function, Oracle, same};

const THREADS: usize = 2;
/// Inputs are taken in this many chunks, by their upper 16 bits.
const CHUNKS: u32 = 1 << 16;
/// Wrong results shown per thread.
const SHOWN: u64 = 20;

#[derive(Default)]
struct Counts {
    checked: u64,
    by_argument: u64,
    by_estimate: u64,
    by_exact: u64,
    wrong: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.checked += other.checked;
        self.by_argument += other.by_argument;
        self.by_estimate += other.by_estimate;
        self.by_exact += other.by_exact;
        self.wrong += other.wrong;
    }

    fn wrong(&mut self, body: &str, x: f32, got: f32, expected: f32) {
        self.wrong += 1;
        if self.wrong <= SHOWN {
            println!(
                "wrong: {body} at {:#010x} gives {got:e}, must be {expected:e}",
                x.to_bits()
            );
        }
    }
}

type Body = (Isa, fn(&mut [f32]));

fn scalar(function: Function) -> fn(f32) -> f32 {
    match function {
        Function::Exp => math::exp,
        Function::Tanh => math::tanh,
    }
}

fn bodies(function: Function) -> Vec<Body> {
    Isa::ALL
        .into_iter()
        .filter_map(KernelSet::for_isa)
        .map(|set| match function {
            Function::Exp => (set.isa, set.exp),
            Function::Tanh => (set.isa, set.tanh),
        })
        .collect()
}

fn check_chunk(
    oracle: &Oracle,
    function: Function,
    bodies: &[Body],
    inputs: &[f32],
    counts: &mut Counts,
) {
    let scalar = scalar(function);
    let results: Vec<f32> = inputs.iter().map(|&x| scalar(x)).collect();
    for (&x, &got) in inputs.iter().zip(&results) {
        let (expected, decision) = oracle.expected(function, x);
        match decision {
            Decision::Argument => counts.by_argument += 1,
            Decision::Estimate => counts.by_estimate += 1,
            Decision::Exact => counts.by_exact += 1,
        }
        counts.checked += 1;
        if !same(got, expected) {
            counts.wrong("scalar function", x, got, expected);
        }
    }
    for &(isa, body) in bodies {
        let mut from_body = inputs.to_vec();
        body(&mut from_body);
        for ((&x, &got), &expected) in inputs.iter().zip(&from_body).zip(&results) {
            if !same(got, expected) {
                counts.wrong(isa.name(), x, got, expected);
            }
        }
    }
}

fn check_every_input(function: Function) {
    let started = Instant::now();
    let oracle = Oracle::new();
    let bodies = bodies(function);
    let next = AtomicU32::new(0);
    let work = || {
        let mut counts = Counts::default();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= CHUNKS {
                return counts;
            }
            let inputs: Vec<f32> = (0..1 << 16)
                .map(|low| f32::from_bits((chunk << 16) | low))
                .collect();
            check_chunk(&oracle, function, &bodies, &inputs, &mut counts);
        }
    };
    let mut total = Counts::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            total.add(&worker.join().expect("a worker panicked"));
        }
    });

    let names: Vec<&str> = bodies.iter().map(|(isa, _)| isa.name()).collect();
    println!(
        "{function:?}: {} inputs checked, {} decided by argument, {} by f64, {} by the {}-bit \
         oracle, wrong = {}; bodies {}; {:.0} s",
        total.checked,
        total.by_argument,
        total.by_estimate,
        total.by_exact,
        oracle::PRECISION_BITS,
        total.wrong,
        names.join(", "),
        started.elapsed().as_secs_f64(),
    );
    assert_eq!(total.checked, 1 << 32);
    assert_eq!(total.wrong, 0);
}

#[test]
fn exp_and_tanh_are_correctly_rounded_everywhere() {
    if !gates::slow_only() {
        return;
    }
    // One after the other: each run uses all the threads.
    check_every_input(Function::Exp);
    check_every_input(Function::Tanh);
}
