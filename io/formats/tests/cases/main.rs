//! What each reader accepts and refuses, fault class by fault class.

mod bf16_x3;
mod bf16_x3_faults;
mod config;
mod index_faults;
mod oracle;
mod rank_file;
mod reference_data;
mod shard_faults;
mod support;
mod trace;
mod trunk;
mod trunk_foreign;
