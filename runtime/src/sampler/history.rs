//! What penalties look at: which ids came before, and how often.

/// The distinct ids of a prompt and its output so far.
///
/// One entry per distinct id, never more than the vocabulary has, however long
/// the text: 8 bytes each. Several choices of one prompt start from clones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// (id, times in the output), ids ascending; 0 for those of the prompt alone.
    counts: Vec<(u32, u32)>,
}

impl History {
    /// That of `prompt`, before the first token.
    #[must_use]
    pub fn new(prompt: &[u32]) -> Self {
        let mut ids = prompt.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Self {
            counts: ids.into_iter().map(|id| (id, 0)).collect(),
        }
    }

    /// That of a generation that is resumed: `output` came after `prompt`.
    #[must_use]
    pub fn rebuilt(prompt: &[u32], output: &[u32]) -> Self {
        let mut history = Self::new(prompt);
        for id in output {
            history.push(*id);
        }
        history
    }

    /// `id` was drawn.
    pub fn push(&mut self, id: u32) {
        match self.counts.binary_search_by_key(&id, |entry| entry.0) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(1),
            Err(at) => self.counts.insert(at, (id, 1)),
        }
    }

    /// Times `id` is in the output.
    #[must_use]
    pub fn output_count(&self, id: u32) -> u32 {
        let found = self.counts.binary_search_by_key(&id, |entry| entry.0);
        found.map_or(0, |at| self.counts[at].1)
    }

    /// (id, times in the output) of all ids in prompt or output, ids ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counts.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_the_output_alone() {
        let mut history = History::new(&[7, 3, 7]);
        assert_eq!(history.iter().collect::<Vec<_>>(), [(3, 0), (7, 0)]);
        for id in [5, 7, 5] {
            history.push(id);
        }
        let all: Vec<_> = history.iter().collect();
        assert_eq!(all, [(3, 0), (5, 2), (7, 1)]);
        assert_eq!((history.output_count(5), history.output_count(4)), (2, 0));
        assert_eq!(history, History::rebuilt(&[3, 7], &[5, 5, 7]));
    }

    #[test]
    fn memory_follows_the_distinct_ids_not_the_length() {
        let mut history = History::default();
        for step in 0..100_000 {
            history.push(step % 17);
        }
        assert_eq!(history.iter().count(), 17);
        assert!(history.counts.capacity() <= 64);
    }

    #[test]
    fn choices_of_one_prompt_part_ways() {
        let prompt = History::new(&[1, 2]);
        let (mut first, mut second) = (prompt.clone(), prompt);
        first.push(9);
        second.push(2);
        assert_eq!((first.output_count(9), first.output_count(2)), (1, 0));
        assert_eq!((second.output_count(9), second.output_count(2)), (0, 1));
    }
}
