//! How many instructions kernel bodies take, against committed budgets.
//!
//! Times of a shared machine tell nothing about a change of one per cent; counts
//! do. Valgrind counts them, and knows no AVX-512. Each body runs twice, with
//! other numbers of calls, and the difference is that of the calls alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tidy;

/// The committed budgets, relative to the root.
const BUDGETS: &str = "benchmarks/instructions/budgets.toml";
/// Sets that valgrind runs.
const ISAS: [&str; 2] = ["scalar", "avx2"];
/// Calls of the two runs.
const CALLS: [u64; 2] = [2, 12];
/// What `k3-instructions` ends with where a set is missing.
const NO_SUCH_SET: i32 = 3;

/// Instructions of one call, by body and set as in `bf16-1/avx2`.
type Counts = BTreeMap<String, u64>;

/// The committed file.
#[derive(Debug, PartialEq)]
struct Budgets {
    /// How far above its budget a count may be.
    tolerance_percent: f64,
    /// The compiler that the counts are from.
    rustc: String,
    counts: Counts,
}

/// What was found of one body.
#[derive(Debug, PartialEq)]
enum Verdict {
    Kept,
    /// So far below that the budget no longer guards it.
    Loose,
    Exceeded,
    /// No budget, or nothing counted.
    Missing,
}

/// Counts, and compares with the budgets or writes them. Returns the text to
/// show and whether all is well.
pub(crate) fn run(update: bool) -> Result<(String, bool)> {
    if !cfg!(target_arch = "x86_64") {
        return Ok((
            "instructions: not run: budgets are for x86-64\n".to_owned(),
            true,
        ));
    }
    let root = tidy::root();
    let (counts, absent) = count_all(&root)?;
    let path = root.join(BUDGETS);
    let rustc = rustc_version()?;
    if update {
        ensure!(
            absent.is_empty(),
            "{absent:?} are not here: all sets are budgeted together"
        );
        let tolerance_percent = match std::fs::read_to_string(&path) {
            Ok(text) => Budgets::parse(&text)?.tolerance_percent,
            Err(_) => 2.0,
        };
        let budgets = Budgets {
            tolerance_percent,
            rustc,
            counts,
        };
        std::fs::write(&path, budgets.to_text()).context(BUDGETS)?;
        return Ok((format!("instructions: wrote {BUDGETS}\n"), true));
    }
    let text = std::fs::read_to_string(&path).context(BUDGETS)?;
    let mut budgets = Budgets::parse(&text)?;
    let mut note = String::new();
    for isa in absent {
        budgets
            .counts
            .retain(|name, _| !name.ends_with(&format!("/{isa}")));
        writeln!(note, "not run: {isa}, which this processor lacks").expect("a string");
    }
    let (text, is_well) = compare(&budgets, &counts, &rustc);
    Ok((note + &text, is_well))
}

impl Budgets {
    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context(BUDGETS)?;
        let tolerance = table
            .get("tolerance_percent")
            .and_then(toml::Value::as_float);
        let rustc = table.get("rustc").and_then(toml::Value::as_str);
        let counts = table.get("instructions").and_then(toml::Value::as_table);
        let counts = counts.context("no table of instructions")?.iter();
        let counts = counts.map(|(name, count)| {
            let count = count
                .as_integer()
                .and_then(|count| u64::try_from(count).ok());
            Ok((
                name.clone(),
                count.with_context(|| format!("{name} is no count"))?,
            ))
        });
        Ok(Self {
            tolerance_percent: tolerance.context("no tolerance_percent")?,
            rustc: rustc.context("no rustc")?.to_owned(),
            counts: counts.collect::<Result<_>>()?,
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "# Instructions of one call of a kernel body. Written by\n\
             # `cargo xtask instructions --update`.\n\
             tolerance_percent = {:?}\nrustc = {:?}\n\n[instructions]\n",
            self.tolerance_percent, self.rustc
        );
        for (name, count) in &self.counts {
            writeln!(text, "{name:?} = {count}").expect("writing to a string cannot fail");
        }
        text
    }

    fn verdict(&self, name: &str, found: Option<u64>) -> Verdict {
        let (Some(&budget), Some(found)) = (self.counts.get(name), found) else {
            return Verdict::Missing;
        };
        let (budget, found) = (budget as f64, found as f64);
        let margin = budget * self.tolerance_percent / 100.0;
        if found > budget + margin {
            Verdict::Exceeded
        } else if found < budget - margin {
            Verdict::Loose
        } else {
            Verdict::Kept
        }
    }
}

/// One line a body, and what to do about those that are not as budgeted.
fn compare(budgets: &Budgets, counts: &Counts, rustc: &str) -> (String, bool) {
    let write = "writing to a string cannot fail";
    let mut text = String::new();
    let mut all_kept = true;
    let mut loose = 0;
    let names: std::collections::BTreeSet<&String> =
        budgets.counts.keys().chain(counts.keys()).collect();
    for name in names {
        let found = counts.get(name).copied();
        let shown = |count: Option<u64>| count.map_or_else(|| "none".to_owned(), |c| c.to_string());
        let verdict = budgets.verdict(name, found);
        let word = match verdict {
            Verdict::Kept => "kept",
            Verdict::Loose => "fewer",
            Verdict::Exceeded => "EXCEEDED",
            Verdict::Missing => "MISSING",
        };
        all_kept &= matches!(verdict, Verdict::Kept | Verdict::Loose);
        loose += usize::from(verdict == Verdict::Loose);
        let budget = shown(budgets.counts.get(name).copied());
        writeln!(
            text,
            "{name:18} budget {budget:>9}  found {:>9}  {word}",
            shown(found)
        )
        .expect(write);
    }
    if !all_kept || loose > 0 {
        writeln!(
            text,
            "counts may be {} % above their budgets; where the change is meant, \
             `cargo xtask instructions --update` writes new ones",
            budgets.tolerance_percent
        )
        .expect(write);
        if rustc != budgets.rustc {
            writeln!(
                text,
                "the budgets are of {}, this is {rustc}",
                budgets.rustc
            )
            .expect(write);
        }
    }
    (text, all_kept)
}

/// Counts of every body, and the sets that are not here.
fn count_all(root: &Path) -> Result<(Counts, Vec<&'static str>)> {
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--package",
            "k3-instructions",
        ])
        .current_dir(root)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "k3-instructions does not build");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let program = target.join("release/k3-instructions");
    let bodies = Command::new(&program)
        .output()
        .with_context(|| program.display().to_string())?;
    let bodies = String::from_utf8(bodies.stdout).context("names of bodies")?;
    let mut counts = Counts::new();
    let mut absent = Vec::new();
    for isa in ISAS {
        for body in bodies.lines() {
            let Some(few) = count(&program, body, isa, CALLS[0])? else {
                absent.push(isa);
                break;
            };
            let many = count(&program, body, isa, CALLS[1])?;
            let difference = many.and_then(|many| many.checked_sub(few));
            let calls = CALLS[1] - CALLS[0];
            let difference = difference.context("more calls took less")?;
            counts.insert(format!("{body}/{isa}"), difference / calls);
        }
    }
    Ok((counts, absent))
}

/// Instructions of a whole run; `None` where the set is missing.
fn count(program: &Path, body: &str, isa: &str, calls: u64) -> Result<Option<u64>> {
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(program)
        .args([body, isa, &calls.to_string()])
        .output()
        .context("valgrind cannot be started: install the package of that name")?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(Some(instructions(&said)?)),
        Some(NO_SUCH_SET) => Ok(None),
        _ => bail!("{body} {isa}: {}\n{said}", output.status),
    }
}

/// The count in what cachegrind says: `==1== I refs: 1,234`.
fn instructions(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|line| {
        let line = line.split_once("I ")?.1.trim_start();
        line.strip_prefix("refs:")
    });
    let digits = line
        .context("valgrind counted nothing")?
        .trim()
        .replace(',', "");
    digits
        .parse()
        .with_context(|| format!("{digits} is no count"))
}

fn rustc_version() -> Result<String> {
    let output = Command::new("rustc")
        .arg("--version")
        .output()
        .context("rustc")?;
    let said = String::from_utf8(output.stdout).context("rustc's version")?;
    let version = said.split_whitespace().nth(1).context("rustc's version")?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        let pairs = pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        pairs.collect()
    }

    fn budgets(pairs: &[(&str, u64)]) -> Budgets {
        Budgets {
            tolerance_percent: 2.0,
            rustc: "1.95.0".to_owned(),
            counts: counts(pairs),
        }
    }

    #[test]
    fn a_count_above_the_tolerance_fails_and_says_what_to_do() {
        let budgets = budgets(&[("a/avx2", 1000), ("b/avx2", 500)]);
        let (text, is_well) = compare(&budgets, &counts(&[("a/avx2", 1021), ("b/avx2", 500)]), "2");
        assert!(!is_well);
        for part in [
            "a/avx2", "1000", "1021", "EXCEEDED", "--update", "1.95.0", "kept",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let (text, is_well) = compare(&budgets, &counts(&[("a/avx2", 1020), ("b/avx2", 490)]), "2");
        assert!(is_well && !text.contains("--update"), "{text}");
    }

    #[test]
    fn fewer_are_fine_and_named() {
        let (text, is_well) = compare(&budgets(&[("a", 1000)]), &counts(&[("a", 979)]), "1.95.0");
        assert!(is_well);
        assert!(
            text.contains("fewer") && text.contains("--update"),
            "{text}"
        );
    }

    #[test]
    fn a_body_without_budget_or_count_fails() {
        let (text, is_well) = compare(&budgets(&[("a", 1)]), &counts(&[("b", 1)]), "1.95.0");
        assert!(!is_well);
        assert_eq!(text.matches("MISSING").count(), 2, "{text}");
    }

    #[test]
    fn files_round_trip_and_wrong_ones_are_refused() {
        let budgets = budgets(&[("a/avx2", 12_345), ("b/scalar", 1)]);
        assert_eq!(Budgets::parse(&budgets.to_text()).unwrap(), budgets);
        for wrong in ["", "tolerance_percent = 2.0\nrustc = \"1\"", "x"] {
            assert!(Budgets::parse(wrong).is_err(), "{wrong}");
        }
        let negative = budgets.to_text().replace("= 1\n", "= -1\n");
        let error = Budgets::parse(&negative).unwrap_err();
        assert!(error.to_string().contains("b/scalar"), "{error}");
    }

    #[test]
    fn counts_are_read_from_what_the_tool_says() {
        let said = "==7== Cachegrind\n==7== \n==7== I refs:        1,234,567\n";
        assert_eq!(instructions(said).unwrap(), 1_234_567);
        let said = "==7== I   refs:      42\n==7== I1  misses: 7\n";
        assert_eq!(instructions(said).unwrap(), 42);
        assert!(instructions("==7== nothing\n").is_err());
    }

    #[test]
    fn the_committed_file_has_every_body_of_every_set() {
        let text = std::fs::read_to_string(tidy::root().join(BUDGETS)).unwrap();
        let budgets = Budgets::parse(&text).unwrap();
        assert!(budgets.tolerance_percent <= 5.0);
        let of = |isa: &str| {
            let names = budgets.counts.keys();
            names
                .filter(|name| name.ends_with(&format!("/{isa}")))
                .count()
        };
        for isa in ISAS {
            assert!(of(isa) >= 6, "{isa}");
        }
    }
}
