//! Guessing from the text itself: what followed the same words before.

use super::Draft;

/// What a [`PromptLookup`] compares and remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupSettings {
    /// Tokens a match has at least, 1 or more.
    pub match_min: usize,
    /// Tokens a match is told apart up to, `match_min` or more.
    pub match_max: usize,
    /// Latest tokens that are searched, at least 2 * `match_max`: never more than
    /// these, and never fewer than half of them.
    pub window_tokens: usize,
}

/// Matches of 2 to 8 tokens in the latest 65,536.
impl Default for LookupSettings {
    fn default() -> Self {
        Self {
            match_min: 2,
            match_max: 8,
            window_tokens: 1 << 16,
        }
    }
}

impl LookupSettings {
    /// What [`PromptLookup::new`] reserves: 8 bytes per token of the window and
    /// length of match, 56 bytes per token as a default.
    #[must_use]
    pub fn planned_bytes(&self) -> u64 {
        let slots = self.lengths() * SLOTS_PER_TOKEN * self.window_tokens;
        (slots * size_of::<u32>()) as u64
    }

    fn lengths(&self) -> usize {
        self.match_max + 1 - self.match_min
    }

    /// The first token that is searched in a text of `count`. It follows from the
    /// count alone, and moves by half a window at a time, so that filing the
    /// window anew costs a constant per token.
    fn window_start(&self, count: usize) -> usize {
        let step = self.window_tokens / 2;
        count.saturating_sub(self.window_tokens).div_ceil(step) * step
    }
}

/// Half of each table stays free: probes are short.
const SLOTS_PER_TOKEN: usize = 2;

/// Guesses that the text goes on as it did after the latest earlier place that
/// ends in the same tokens, the longest match first.
///
/// Where that place is so near that what followed it runs out, the guesses go on
/// with themselves: a text that repeats with a short period is guessed to repeat.
///
/// The matches of each length are filed in a table of their own, once per token
/// and length. All memory is reserved at the start
/// ([`LookupSettings::planned_bytes`]).
#[derive(Debug)]
pub struct PromptLookup {
    settings: LookupSettings,
    /// One per length, `match_min` first.
    tables: Vec<GramTable>,
    /// The first token of the window that is filed.
    start: usize,
    /// Grams that end here or before are filed.
    filed: usize,
    evidence: u32,
}

impl Default for PromptLookup {
    fn default() -> Self {
        Self::new(LookupSettings::default())
    }
}

impl PromptLookup {
    /// A lookup in no text yet.
    ///
    /// # Panics
    ///
    /// If `settings` are outside their ranges.
    #[must_use]
    pub fn new(settings: LookupSettings) -> Self {
        assert!(settings.match_min >= 1 && settings.match_max >= settings.match_min);
        assert!(settings.window_tokens >= 2 * settings.match_max);
        let slots = SLOTS_PER_TOKEN * settings.window_tokens;
        let tables = (0..settings.lengths()).map(|_| GramTable::new(slots));
        Self {
            settings,
            tables: tables.collect(),
            start: 0,
            filed: 0,
            evidence: 0,
        }
    }

    /// Files every gram that ends before the end of `tokens`. The one that ends
    /// there is what will be looked for: nothing has followed it yet.
    fn catch_up(&mut self, tokens: &[u32]) {
        assert!(
            self.filed <= tokens.len(),
            "a text only grows until a reset"
        );
        let start = self.settings.window_start(tokens.len());
        if start != self.start {
            self.clear(start);
        }
        for end in self.filed + 1..tokens.len() {
            let mut grams = Grams::new(&tokens[start..end]);
            let filed_end = u32::try_from(end).expect("a text has fewer than 2^32 tokens");
            while let Some((gram, hash)) = grams.next_up_to(self.settings.match_max) {
                if gram.len() >= self.settings.match_min {
                    let table = &mut self.tables[gram.len() - self.settings.match_min];
                    let slot = table.probe(tokens, gram, hash);
                    table.ends[slot] = filed_end;
                }
            }
            self.filed = end;
        }
    }

    /// The longest match of the end of `tokens`: where its latest earlier place
    /// ends, and its length.
    fn longest_match(&self, tokens: &[u32]) -> Option<(usize, usize)> {
        let mut found = None;
        let mut grams = Grams::new(&tokens[self.start..]);
        while let Some((gram, hash)) = grams.next_up_to(self.settings.match_max) {
            if gram.len() < self.settings.match_min {
                continue;
            }
            let table = &self.tables[gram.len() - self.settings.match_min];
            let end = table.ends[table.probe(tokens, gram, hash)];
            if end == 0 {
                // A longer gram that occurred would hold this one.
                break;
            }
            found = Some((end as usize, gram.len()));
        }
        found
    }

    fn clear(&mut self, start: usize) {
        for table in &mut self.tables {
            table.ends.fill(0);
        }
        self.start = start;
        self.filed = start;
    }
}

impl Draft for PromptLookup {
    fn name(&self) -> &'static str {
        "prompt lookup"
    }

    fn propose(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) {
        self.catch_up(tokens);
        let Some((end, length)) = self.longest_match(tokens) else {
            self.evidence = 0;
            return;
        };
        self.evidence = u32::try_from(length).expect("a match is short");
        let first = out.len();
        for at in end..end + count {
            let guess = match at.checked_sub(tokens.len()) {
                None => tokens[at],
                Some(past) => out[first + past],
            };
            out.push(guess);
        }
    }

    /// The tokens of the match, `match_max` at most.
    fn evidence(&self) -> u32 {
        self.evidence
    }

    fn reset(&mut self) {
        self.clear(0);
        self.evidence = 0;
    }
}

/// The latest end of each gram of one length. A slot holds the end alone, 0 if it
/// is free: the gram itself is read from the text, so no hash is ever trusted.
#[derive(Debug)]
struct GramTable {
    ends: Vec<u32>,
}

impl GramTable {
    fn new(slots: usize) -> Self {
        Self {
            ends: vec![0; slots],
        }
    }

    /// The slot that holds `gram`, or the free one that will.
    fn probe(&self, tokens: &[u32], gram: &[u32], hash: u64) -> usize {
        let scaled = u128::from(hash) * self.ends.len() as u128;
        let mut slot = usize::try_from(scaled >> 64).expect("below the number of slots");
        loop {
            let end = self.ends[slot] as usize;
            if end == 0 || tokens[end - gram.len()..end] == *gram {
                return slot;
            }
            slot = (slot + 1) % self.ends.len();
        }
    }
}

/// The grams at the end of a text, from one token upwards, with their hashes: each
/// takes one step from the one before.
struct Grams<'t> {
    text: &'t [u32],
    length: usize,
    hash: u64,
}

impl<'t> Grams<'t> {
    fn new(text: &'t [u32]) -> Self {
        Self {
            text,
            length: 0,
            hash: 0,
        }
    }

    fn next_up_to(&mut self, length_max: usize) -> Option<(&'t [u32], u64)> {
        if self.length == length_max.min(self.text.len()) {
            return None;
        }
        self.length += 1;
        let gram = &self.text[self.text.len() - self.length..];
        // The finaliser of splitmix64: tokens are small numbers, slots are chosen
        // by the high bits.
        let mut mixed = (self.hash ^ u64::from(gram[0])).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.hash = mixed ^ (mixed >> 31);
        Some((gram, self.hash))
    }
}
