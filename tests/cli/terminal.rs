//! What a person sees on a terminal: lines that end between words.

use k3_testkit::terminal::{on_terminal, width};

use crate::common::{program, stdout_of};

const RUN: [&str; 5] = ["--prompt", "It was", "--gen", "60", "--no-disk-probe"];

fn words(lines: &[String]) -> Vec<String> {
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    words.map(ToOwned::to_owned).collect()
}

#[test]
fn generated_text_breaks_between_words_at_every_width() {
    let piped = String::from_utf8(stdout_of(&RUN)).unwrap();
    let expected = words(std::slice::from_ref(&piped));
    assert!(expected.len() > 20, "{piped}");
    for columns in [24, 40, 80, 200] {
        let mut k3 = program();
        k3.args(RUN);
        let (status, lines) = on_terminal(k3, columns).unwrap();
        assert!(status.success(), "{lines:?}");
        let end = lines.iter().position(|line| line.starts_with("model "));
        let text = &lines[..end.expect("a report")];
        assert_eq!(words(text), expected, "{columns}: {text:?}");
        let longest = text.iter().map(|line| width(line)).max();
        assert!(longest < Some(columns.into()), "{columns}: {text:?}");
    }
}

/// The text goes on behind the prompt, which is written by another hand.
#[test]
fn the_first_run_counts_the_prompt_that_stands_before_its_text() {
    let (_, lines) = on_terminal(program(), 40).unwrap();
    assert!(
        lines[0].starts_with("Fellow citizens of the Senate"),
        "{lines:?}"
    );
    let end = lines.iter().position(|line| line.starts_with("model "));
    for line in &lines[..end.unwrap()] {
        assert!(width(line) < 40, "{line}");
    }
    let piped = String::from_utf8(stdout_of(&["--quiet"])).unwrap();
    let text = words(&[format!("Fellow citizens of the Senate{piped}")]);
    assert_eq!(words(&lines[..end.unwrap()]), text);
}

/// Each answer lies on the screen as the only one would, behind what it continues.
#[test]
fn several_answers_are_laid_out_as_one_is() {
    for (args, begins) in [
        (&["--choices", "3"][..], "Fellow citizens of the Senate"),
        (&["--choices", "3", "--prompt", "It was", "--gen", "60"], ""),
    ] {
        let mut k3 = program();
        let (status, lines) = on_terminal(
            {
                k3.args(args);
                k3
            },
            40,
        )
        .unwrap();
        assert!(status.success(), "{lines:?}");
        let end = lines.iter().position(|line| line.starts_with("model "));
        let text = &lines[..end.expect("a report")];
        for line in text {
            assert!(width(line) < 40, "{line} in {text:?}");
        }
        let headings = text.iter().enumerate();
        let headings = headings.filter(|(_, line)| line.starts_with("--- "));
        let below: Vec<_> = headings.map(|(at, _)| &text[at + 1]).collect();
        assert_eq!(below.len(), 3, "{text:?}");
        assert!(
            below.iter().all(|line| line.starts_with(begins)),
            "{text:?}"
        );
    }
}

#[test]
fn errors_break_between_words_at_every_width() {
    for columns in [40, 80] {
        let mut k3 = program();
        k3.args(["--prompt", "It was", "--gen", "500000"]);
        let (status, lines) = on_terminal(k3, columns).unwrap();
        assert_eq!(status.code(), Some(2));
        assert!(lines.len() > 2, "{lines:?}");
        let longest = lines.iter().map(|line| width(line)).max();
        assert!(longest <= Some(columns.into()), "{lines:?}");
        let all = words(&lines).join(" ");
        assert!(
            all.contains("but the limit is 4096 (--context) way out:"),
            "{all}"
        );
    }
}
