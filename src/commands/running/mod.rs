//! What every command that runs a model does besides: setting it up, streaming
//! its weights, and telling how it goes.
//!
//! | module | holds |
//! |---|---|
//! | [`setup`] | everything about a run but its prompts, checked |
//! | [`streaming`] | the plan and the actors of a run that reads as it goes |
//! | [`stopping`] | strings that end an answer |
//! | [`ceiling`] | how fast the disk could be read |
//! | [`live`], [`figures`], [`exposed`] | what the run has done so far, for its report and for metrics |

mod ceiling;
pub(crate) mod exposed;
pub(crate) mod figures;
pub(crate) mod live;
pub(crate) mod setup;
pub(crate) mod stopping;
pub(crate) mod streaming;
