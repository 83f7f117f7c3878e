//! What a person sees on a terminal: lines that end between words.

use std::process::Command;

use k3_testkit::terminal::{on_terminal, width};

#[test]
fn messages_break_between_words() {
    let place = tempfile::tempdir().unwrap();
    for columns in [30, 60] {
        let mut pack = Command::new(assert_cmd::cargo::cargo_bin!("k3-pack"));
        pack.args(["synth", "."]).current_dir(place.path());
        let (status, lines) = on_terminal(pack, columns).unwrap();
        assert_eq!(status.code(), Some(2), "{lines:?}");
        let all = lines.join(" ");
        let words: Vec<&str> = all.split_whitespace().collect();
        let said = words.join(" ");
        assert!(
            said.ends_with("not a name for a new directory; name one inside an existing directory"),
            "{said}"
        );
        assert!(lines.len() > 2, "{lines:?}");
        let longest = lines.iter().map(|line| width(line)).max();
        assert!(longest <= Some(columns.into()), "{lines:?}");
    }
}
