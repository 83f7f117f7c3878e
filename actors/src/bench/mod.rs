//! What the streaming engine achieves, against what it is made of.
//!
//! A streamed sweep is reading and arithmetic at the same time. How well the two
//! hide each other shows only against each of them alone, measured in the same
//! minutes on the same machine:
//!
//! - *wall*: real sweeps, with the actors, the plan and the pool of a run;
//! - *I/O alone*: the requests of such a sweep, recorded between the actors and
//!   the engine, through an engine and memory of the same kind, with no
//!   arithmetic;
//! - *compute alone*: the arithmetic of that sweep, with its recorded experts,
//!   over weights that lie in memory already.
//!
//! | module | holds |
//! |---|---|
//! | [`overlap`] | the three measures, interleaved, and where they are closest |
//! | [`disk`] | the reader against the best that the disk gives |
//! | [`prefill`] | what a position of a prompt costs, by the size of a chunk |
//! | `point` | the figures of the triples of one number of positions |
//! | [`decode`] | the arithmetic of one token, by name |
//! | `prompt` | what measured sweeps are over |
//! | `record`, `replay` | the requests of a sweep, and reading them again |
//! | `cycle`, `impose` | weights from memory, and experts from a record |

mod cycle;
pub mod decode;
pub mod disk;
pub mod error;
mod impose;
pub mod overlap;
mod point;
pub mod prefill;
mod prompt;
mod record;
mod replay;
mod search;
#[cfg(test)]
mod tests;

pub use error::BenchError;
