//! From logits to a token, reproducibly.
//!
//! Everything is defined in section 7 of `docs/numerics.md`: the order of the
//! steps, their types and the random number of each position. The result
//! depends on the logits, the settings, what came before and the position alone.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | what can be set, its ranges, and why a token could not be drawn |
//! | [`history`] | what penalties look at |
//! | [`adjust`] | penalties and biases |
//! | [`draw`] | from adjusted logits to an id |
//! | [`logprobs`](mod@logprobs) | how likely an id was |
//! | [`stop`] | strings that end a text |

pub mod adjust;
pub mod draw;
pub mod history;
pub mod logprobs;
pub mod settings;
pub mod stop;

pub use draw::Sampler;
pub use history::History;
pub use logprobs::{Logprobs, TokenLogprob, TokenLogprobs, logprobs};
pub use settings::{SampleError, SamplingSettings};
pub use stop::{EmptyStopString, StopPiece, StopText};

/// The id of the logit at `index`.
fn token_id(index: usize) -> u32 {
    u32::try_from(index).expect("vocabularies are capped far below 2^32")
}

/// The logit of `id`; `None` where the vocabulary has no such id.
fn index_of(id: u32) -> Option<usize> {
    usize::try_from(id).ok()
}
