//! The `k3` binary as its users meet it.

mod batch;
mod bench;
mod bench_experts;
mod common;
mod compare;
mod demo;
mod doctor;
mod exposition;
mod faults;
mod generate;
mod help;
mod inspect;
mod install;
mod integrity;
mod interrupt;
mod ladder;
mod leftovers;
mod loading;
mod lookahead;
mod metrics;
mod midway;
mod origins;
mod outputs;
mod plan;
mod prefix_cache;
mod reference_data;
mod released;
mod replay;
mod sampling;
mod settings;
mod streaming;
#[path = "../support/synth.rs"]
mod synth;
mod tokenize;
mod trunk;
mod usage;
