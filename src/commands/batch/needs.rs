//! The memory for positions that a batch needs.

use k3_models::{PAGE_POSITIONS, pages_for};

use super::error::BatchError;
use super::input::Prompt;

/// What the answers that are left take, in pages.
pub(super) struct Needs {
    /// Pages of each, the most first.
    pages: Vec<usize>,
    /// The longest prompt with its answer, over all lines.
    context_positions: usize,
    /// What was asked for.
    asked: Option<usize>,
}

/// Positions of one answer.
fn positions(prompt: &Prompt) -> usize {
    prompt.ids.len() + prompt.gen_count
}

/// The least total that holds all choices of a prompt, each in pages of its own;
/// what the last page of the last has beyond them may be nobody's.
fn together(prompt: &Prompt) -> usize {
    let each = positions(prompt);
    let others = usize::try_from(prompt.choices).unwrap_or(usize::MAX) - 1;
    let others = others.saturating_mul(each.next_multiple_of(PAGE_POSITIONS));
    others.saturating_add(each)
}

/// Refuses a prompt whose choices, which run together, take more than the `asked`
/// positions that all of them may take at a time.
///
/// # Errors
///
/// [`BatchError::Total`].
pub(super) fn check(prompts: &[Prompt], asked: Option<usize>) -> Result<(), BatchError> {
    let most = prompts.iter().max_by_key(|prompt| together(prompt));
    let most = most.expect("there is a prompt");
    match asked.filter(|asked| together(most) > *asked) {
        None => Ok(()),
        Some(asked) => Err(BatchError::Total {
            line: most.line,
            choices: most.choices,
            needed: together(most),
            asked,
        }),
    }
}

impl Needs {
    /// Those of `left`, a prompt for each answer, out of `prompts`, which has one;
    /// `asked`: the positions that all of them may take at a time, which were
    /// [checked](check).
    pub(super) fn new<'a>(
        prompts: &[Prompt],
        left: impl Iterator<Item = &'a Prompt>,
        asked: Option<usize>,
    ) -> Self {
        let context_positions = prompts.iter().map(positions).max();
        let mut pages: Vec<usize> = left.map(|prompt| pages_for(positions(prompt))).collect();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            pages,
            context_positions: context_positions.expect("there is a prompt"),
            asked,
        }
    }

    /// Positions that one of them may reach.
    pub(super) fn context_positions(&self) -> usize {
        self.context_positions
    }

    /// Positions for `width` of them at a time: what was asked for, or what the
    /// longest take, so that none waits for another's memory.
    pub(super) fn total_positions(&self, width: usize) -> usize {
        self.asked.unwrap_or_else(|| {
            let pages: usize = self.pages.iter().take(width).sum();
            self.context_positions.max(pages * PAGE_POSITIONS)
        })
    }
}

#[cfg(test)]
mod tests {
    use k3_runtime::SamplingSettings;

    use super::*;

    fn prompt(line: usize, len: usize, gen_count: usize, choices: u32) -> Prompt {
        Prompt {
            line,
            id: None,
            ids: vec![1; len],
            gen_count,
            sampling: SamplingSettings::default(),
            stop_ids: Vec::new(),
            stops: Vec::new(),
            logprobs: None,
            choices,
        }
    }

    #[test]
    fn the_longest_of_each_width_fit_together() {
        let prompts = [
            prompt(1, 10, 5, 1),
            prompt(2, 300, 20, 1),
            prompt(3, 60, 5, 2),
        ];
        let left = [&prompts[0], &prompts[1], &prompts[2], &prompts[2]];
        let needs = Needs::new(&prompts, left.into_iter(), None);
        assert_eq!(needs.context_positions(), 320);
        let totals = [1, 2, 3, 4, 9].map(|width| needs.total_positions(width) / 64);
        assert_eq!(totals, [5, 7, 9, 10, 10]);
        // What is left may be short, and the context is still that of all lines.
        let needs = Needs::new(&prompts, left.into_iter().take(1), None);
        assert_eq!(needs.total_positions(4), 320);
    }

    #[test]
    fn what_was_asked_for_must_hold_each_line() {
        let prompts = [prompt(1, 100, 20, 1), prompt(2, 60, 5, 3)];
        let needs = |asked| Needs::new(&prompts, prompts.iter(), Some(asked));
        // Three choices of 65 positions take two pages each.
        for asked in [321, 384, 1000] {
            check(&prompts, Some(asked)).unwrap();
            assert_eq!(needs(asked).total_positions(2), asked);
        }
        for asked in [1, 119, 320] {
            let Err(BatchError::Total { line, needed, .. }) = check(&prompts, Some(asked)) else {
                panic!("{asked} positions are not enough");
            };
            assert_eq!((line, needed), (2, 321));
        }
        let alone = &prompts[..1];
        assert!(check(alone, Some(120)).is_ok() && check(alone, None).is_ok());
        let short = check(alone, Some(119));
        assert!(matches!(short, Err(BatchError::Total { needed: 120, .. })));
    }
}
