//! What a person sees of a program: lines that fit, text as it comes, progress.
//!
//! Everything here is about looks. What goes into a file or a pipe is never changed.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | `width` | how wide the terminal is |
//! | `wrap` | finished text, broken between words |
//! | `flow` | text that arrives in pieces, broken between words |
//! | `progress` | bars on a terminal, lines in a log |

#![forbid(unsafe_code)]

mod flow;
mod progress;
mod width;
mod wrap;

pub use flow::Flow;
pub use progress::Progress;
pub use width::{COLUMNS, Stream, columns, fitting, is_dumb, is_terminal};
pub use wrap::{fold, wrap};
