//! Checks on single files.

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// Longest line of code or prose, in characters; tables and addresses may
/// need it all.
const COLUMNS_MAX: usize = 200;

/// Files that a script generates: exempt from the size limit.
const GENERATED: &[&str] = &["runtime/kernels/src/math/tables.rs"];

/// Words that point outside the repository. Spelled in pieces, so that this
/// file passes its own check.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["/wo", "rk/"], "a path of one machine"),
    (&["/ho", "me/"], "a path of one machine"),
    (&["../sha", "red"], "a path outside the repository"),
    (&["crates", ".io"], "a package registry's host"),
    (&["pypi", ".org"], "a package registry's host"),
    (&["npmjs", ".com"], "a package registry's host"),
    (&["deb.deb", "ian.org"], "a package registry's host"),
    (&["TO", "DO"], "unfinished work"),
    (&["FIX", "ME"], "unfinished work"),
];

/// Adds the faults of `file` (relative to the root) to `faults`.
pub(crate) fn check(file: &str, content: &str, faults: &mut Vec<String>) {
    if file == "Cargo.lock" {
        return;
    }
    let is_data = ["json", "svg", "snap", "lock", "tsv", "model"]
        .iter()
        .any(|extension| file.ends_with(&format!(".{extension}")));
    for (pieces, what) in FOREIGN {
        let word = pieces.concat();
        if let Some(line) = content.lines().position(|line| line.contains(&word)) {
            faults.push(format!("{file}:{}: `{word}` is {what}", line + 1));
        }
    }
    if is_data || file == "LICENSE" {
        return;
    }
    let long = content
        .lines()
        .position(|line| line.chars().count() > COLUMNS_MAX);
    if let Some(line) = long {
        faults.push(format!(
            "{file}:{}: longer than {COLUMNS_MAX} characters",
            line + 1
        ));
    }
    if !file.ends_with(".rs") || GENERATED.contains(&file) {
        return;
    }
    let lines = content.lines().count();
    if lines > LINES_MAX {
        faults.push(format!("{file}: {lines} lines, at most {LINES_MAX}"));
    }
    if file.ends_with("/lib.rs") && has_code(content) {
        faults.push(format!(
            "{file}: lib.rs holds docs, `mod` lines and re-exports only"
        ));
    }
    if file.contains("/tests/") || file.contains("benchmarks/") {
        return;
    }
    if content.contains(&["#[ign", "ore"].concat()) {
        faults.push(format!(
            "{file}: slow tests are gated by K3_SLOW, not ignored"
        ));
    }
}

/// Whether a crate root defines anything itself.
fn has_code(content: &str) -> bool {
    content.lines().any(|line| {
        let line = line.trim_start();
        [
            "fn ",
            "pub fn ",
            "struct ",
            "pub struct ",
            "impl ",
            "enum ",
            "pub enum ",
        ]
        .iter()
        .any(|start| line.starts_with(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &str, content: &str) -> usize {
        let mut faults = Vec::new();
        check(file, content, &mut faults);
        faults.len()
    }

    #[test]
    fn each_fault_is_found() {
        assert_eq!(faults("a/src/x.rs", "fn main() {}\n"), 0);
        assert_eq!(faults("a/src/x.rs", &"\n".repeat(601)), 1);
        assert_eq!(faults("a/src/lib.rs", "pub fn f() {}\n"), 1);
        assert_eq!(
            faults(
                "docs/x.md",
                &format!("see {}main\n", ["/wo", "rk/"].concat())
            ),
            1
        );
        assert_eq!(faults("docs/x.md", &"x".repeat(201)), 1);
        assert_eq!(faults("a/src/x.rs", &["#[ign", "ore]\n"].concat()), 1);
        assert_eq!(faults("fixtures/x.json", &"1,".repeat(500)), 0);
    }
}
