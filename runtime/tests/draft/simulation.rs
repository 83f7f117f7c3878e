//! Whole texts, guessed and swept: how many sweeps and bytes a token takes.
//!
//! `cargo test -p k3-runtime --test draft -- --nocapture table` prints them.

use std::collections::HashMap;
use std::fmt::Write as _;

use k3_runtime::draft::{Draft, DraftWidth, PromptLookup, SweepCost};
use k3_runtime::philox::philox4x32;

/// Bytes of the experts of one position.
const POSITION_BYTES: u64 = 1_000;

/// What each further position of a sweep adds.
const ADDED_BYTES: u64 = 600;

/// Guesses that a proposal holds at most.
const PROPOSAL: usize = 16;

/// A text whose first tokens are the prompt; the model says the rest.
struct Text {
    name: &'static str,
    tokens: Vec<u32>,
    prompt: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    tokens: u64,
    sweeps: u64,
    carried: u64,
    accepted: u64,
    read_bytes: u64,
    plain_bytes: u64,
}

impl Outcome {
    fn sweeps_per_token(&self) -> f64 {
        self.sweeps as f64 / self.tokens as f64
    }

    /// Bytes per token, as a share of those without guesses.
    fn bytes_share(&self) -> f64 {
        self.read_bytes as f64 / self.plain_bytes as f64
    }
}

/// Says `text`, with a trunk of `trunk_bytes` read by every sweep.
fn simulate(text: &Text, trunk_bytes: u64) -> Outcome {
    let mut draft = PromptLookup::default();
    let mut width = DraftWidth::new(POSITION_BYTES);
    let mut guesses = Vec::new();
    let mut outcome = Outcome::default();
    let mut known = text.prompt;
    while known < text.tokens.len() {
        let coming = &text.tokens[known..];
        guesses.clear();
        // The sweep says one token itself.
        draft.propose(
            &text.tokens[..known],
            PROPOSAL.min(coming.len() - 1),
            &mut guesses,
        );
        let carried = width.width(draft.evidence(), guesses.len());
        let right = guesses
            .iter()
            .zip(coming)
            .take_while(|(guess, said)| guess == said);
        let right = right.count();
        let accepted = right.min(carried);
        let expert_read_bytes = POSITION_BYTES + ADDED_BYTES * carried as u64;
        width.observe(&SweepCost {
            carried,
            accepted,
            evidence: draft.evidence(),
            beyond: (accepted == carried && carried < guesses.len()).then_some(right > carried),
            trunk_read_bytes: trunk_bytes,
            expert_read_bytes,
            rejected_read_bytes: Some(ADDED_BYTES * (carried - accepted) as u64),
        });
        let said = accepted + 1;
        known += said;
        outcome.tokens += said as u64;
        outcome.sweeps += 1;
        outcome.carried += carried as u64;
        outcome.accepted += accepted as u64;
        outcome.read_bytes += trunk_bytes + expert_read_bytes;
        outcome.plain_bytes += (trunk_bytes + POSITION_BYTES) * said as u64;
    }
    outcome
}

/// `count` tokens below `below`, the same ones for a `stream`.
fn random(stream: u32, count: usize, below: u32) -> Vec<u32> {
    let draw = |at| {
        let at = u32::try_from(at).unwrap();
        let [word, ..] = philox4x32([at, 0, 0, 0], [stream, 1]);
        word % below
    };
    (0..count).map(draw).collect()
}

/// A phrase of 24 tokens, over and over; the prompt holds it twice.
fn repeating(generated: usize) -> Text {
    let phrase = random(1, 24, 50_000);
    Text {
        name: "repeats",
        tokens: phrase.into_iter().cycle().take(48 + generated).collect(),
        prompt: 48,
    }
}

/// A phrase of 16 tokens and 16 tokens never seen, in turn.
fn half_repeating() -> Text {
    let (phrase, fresh) = (random(2, 16, 50_000), random(3, 1_000, 50_000));
    let turns = fresh.chunks(16);
    Text {
        name: "half repeats",
        tokens: turns
            .flat_map(|new| [phrase.as_slice(), new].concat())
            .collect(),
        prompt: 96,
    }
}

/// Tokens without any order, of many kinds or of few: the few match all the time,
/// and what followed then means nothing.
fn without_order(name: &'static str, kinds: u32) -> Text {
    Text {
        name,
        tokens: random(4, 1_200, kinds),
        prompt: 200,
    }
}

/// A page of this repository, its words and signs as tokens; a quarter is prompt.
fn page() -> Text {
    let page = include_str!("../../../docs/numerics.md");
    let (mut ids, mut tokens) = (HashMap::new(), Vec::new());
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let mut rest = page;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|sign| !is_word(sign)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(word.max(first.len_utf8()));
        let fresh = u32::try_from(ids.len()).unwrap();
        tokens.push(*ids.entry(token).or_insert(fresh));
        rest = after;
    }
    Text {
        name: "a page of docs",
        prompt: tokens.len() / 4,
        tokens,
    }
}

fn texts() -> [Text; 6] {
    [
        repeating(64),
        repeating(512),
        half_repeating(),
        page(),
        without_order("no order, 4 kinds", 4),
        without_order("no order, 50,000 kinds", 50_000),
    ]
}

#[test]
#[allow(clippy::print_stdout, reason = "the table is for a reader")]
fn the_table_of_sweeps_and_bytes_per_token() {
    let mut table = String::from(
        "text                    trunk  tokens  sweeps/token  bytes/token  carried  accepted\n",
    );
    for text in texts() {
        for trunk in [0, 1, 2, 4, 8] {
            let outcome = simulate(&text, trunk * POSITION_BYTES);
            let Outcome {
                tokens,
                carried,
                accepted,
                ..
            } = outcome;
            let (sweeps, bytes) = (outcome.sweeps_per_token(), outcome.bytes_share());
            writeln!(
                table,
                "{:22}  {trunk:5}  {tokens:6}  {sweeps:12.3}  {bytes:11.3}  {carried:7}  {accepted:8}",
                text.name
            )
            .unwrap();
            assert!(
                bytes <= 1.0 / 0.98,
                "{}, trunk {trunk}: {outcome:?}",
                text.name
            );
        }
    }
    println!("{table}trunk: in experts of one position; bytes/token: of those without guesses");
}

#[test]
fn a_text_that_repeats_itself_soon_takes_few_sweeps() {
    let text = repeating(64);
    let outcome = simulate(&text, 4 * POSITION_BYTES);
    assert_eq!(outcome.tokens, 64);
    assert!(outcome.sweeps_per_token() <= 0.45, "{outcome:?}");
    let outcome = simulate(&text, 2 * POSITION_BYTES);
    assert!(outcome.sweeps_per_token() <= 0.55, "{outcome:?}");
}

#[test]
fn what_repeats_in_parts_pays_in_parts() {
    let outcome = simulate(&half_repeating(), 4 * POSITION_BYTES);
    assert!(outcome.bytes_share() < 0.8, "{outcome:?}");
}

#[test]
fn what_cannot_be_guessed_costs_next_to_nothing() {
    for kinds in [2, 4, 50, 50_000] {
        for trunk in [0, 1, 2, 4, 8] {
            let outcome = simulate(&without_order("", kinds), trunk * POSITION_BYTES);
            assert!(outcome.bytes_share() <= 1.03, "{kinds} kinds: {outcome:?}");
        }
    }
    let outcome = simulate(&without_order("", 50_000), 4 * POSITION_BYTES);
    assert_eq!(outcome.read_bytes, outcome.plain_bytes, "nothing matched");
}
