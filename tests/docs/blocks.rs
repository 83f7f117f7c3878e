//! The fenced blocks of a document.

use std::path::Path;

/// A block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of its first command.
    pub line: usize,
    /// Why it is not run; `None` for one that is.
    pub not_run: Option<String>,
    /// What is run, in order.
    pub steps: Vec<Step>,
}

/// Commands, and what they print.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// As a shell reads them.
    pub script: String,
    /// What is to come out, where the document says so.
    pub output: Option<String>,
}

/// The blocks of `text` that are commands: `sh`, which say nothing of what comes
/// out, and `console`, where a line with `$ ` is a command and those after it
/// are its output. After the language may stand `not-run: REASON`.
///
/// # Panics
///
/// When a block has no end, or gives no reason for not being run.
pub(crate) fn blocks(path: &Path, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let mut body = Vec::new();
        loop {
            let (_, line) = lines
                .next()
                .unwrap_or_else(|| panic!("{}:{}: a block without an end", path.display(), at + 1));
            if line.trim_start().starts_with("```") {
                break;
            }
            body.push(line);
        }
        let (language, more) = info.split_once(' ').unwrap_or((info, ""));
        let steps = match language {
            "sh" => vec![Step {
                script: body.join("\n"),
                output: None,
            }],
            "console" => console(&body),
            _ => continue,
        };
        let not_run = more.trim().strip_prefix("not-run:").map(str::trim);
        assert!(
            not_run != Some("") && (not_run.is_some() || more.trim().is_empty()),
            "{}:{}: after the language stands `not-run: REASON` or nothing",
            path.display(),
            at + 1
        );
        blocks.push(Block {
            line: at + 2,
            not_run: not_run.map(ToOwned::to_owned),
            steps,
        });
    }
    blocks
}

fn console(body: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in body {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                script: command.to_owned(),
                output: Some(String::new()),
            });
        } else if let Some(step) = steps.last_mut() {
            if goes_on {
                step.script.push('\n');
                step.script.push_str(line);
            } else if let Some(output) = &mut step.output {
                output.push_str(line);
                output.push('\n');
            }
        }
        let is_command = line.starts_with("$ ") || goes_on;
        goes_on = is_command && line.ends_with('\\');
    }
    steps
}

/// Checks of the above; there is no harness that would collect them.
pub(crate) fn check() {
    let text = "```sh\na b\nc\n```\n\n```text\nx\n```\n```console\n$ one \\\n  two\nout 1\n$ three\n```\n\
                ```sh not-run: hours\nd\n```\n";
    let found = blocks(Path::new("t.md"), text);
    assert_eq!(found.len(), 3);
    assert_eq!((found[0].line, &*found[0].steps[0].script), (2, "a b\nc"));
    assert_eq!(found[1].steps[0].script, "one \\\n  two");
    assert_eq!(found[1].steps[0].output.as_deref(), Some("out 1\n"));
    assert_eq!(found[1].steps[1].output.as_deref(), Some(""));
    assert_eq!(found[2].not_run.as_deref(), Some("hours"));
}
