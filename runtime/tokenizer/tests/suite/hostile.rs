//! Inputs that make splitters and mergers quadratic. Times are asserted in release; in
//! other profiles the inputs are a tenth and only the result is checked.

use crate::released::{RANK_COUNT, TOKENIZER, TOKENS, VOCAB_SIZE};
use k3_formats::RankFile;
use k3_tokenizer::{Mode, Render, Specials, StreamDecoder, Tokenizer, pre_split};
use std::path::Path;
use std::time::{Duration, Instant};

const CHARS: usize = if cfg!(debug_assertions) {
    100_000
} else {
    1_000_000
};

const LIMIT: Duration = Duration::from_secs(2);

#[track_caller]
fn within<T>(limit: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    println!("{what}: {elapsed:?}");
    if !cfg!(debug_assertions) {
        assert!(elapsed < limit, "{what} took {elapsed:?}");
    }
    result
}

#[track_caller]
fn check(name: &str, text: &str) {
    for mode in [Mode::Content, Mode::Structure] {
        let what = format!("{name}, {mode:?}");
        let ids = within(LIMIT, &what, || TOKENIZER.encode(text, mode));
        assert_eq!(
            TOKENIZER.decode(&ids, Render::Markup).unwrap(),
            text.as_bytes(),
            "{what}"
        );
        if mode == Mode::Content {
            assert!(ids.iter().all(|&id| id < RANK_COUNT), "{what}");
        }
    }
}

#[test]
fn long_runs_of_one_unit() {
    build_tokenizer();
    for unit in [
        "a",
        "A",
        "^",
        " ",
        "\n",
        "\r\n",
        "\t",
        "0",
        "漢",
        "あ",
        "😀",
        "\u{301}",
        "'",
        "\0",
        "ありがと",
        "aA",
        "Aあ",
        "あA",
        " \n",
        "\u{a0} ",
        "'s",
        "a'",
        "=-",
        "<",
        "<|",
        "<|reserved_token_",
        "[E",
        "%20",
    ] {
        check(
            &format!("{unit:?} repeated"),
            &unit.repeat(CHARS / unit.chars().count()),
        );
    }
}

#[test]
fn runs_that_end_differently_than_they_began() {
    build_tokenizer();
    for (run, end) in [
        (" ", "x"),
        ("\n", " x"),
        ("A", "1"),
        ("あ", "A"),
        ("\u{301}", "A"),
        ("!", " "),
    ] {
        check(
            &format!("{run:?} repeated, then {end:?}"),
            &(run.repeat(CHARS) + end),
        );
        // Many runs just below the length where they are cut.
        let many = (run.repeat(24_999) + end).repeat(CHARS / 25_000);
        check(&format!("runs of {run:?}"), &many);
    }
}

#[test]
fn tokens_of_the_greatest_length_back_to_back() {
    build_tokenizer();
    let mut longest: Vec<&str> = TOKENS
        .iter()
        .filter_map(|token| std::str::from_utf8(token).ok())
        .collect();
    longest.sort_by_key(|token| std::cmp::Reverse(token.len()));
    let text = longest[..200].concat();
    check("long tokens", &text.repeat(CHARS.div_ceil(text.len())));
}

#[test]
fn splitting_alone_is_linear_even_uncut() {
    // The long-input rule is not applied here: this is what the splitter itself does.
    for unit in [
        "a", "A", " ", "\n", "\t ", "あ", "あA", "A\u{301}", "!", "漢", "1", "'s", " \n\t",
    ] {
        let text = unit.repeat(4 * CHARS / unit.chars().count());
        for text in [text.clone(), text + "x"] {
            let what = format!("splitting {unit:?}");
            let bytes = within(LIMIT, &what, || {
                pre_split(&text).map(str::len).sum::<usize>()
            });
            assert_eq!(bytes, text.len());
        }
    }
}

#[test]
fn streaming_a_long_broken_text_is_linear() {
    // 0xf0 0x9f begins a character that never ends.
    let broken: Vec<u32> = [0xf0, 0x9f]
        .iter()
        .map(|&byte| TOKENIZER.ranks().rank(&[byte]).unwrap())
        .collect();
    let text = within(LIMIT, "streaming", || {
        let mut decoder = StreamDecoder::new(&*TOKENIZER, Render::Plain);
        let mut text = String::new();
        for &id in broken.iter().cycle().take(CHARS) {
            text.push_str(decoder.push(id).unwrap());
        }
        text + decoder.finish()
    });
    assert_eq!(text, "\u{fffd}".repeat(CHARS / 2));
}

#[test]
fn start_up_from_a_rank_file_is_quick() {
    let mut file = Vec::new();
    k3_formats::write_ranks(&mut file, TOKENS.iter().copied()).unwrap();
    assert_eq!(file.len(), 2_795_286, "the size of the released file");
    let start_up = || {
        let start = Instant::now();
        let ranks = RankFile::parse(Path::new("tiktoken.model"), &file).unwrap();
        let specials = Specials::kimi_k3(RANK_COUNT);
        let tokenizer = Tokenizer::from_rank_file(&ranks, specials, VOCAB_SIZE).unwrap();
        (start.elapsed(), tokenizer)
    };
    // The quickest of five: other tests run beside this one.
    let runs = (0..5).map(|_| start_up());
    let (elapsed, tokenizer) = runs.min_by_key(|(elapsed, _)| *elapsed).unwrap();
    println!("start-up: {elapsed:?}");
    assert!(
        cfg!(debug_assertions) || elapsed < Duration::from_millis(150),
        "took {elapsed:?}"
    );
    for rank in 0..RANK_COUNT {
        assert_eq!(tokenizer.ranks().bytes(rank), TOKENIZER.ranks().bytes(rank));
    }
    assert_eq!(
        tokenizer.encode("The<|sep|>", Mode::Structure),
        [1008, 163_589]
    );
}

/// Builds what is built once, so that no measured section includes it.
fn build_tokenizer() {
    assert_eq!(TOKENIZER.encode("The", Mode::Content), [1008]);
}
