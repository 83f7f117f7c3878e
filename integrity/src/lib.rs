//! A checkpoint that can be trusted: fetched, verified, repaired.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`basis`] | what the files should be: the manifest, or what `fetch` recorded |
//! | [`check`] | the files against it |
//! | [`http`] | requests, redirects, retries |
//! | [`hub`] | what a model hub says about a repository |
//! | [`fetch`] | downloading a snapshot |
//! | [`repair`] | fetching bad ranges again |
//! | [`record`] | what was fetched from where |
//! | [`Watch`] | who looks on, and may stop it |
//!
//! # Invariants
//!
//! - A file appears under its name when its hash is the published one, not
//!   before. What a download has so far survives its end at any point.
//! - Repair writes bytes whose hash is the manifest's, over bytes whose hash is
//!   not, and nothing else. A file never grows beyond what is verified.
//! - A token goes to the hub it is meant for, and nowhere else: not to where the
//!   hub redirects, not into a file, not into a message.
//! - Everything that waits or tries again has a bound.
//! - No async runtime: threads and blocking reads.
#![forbid(unsafe_code)]

pub mod basis;
pub mod check;
mod error;
pub mod fetch;
pub mod http;
pub mod hub;
mod pattern;
pub mod record;
pub mod repair;
mod watch;

pub use error::IntegrityError;
pub use pattern::Pattern;
pub use watch::{Silent, Watch};
