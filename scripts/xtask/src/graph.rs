//! The crate graph: who may depend on whom, and what may live where.

use std::path::Path;

use anyhow::{Context, Result};

/// A crate, its directory, and the workspace crates it may depend on.
struct Rule {
    name: &'static str,
    directory: &'static str,
    allowed: &'static [&'static str],
}

/// The graph of `docs/architecture.md`: it only points down.
const RULES: &[Rule] = &[
    Rule {
        name: "k3-config",
        directory: "config",
        allowed: &[],
    },
    Rule {
        name: "k3-formats",
        directory: "io/formats",
        allowed: &[],
    },
    Rule {
        name: "k3-kernels",
        directory: "runtime/kernels",
        allowed: &[],
    },
    Rule {
        name: "k3-io",
        directory: "io",
        allowed: &["k3-config", "k3-formats"],
    },
    Rule {
        name: "k3-tokenizer",
        directory: "runtime/tokenizer",
        allowed: &["k3-formats"],
    },
    Rule {
        name: "k3-models",
        directory: "runtime/models",
        allowed: &["k3-config", "k3-formats", "k3-kernels"],
    },
    Rule {
        name: "k3-runtime",
        directory: "runtime",
        allowed: &[
            "k3-config",
            "k3-formats",
            "k3-io",
            "k3-kernels",
            "k3-models",
        ],
    },
    Rule {
        name: "k3",
        directory: "",
        allowed: &[
            "k3-actors",
            "k3-config",
            "k3-formats",
            "k3-io",
            "k3-kernels",
            "k3-models",
            "k3-runtime",
            "k3-actors",
            "k3-tokenizer",
        ],
    },
    Rule {
        name: "k3-testkit",
        directory: "benchmarks/testkit",
        allowed: &[
            "k3-config",
            "k3-formats",
            "k3-io",
            "k3-kernels",
            "k3-models",
        ],
    },
    Rule {
        name: "k3-actors",
        directory: "actors",
        allowed: &[
            "k3-config",
            "k3-formats",
            "k3-io",
            "k3-kernels",
            "k3-models",
            "k3-runtime",
        ],
    },
    Rule {
        name: "k3-pack",
        directory: "packer",
        allowed: &[
            "k3-config",
            "k3-formats",
            "k3-io",
            "k3-kernels",
            "k3-models",
        ],
    },
    Rule {
        name: "xtask",
        directory: "scripts/xtask",
        allowed: &[],
    },
];

/// Crates that may contain unsafe code.
const UNSAFE_ALLOWED: &[&str] = &["k3-io", "k3-kernels"];

/// Crates that may depend on tokio.
const ASYNC_ALLOWED: &[&str] = &["k3", "k3-actors"];

/// Faults of the crate graph.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let workspace = manifest(&root.join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"]
        .as_array()
        .context("the workspace lists its members")?;
    for member in members {
        let member = member.as_str().context("members are paths")?;
        let directory = if member == "." { "" } else { member };
        if !RULES.iter().any(|rule| rule.directory == directory) {
            faults.push(format!(
                "{member}: the crate graph in scripts/xtask has no rule for it"
            ));
        }
    }
    if members.len() != RULES.len() {
        let count = members.len();
        faults.push(format!(
            "Cargo.toml: {count} members, but {} rules",
            RULES.len()
        ));
    }
    for rule in RULES {
        check_crate(root, rule, &mut faults)?;
    }
    Ok(faults)
}

fn check_crate(root: &Path, rule: &Rule, faults: &mut Vec<String>) -> Result<()> {
    let directory = root.join(rule.directory);
    let manifest = manifest(&directory.join("Cargo.toml"))?;
    let name = manifest["package"]["name"].as_str().unwrap_or_default();
    if name != rule.name {
        faults.push(format!("{}: the package is called {name}", rule.name));
    }
    let inherits = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"));
    if inherits.and_then(toml::Value::as_bool) != Some(true) {
        faults.push(format!("{name}: does not inherit the workspace lints"));
    }
    for table in ["dependencies", "build-dependencies"] {
        for dependency in names(&manifest, table) {
            if dependency.starts_with("k3-") && !rule.allowed.contains(&dependency) {
                faults.push(format!("{name}: may not depend on {dependency}"));
            }
            if dependency.starts_with("tokio") && !ASYNC_ALLOWED.contains(&name) {
                faults.push(format!("{name}: may not depend on {dependency}"));
            }
        }
    }
    let crate_root = ["lib.rs", "main.rs"]
        .iter()
        .map(|file| directory.join("src").join(file))
        .find(|path| path.exists())
        .with_context(|| format!("{name} has a crate root"))?;
    let source = std::fs::read_to_string(&crate_root)?;
    if !UNSAFE_ALLOWED.contains(&name) && !source.contains("#![forbid(unsafe_code)]") {
        faults.push(format!("{name}: does not forbid unsafe code"));
    }
    Ok(())
}

fn manifest(path: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

fn names<'a>(manifest: &'a toml::Table, table: &str) -> impl Iterator<Item = &'a str> {
    let table = manifest.get(table).and_then(toml::Value::as_table);
    table.into_iter().flatten().map(|(name, _)| name.as_str())
}
