//! Why a trace cannot be replayed.

/// A trace and settings that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A trace without a pair.
    #[error("the trace is empty: record one with --dump-trace")]
    EmptyTrace,
    /// A setting that must be positive is zero.
    #[error("{what} is 0: it must be at least 1")]
    Zero {
        /// What is zero.
        what: &'static str,
    },
    /// A layer or expert number beyond what a model can have.
    #[error(
        "sweep {sweep} of the trace names expert {expert} of layer {layer}: numbers end at 65535"
    )]
    NumberTooLarge {
        /// Index of the sweep in the trace.
        sweep: usize,
        /// Layer in the trace.
        layer: u32,
        /// Expert in the trace.
        expert: u32,
    },
    /// A layer whose picks are not a whole number of positions, or another
    /// number than the layer before has.
    #[error(
        "layer {layer} has {picks} picks in sweep {sweep} of the trace, expected {}: give --topk as it was when the trace was recorded",
        expected(*.positions, *.top_k)
    )]
    PickCount {
        /// Index of the sweep in the trace.
        sweep: usize,
        /// The layer.
        layer: u32,
        /// Picks found.
        picks: usize,
        /// Picks per position.
        top_k: usize,
        /// Positions of the layers before it, if it is not the first.
        positions: Option<usize>,
    },
    /// A sweep with other layers than the first.
    #[error(
        "sweep {sweep} of the trace has {found} layers, or others, than the {expected} of the first sweep"
    )]
    Layers {
        /// Index of the sweep in the trace.
        sweep: usize,
        /// Layers of the first sweep.
        expected: usize,
        /// Layers of this one.
        found: usize,
    },
    /// A prompt that is longer than the trace, or ends inside a sweep.
    #[error(
        "a prompt of {prompt} positions does not end at a sweep of the trace, which has {positions} positions: give --prompt-positions as it was when the trace was recorded"
    )]
    Prompt {
        /// Positions of the prompt.
        prompt: usize,
        /// Positions replayed.
        positions: usize,
    },
    /// Fewer slots than are reserved for transit.
    #[error("{slots} slots are fewer than the {transit} reserved for transit: give more --slots")]
    TooFewSlots {
        /// Slots asked for.
        slots: usize,
        /// Of them for transit.
        transit: usize,
    },
}

fn expected(positions: Option<usize>, top_k: usize) -> String {
    match positions {
        Some(positions) => format!("{} ({positions} positions of {top_k})", positions * top_k),
        None => format!("a multiple of {top_k}"),
    }
}
