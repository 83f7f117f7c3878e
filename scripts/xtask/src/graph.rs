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
        name: "k3-demo",
        directory: "demo",
        allowed: &[],
    },
    Rule {
        name: "k3-integrity",
        directory: "integrity",
        allowed: &["k3-config", "k3-formats", "k3-io"],
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
        name: "k3-threads",
        directory: "runtime/threads",
        allowed: &[],
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
            "k3-threads",
        ],
    },
    Rule {
        name: "k3",
        directory: "",
        allowed: &[
            "k3-actors",
            "k3-benchmarks",
            "k3-config",
            "k3-demo",
            "k3-formats",
            "k3-integrity",
            "k3-io",
            "k3-kernels",
            "k3-models",
            "k3-pack",
            "k3-runtime",
            "k3-terminal",
            "k3-tokenizer",
        ],
    },
    Rule {
        name: "k3-benchmarks",
        directory: "benchmarks",
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
        name: "k3-instructions",
        directory: "benchmarks/instructions",
        allowed: &["k3-formats", "k3-kernels"],
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
            "k3-terminal",
        ],
    },
    Rule {
        name: "k3-terminal",
        directory: "terminal",
        allowed: &["k3-config"],
    },
    Rule {
        name: "xtask",
        directory: "scripts/xtask",
        allowed: &[],
    },
];

/// Crates that may contain unsafe code.
const UNSAFE_ALLOWED: &[&str] = &["k3-io", "k3-kernels", "k3-threads"];

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
    check_dependencies(&manifest, name, rule.allowed, faults);
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

fn check_dependencies(
    manifest: &toml::Table,
    name: &str,
    allowed: &[&str],
    faults: &mut Vec<String>,
) {
    for dependency in dependencies(manifest) {
        let is_foreign = dependency.starts_with("k3-") && !allowed.contains(&dependency);
        let is_async = dependency.starts_with("tokio") && !ASYNC_ALLOWED.contains(&name);
        if is_foreign || is_async {
            faults.push(format!("{name}: may not depend on {dependency}"));
        }
    }
}

/// The packages a crate is built with, on any target.
fn dependencies(manifest: &toml::Table) -> impl Iterator<Item = &str> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets
        .into_iter()
        .flatten()
        .filter_map(|(_, target)| target.as_table());
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|scope| ["dependencies", "build-dependencies"].map(|table| scope.get(table)))
        .filter_map(|table| table?.as_table())
        .flatten()
        .map(|(name, value)| {
            // Under another name it is still that package.
            let package = value.get("package").and_then(toml::Value::as_str);
            package.unwrap_or(name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_in_every_table() {
        for text in [
            "[dependencies]\nk3-io.workspace = true",
            "[build-dependencies]\nk3-io = { path = \"x\" }",
            "[dependencies]\nx = { package = \"k3-io\", path = \"x\" }",
            "[target.'cfg(unix)'.dependencies]\nk3-io.workspace = true",
            "[target.x86_64-unknown-linux-gnu.build-dependencies]\ntokio = \"1\"",
        ] {
            let manifest = text.parse().unwrap();
            let mut faults = Vec::new();
            check_dependencies(&manifest, "k3-models", &["k3-config"], &mut faults);
            assert_eq!(faults.len(), 1, "{text}");
        }
        let fine = "[dependencies]\nk3-config.workspace = true\n[dev-dependencies]\ntokio = \"1\"";
        let mut faults = Vec::new();
        check_dependencies(
            &fine.parse().unwrap(),
            "k3-models",
            &["k3-config"],
            &mut faults,
        );
        assert!(faults.is_empty(), "{faults:?}");
    }
}
