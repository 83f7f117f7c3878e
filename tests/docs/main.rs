//! What the documents say is true: every command is run, and what is shown is compared
//! with what is printed.
//!
//! | module | compares |
//! |---|---|
//! | `compare` | output below a command: all of it but for a list of what is wild |
//! | `tables` | figures in tables with the plan that they are from, every cell |
//! | `contexts` | the same for tables by context |
//! | `inline` | commands, tests and paths in the text with those that there are |
//! | `pictures` | pictures with what is drawn from the program's figures now |
//! | `quotes` | links, quoted errors, examples |
//!
//! Each document has a directory of its own, in which `Kimi-K3` is a small
//! checkpoint of the same layout; `cargo build` and `cargo test` do nothing there,
//! for both have happened. What cannot be run so says `not-run: REASON` after the
//! block's language, and stands in [`NOT_RUN`].

mod blocks;
mod chart;
mod compare;
mod contexts;
mod inline;
mod pictures;
mod place;
mod quotes;
mod released;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blocks::{Block, Step, blocks};
use libtest_mimic::{Arguments, Failed, Trial};
use place::Place;

/// Blocks that are not run: the document, and how many.
const NOT_RUN: &[(&str, usize)] = &[("README.md", 1), ("docs/checkpoint.md", 1)];

fn main() -> ExitCode {
    let own = std::env::args_os().next().unwrap_or_default();
    if Path::new(&own).ends_with("k3-pack") {
        return k3_pack::cli::main();
    }
    let arguments = Arguments::from_args();
    let _released = released::place();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut trials = beside_commands(documents(root));
    let mut all: Vec<(String, usize)> = Vec::new();
    for path in documents(root) {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = blocks(&path, &text);
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let left = found.iter().filter(|block| block.not_run.is_some()).count();
        if left > 0 {
            all.push((name.clone(), left));
        }
        if left < found.len() {
            trials.push(Trial::test(name.clone(), move || document(&name, &found)));
        }
    }
    trials.push(Trial::test("what_is_not_run_is_known", move || {
        let all: Vec<_> = all.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        if all == NOT_RUN {
            Ok(())
        } else {
            Err(format!("not run: {all:?}, known: {NOT_RUN:?}").into())
        }
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What documents say beside commands.
fn beside_commands(documents: Vec<PathBuf>) -> Vec<Trial> {
    fn trial(name: &str, check: impl FnOnce() + Send + 'static) -> Trial {
        Trial::test(name, || {
            check();
            Ok(())
        })
    }
    let also = documents.clone();
    vec![
        trial("blocks", blocks::check),
        trial("compare", compare::check),
        trial("links", move || quotes::links_lead_somewhere(&documents)),
        trial("inline", move || inline::what_is_named_exists(&also)),
        trial("quoted_errors", quotes::quoted_errors_exist),
        trial("demo_size", quotes::the_demo_model_is_as_large_as_said),
        trial("examples", quotes::examples_run),
        trial("tables", tables::agree_with_the_plan),
        trial("contexts", contexts::agree_with_the_plan),
        trial("pictures", pictures::are_what_is_drawn_now),
    ]
}

/// The documents for users, in order.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.join("README.md")];
    found.extend(quotes::below(&root.join("docs"), "md"));
    found
}

fn document(name: &str, blocks: &[Block]) -> Result<(), Failed> {
    let place = Place::new();
    for block in blocks.iter().filter(|block| block.not_run.is_none()) {
        for step in &block.steps {
            run(&place, step)
                .map_err(|reason| format!("{name}:{}\n{}\n{reason}", block.line, step.script))?;
        }
    }
    Ok(())
}

fn run(place: &Place, step: &Step) -> Result<(), String> {
    let output = place.run(&step.script);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if !output.status.success() {
        return Err(format!("{}\n{stdout}{stderr}", output.status));
    }
    // On a terminal the one comes after the other.
    match &step.output {
        Some(expected) => compare::same(expected, &(stdout + &stderr)),
        None => Ok(()),
    }
}
