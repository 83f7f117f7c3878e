//! Positions of the next sweep.

/// What a sequence could do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Its pending token, and this many guesses.
    Step {
        /// Guesses behind it.
        guesses: usize,
    },
    /// This many positions of its prompt.
    Prompt {
        /// Positions left.
        left: usize,
    },
    /// Nothing: another reads the prompt for it.
    Waits,
}

/// How many positions each sequence gets, in the order of `ready`, which is that
/// of admission. Steps are whole; prompts share `chunk_positions`.
pub(super) fn positions(ready: &[Ready], chunk_positions: usize) -> Vec<usize> {
    let mut chunk = chunk_positions;
    let counts = ready.iter().map(|ready| match *ready {
        Ready::Step { guesses } => 1 + guesses,
        Ready::Prompt { left } => {
            let taken = left.min(chunk);
            chunk -= taken;
            taken
        }
        Ready::Waits => 0,
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_steps_and_prompts_share_the_chunk_in_order() {
        let step = |guesses| Ready::Step { guesses };
        let prompt = |left| Ready::Prompt { left };
        let ready = [
            step(0),
            prompt(5),
            step(3),
            Ready::Waits,
            prompt(9),
            prompt(2),
        ];
        assert_eq!(positions(&ready, 8), [1, 5, 4, 0, 3, 0]);
        assert_eq!(positions(&ready, 100), [1, 5, 4, 0, 9, 2]);
        assert_eq!(positions(&ready, 1), [1, 1, 4, 0, 0, 0]);
        assert!(positions(&[], 8).is_empty());
    }
}
