//! Names of what a sweep spends its time on.
//!
//! A family says where one step ends and the next begins, through
//! [`Workers::phase`](crate::Workers::phase). A measurement can then name every
//! share of a sweep.

/// A step within a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Phase {
    /// The part of a layer, or of the model, that the step belongs to.
    pub part: &'static str,
    /// What is done, unique within the part.
    pub name: &'static str,
}

/// The weights of the next step are taken from their source: told apart so that
/// the source's own work is not counted as arithmetic.
pub const TAKE_WEIGHTS: Phase = Phase {
    part: "layer",
    name: "take weights",
};
