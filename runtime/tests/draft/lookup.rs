//! The lookup against its definition, written as loops over all places.

use k3_runtime::draft::{Draft, LookupSettings, PromptLookup};
use proptest::prelude::*;

fn settings(match_min: usize, match_max: usize, window_tokens: usize) -> LookupSettings {
    LookupSettings {
        match_min,
        match_max,
        window_tokens,
    }
}

/// Guesses and evidence, from the definition.
fn by_definition(settings: LookupSettings, tokens: &[u32], count: usize) -> (Vec<u32>, u32) {
    let mut start = 0;
    while tokens.len() - start > settings.window_tokens {
        start += settings.window_tokens / 2;
    }
    let text = &tokens[start..];
    for length in (settings.match_min..=settings.match_max).rev() {
        for end in (length..text.len()).rev() {
            if text[end - length..end] != text[text.len() - length..] {
                continue;
            }
            let mut longer = text.to_vec();
            for at in end..end + count {
                longer.push(longer[at]);
            }
            let guesses = longer.split_off(text.len());
            return (guesses, u32::try_from(length).unwrap());
        }
    }
    (Vec::new(), 0)
}

fn ask(draft: &mut PromptLookup, tokens: &[u32], count: usize) -> (Vec<u32>, u32) {
    // What lies in `out` before stays, and is no part of the text.
    let mut out = vec![99];
    draft.propose(tokens, count, &mut out);
    assert_eq!(out.remove(0), 99);
    (out, draft.evidence())
}

fn guess(tokens: &[u32], count: usize) -> (Vec<u32>, u32) {
    ask(&mut PromptLookup::default(), tokens, count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever calls came before, and wherever the window begins.
    #[test]
    fn guesses_are_those_of_the_definition(
        match_min in 1..4_usize,
        more in 0..7_usize,
        window in 0..60_usize,
        (alphabet, tokens) in (1..5_u32).prop_flat_map(|alphabet| {
            (Just(alphabet), prop::collection::vec(0..alphabet, 0..160))
        }),
        steps in prop::collection::vec((0..9_usize, 0..7_usize), 1..60),
    ) {
        let match_max = match_min + more;
        let settings = settings(match_min, match_max, 2 * match_max + window);
        let mut draft = PromptLookup::new(settings);
        let mut length = 0;
        for (step, count) in steps {
            length = (length + step).min(tokens.len());
            let text = &tokens[..length];
            let want = by_definition(settings, text, count);
            prop_assert_eq!(ask(&mut draft, text, count), want, "alphabet {}", alphabet);
        }
        draft.reset();
        let want = by_definition(settings, &tokens, 5);
        prop_assert_eq!(ask(&mut draft, &tokens, 5), want, "after a reset");
    }
}

#[test]
fn texts_too_short_to_repeat_give_no_guess() {
    for tokens in [&[][..], &[7], &[7, 7], &[7, 8, 7], &[1, 2, 3, 4]] {
        assert_eq!(guess(tokens, 4), (vec![], 0), "{tokens:?}");
    }
}

#[test]
fn one_token_again_and_again_is_guessed_to_go_on() {
    assert_eq!(guess(&[7; 3], 5), (vec![7; 5], 2));
    assert_eq!(guess(&[7; 100], 5), (vec![7; 5], 8));
    assert_eq!(guess(&[7; 100], 0), (vec![], 8), "evidence without a guess");
}

#[test]
fn a_period_longer_than_the_longest_match_is_found_and_goes_round() {
    let period: Vec<u32> = (100..120).collect();
    let twice = [period.as_slice(), &period].concat();
    let (guesses, evidence) = guess(&twice, 45);
    assert_eq!(evidence, 8);
    let endless: Vec<u32> = period.iter().copied().cycle().take(45).collect();
    assert_eq!(guesses, endless);
}

#[test]
fn the_longest_match_wins_and_of_equals_the_latest() {
    // "1 2 3" once, "2 3" twice: the longer match is the older one.
    assert_eq!(guess(&[1, 2, 3, 50, 2, 3, 60, 1, 2, 3], 1), (vec![50], 3));
    assert_eq!(guess(&[2, 3, 50, 2, 3, 60, 9, 2, 3], 1), (vec![60], 2));
}

#[test]
fn a_text_longer_than_the_window_keeps_at_least_half_of_it() {
    let settings = settings(2, 4, 16);
    let mut draft = PromptLookup::new(settings);
    // 7 8 begins at 0; the text around it never repeats.
    let mut tokens: Vec<u32> = vec![7, 8, 9];
    tokens.extend(1000..1011);
    tokens.extend([7, 8]);
    assert_eq!(tokens.len(), 16);
    assert_eq!(ask(&mut draft, &tokens, 1), (vec![9], 2));
    let mut longer = tokens[..15].to_vec();
    longer.extend([5000, 7, 8]);
    // Now 8 tokens have left the window, the first 7 8 among them.
    draft.reset();
    assert_eq!(ask(&mut draft, &longer, 1), (vec![], 0));
}

#[test]
fn what_is_reserved_is_what_is_said() {
    assert_eq!(LookupSettings::default().planned_bytes(), 56 * 65_536);
    assert_eq!(settings(3, 3, 100).planned_bytes(), 800);
    assert_eq!(PromptLookup::default().name(), "prompt lookup");
}

#[test]
#[should_panic(expected = "only grows")]
fn a_text_that_shrinks_is_a_bug() {
    let mut draft = PromptLookup::default();
    draft.propose(&[1, 2, 3, 4], 1, &mut Vec::new());
    draft.propose(&[1, 2], 1, &mut Vec::new());
}

#[test]
#[should_panic(expected = "match_min")]
fn a_match_of_no_token_is_a_bug() {
    let _ = PromptLookup::new(settings(0, 4, 100));
}
