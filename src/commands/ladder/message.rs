//! Why a run did not finish, from what it left behind.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// Characters of a message that are kept.
const CHARS_MAX: usize = 400;
/// What k3 puts before an error.
const LABEL: &str = "error: ";

/// The first paragraph on standard error, else how the process ended.
pub(super) fn reason(stderr: &[u8], status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.trim_start().lines().map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let text = text.strip_prefix(LABEL).unwrap_or(&text);
    if !text.is_empty() {
        return text.chars().take(CHARS_MAX).collect();
    }
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code} and said nothing"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stderr: &str, status: i32, want: &str) {
        assert_eq!(
            reason(stderr.as_bytes(), ExitStatus::from_raw(status)),
            want
        );
    }

    #[test]
    fn the_first_paragraph_without_its_label() {
        let text = "error: the plan is\n  too large\n\n  way out: less\n";
        check(text, 2 << 8, "the plan is too large");
        check("", 3 << 8, "it ended with exit code 3 and said nothing");
        check("\n \n", 9, "it was ended by signal 9");
        let long = "x".repeat(1000);
        check(&long, 256, &"x".repeat(CHARS_MAX));
    }
}
