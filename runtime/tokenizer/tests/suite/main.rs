//! The tokenizer on the released vocabulary and on hostile input, against independent
//! implementations and committed vectors.
#![allow(clippy::print_stdout, reason = "tests report times")]

mod class_table;
mod golden;
mod hostile;
mod oracle;
mod reference_data;
mod released;
mod round_trip;
mod values;
