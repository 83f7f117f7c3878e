//! The demo model: a checkpoint inside the program.
//!
//! A small model of Kimi K3's architecture with every mechanism of it, trained on
//! public-domain English by `scripts/demo/`, in the layout that the real one is
//! released in. The engine streams weights from files, so the checkpoint is
//! unpacked before it is run: into a directory of a cache that is named after
//! what it holds. What lies there already is compared with the program's copy,
//! byte for byte, and written again where it differs.
//!
//! # Invariants
//!
//! - A file appears under its name complete or not at all.
//! - Programs with other demo models never share a directory.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | `unpack` | the files, and where they are written |

#![forbid(unsafe_code)]

mod unpack;

pub use unpack::{DemoError, FILES, File, directory_name, total_bytes, unpack, unpack_telling};
