//! `k3-instructions BODY ISA CALLS`: calls one kernel body a number of times.
//!
//! Under a tool that counts instructions, the difference of two runs with other
//! numbers of calls is what the calls took: starting up and making inputs cancel.
//! `cargo xtask instructions` does that and compares with the committed budgets.
//! Without arguments it lists its bodies. It exits with 3 where the processor, or
//! the tool in its place, lacks the instruction set.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::Write as _;
use std::process::ExitCode;

use k3_formats::trunk::bf16_x3;
use k3_kernels::{Bf16X3, Isa, KdaStep, KernelSet};

/// A body: its name, and what makes its calls.
struct Body {
    name: &'static str,
    run: fn(&KernelSet, calls: usize),
}

const BODIES: [Body; 8] = [
    Body {
        name: "bf16-1",
        run: |set, calls| bf16(set, 1, calls),
    },
    Body {
        name: "bf16-8",
        run: |set, calls| bf16(set, 8, calls),
    },
    Body {
        name: "bf16-x3-1",
        run: |set, calls| packed(set, 1, calls),
    },
    Body {
        name: "bf16-x3-8",
        run: |set, calls| packed(set, 8, calls),
    },
    Body {
        name: "mxfp4-1",
        run: |set, calls| mxfp4(set, 1, calls),
    },
    Body {
        name: "mxfp4-8",
        run: |set, calls| mxfp4(set, 8, calls),
    },
    Body {
        name: "kda-step",
        run: kda_step,
    },
    Body {
        name: "situ",
        run: situ,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        let names = BODIES.map(|body| body.name).join("\n");
        // A closed stdout is the reader's choice.
        let _ = writeln!(std::io::stdout(), "{names}");
        return ExitCode::SUCCESS;
    }
    let Some((body, isa, calls)) = parse(&args) else {
        let usage = "usage: k3-instructions [BODY ISA CALLS]";
        let _ = writeln!(std::io::stderr(), "{usage}");
        return ExitCode::from(2);
    };
    let Some(set) = KernelSet::for_isa(isa) else {
        return ExitCode::from(3);
    };
    (body.run)(set, calls);
    ExitCode::SUCCESS
}

fn parse(args: &[String]) -> Option<(&'static Body, Isa, usize)> {
    let [name, isa, calls] = args else {
        return None;
    };
    let body = BODIES.iter().find(|body| body.name == name)?;
    Some((body, isa.parse().ok()?, calls.parse().ok()?))
}

/// Values between -1 and 1 that repeat after 251.
fn values(len: usize) -> Vec<f32> {
    let one = |i: usize| f32::from(u8::try_from(i * 97 % 251).expect("below 251")) / 125.5 - 1.0;
    (0..len).map(one).collect()
}

/// Values as bf16.
fn bf16_bytes(len: usize) -> Vec<u8> {
    let bytes = |value: f32| [value.to_le_bytes()[2], value.to_le_bytes()[3]];
    values(len).into_iter().flat_map(bytes).collect()
}

/// 16 rows of 1024, packed.
fn packed(set: &KernelSet, positions: usize, calls: usize) {
    let mut payload = Vec::new();
    let stored = bf16_x3::encode(&bf16_bytes(16 * 1024), 16, 1024, &mut payload);
    assert!(stored, "finite weights with few exponents");
    let weights = Bf16X3::new(&payload, 16, 1024).expect("as it was encoded");
    let x = values(positions * 1024);
    let mut out = vec![0.0; 16 * positions];
    for _ in 0..calls {
        (set.matmul_bf16_x3)(black_box(weights), 0..16, &x, positions, &mut out);
        black_box(&mut out);
    }
}

/// 16 rows of 1024.
fn bf16(set: &KernelSet, positions: usize, calls: usize) {
    let weights = bf16_bytes(16 * 1024);
    let x = values(positions * 1024);
    let mut out = vec![0.0; 16 * positions];
    for _ in 0..calls {
        (set.matmul_bf16)(black_box(&weights), &x, positions, &mut out);
        black_box(&mut out);
    }
}

/// 16 rows of 1024.
fn mxfp4(set: &KernelSet, positions: usize, calls: usize) {
    let byte = |i: usize| u8::try_from(i * 89 % 256).expect("below 256");
    let packed: Vec<u8> = (0..16 * 512).map(byte).collect();
    let scales: Vec<u8> = (0..16 * 32).map(|i| 120 + byte(i) % 8).collect();
    let x = values(positions * 1024);
    let mut out = vec![0.0; 16 * positions];
    for _ in 0..calls {
        (set.matmul_mxfp4)(black_box(&packed), &scales, &x, positions, &mut out);
        black_box(&mut out);
    }
}

/// A head of 128.
fn kda_step(set: &KernelSet, calls: usize) {
    const WIDTH: usize = 128;
    let alpha: Vec<f32> = values(WIDTH).iter().map(|v| 0.9 + 0.05 * v).collect();
    let unit: Vec<f32> = values(WIDTH).iter().map(|v| 0.15 * v).collect();
    let v = values(WIDTH);
    let mut state = vec![0.0; WIDTH * WIDTH];
    let (mut delta, mut out) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
    for _ in 0..calls {
        (set.kda_step)(KdaStep {
            state: &mut state,
            alpha: &alpha,
            q: black_box(&unit),
            k: &unit,
            v: &v,
            beta: 0.5,
            delta: &mut delta,
            out: &mut out,
        });
        black_box(&mut out);
    }
}

/// 1024 values.
fn situ(set: &KernelSet, calls: usize) {
    let gate: Vec<f32> = values(1024).iter().map(|v| 3.0 * v).collect();
    let up = values(1024);
    let mut out = vec![0.0; 1024];
    for _ in 0..calls {
        (set.situ_glu)(black_box(&gate), &up, 4.0, 25.0, &mut out);
        black_box(&mut out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn every_body_runs_in_every_set() {
        for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
            for body in &BODIES {
                (body.run)(set, 2);
            }
        }
    }

    #[test]
    fn arguments_name_a_body_a_set_and_a_count() {
        let (body, isa, calls) = parse(&args(&["mxfp4-8", "avx2", "3"])).unwrap();
        assert_eq!((body.name, isa, calls), ("mxfp4-8", Isa::Avx2, 3));
        for wrong in [
            &["mxfp4-9", "avx2", "3"][..],
            &["situ", "sse2", "3"],
            &["situ", "avx2", "-1"],
            &["situ", "avx2"],
        ] {
            assert!(parse(&args(wrong)).is_none(), "{wrong:?}");
        }
    }
}
