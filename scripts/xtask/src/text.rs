//! Checks on single files.

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// Longest function outside tests, in lines.
const FUNCTION_LINES_MAX: usize = 70;

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
    if !file.ends_with("/tests.rs") {
        for (line, name, count) in long_functions(content) {
            faults.push(format!(
                "{file}:{line}: fn {name} has {count} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
    }
    if content.contains(&["#[ign", "ore"].concat()) {
        faults.push(format!(
            "{file}: slow tests are gated by K3_SLOW, not ignored"
        ));
    }
}

/// Functions that are too long: line number, name and length. Relies on the formatter: a
/// function ends with the first brace alone that stands below its first line's beginning.
/// Test modules come last in a file and are not looked at.
fn long_functions(content: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = content.lines().collect();
    let code_end = lines
        .windows(2)
        .position(|pair| pair[0].starts_with("#[cfg(test)]") && pair[1].ends_with('{'))
        .unwrap_or(lines.len());
    let mut long = Vec::new();
    for (start, line) in lines[..code_end].iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some(name) = function_name(code) else {
            continue;
        };
        let end_brace = format!("{indent}}}");
        let end = lines[start..].iter().position(|line| {
            *line == end_brace
                // One line, or a declaration without a body.
                || line.starts_with(indent)
                    && !line[indent.len()..].starts_with(' ')
                    && line.ends_with(['}', ';'])
        });
        match end {
            Some(end) if end + 1 > FUNCTION_LINES_MAX => long.push((start + 1, name, end + 1)),
            _ => {}
        }
    }
    long
}

/// The name of the function that begins on this line.
fn function_name(code: &str) -> Option<&str> {
    let before = code.find("fn ")?;
    let is_start = code[..before].split_whitespace().all(|word| {
        matches!(
            word,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\""
        ) || word.starts_with("pub(")
    });
    let name = &code[before + 3..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_start && end > 0).then(|| &name[..end])
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
    fn functions_are_measured_to_their_brace() {
        let function = |lines: usize, indent: &str| {
            let body = format!("{indent}    if x {{\n{indent}    }}\n").repeat((lines - 2) / 2);
            format!("{indent}pub(crate) const fn f(\n{indent}) {{\n{body}{indent}}}\n")
        };
        for indent in ["", "    "] {
            assert_eq!(faults("a/src/x.rs", &function(70, indent)), 1);
            assert_eq!(faults("a/src/x.rs", &function(68, indent)), 0);
        }
        let declared = format!("    fn f(\n    );\n    fn g() {{}}\n{}", "\n".repeat(90));
        assert_eq!(faults("a/src/x.rs", &declared), 0);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(90, "    "));
        assert_eq!(faults("a/src/x.rs", &tests), 0);
        assert_eq!(faults("a/src/tests.rs", &function(90, "")), 0);
        assert_eq!(function_name("pub(in super) unsafe fn ab<T>("), None);
        assert_eq!(
            function_name("pub unsafe extern \"C\" fn ab<T>("),
            Some("ab")
        );
        assert_eq!(function_name("let f = fn (x)"), None);
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
