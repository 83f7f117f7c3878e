//! The `k3` binary as its users meet it.

mod common;
mod compare;
mod generate;
mod help;
mod interrupt;
mod loading;
mod outputs;
mod reference_data;
mod sampling;
mod settings;
mod streaming;
mod tokenize;
mod usage;
