//! A census, to read. Everything fits 80 columns.

use std::fmt::Write as _;

use k3_config::Bytes;

use super::census::{Census, LayerRow};
use crate::render::wrap::wrap;
use crate::render::{escape, short_bytes, table};

/// Entries of a list that are shown.
const LISTED_MAX: usize = 10;

/// The census as text, line end included.
pub(super) fn census(census: &Census) -> String {
    let mut text = table::facts(&[
        ("checkpoint", census.path.clone()),
        ("identity", identity(census)),
        ("tensors", counted(census.tensor_count, census.tensor_bytes)),
        ("shards", shards(census)),
        ("layers", layers(census)),
        (
            "vocabulary",
            if census.has_vocabulary {
                "here"
            } else {
                "not here (tiktoken.model)"
            }
            .to_owned(),
        ),
    ]);
    let kinds: Vec<_> = census
        .kinds
        .iter()
        .map(|row| (row.kind.name(), counted(row.tensors, row.bytes)))
        .collect();
    text.push('\n');
    text.push_str(&table::facts(&kinds));
    if !census.layers.is_empty() {
        text.push('\n');
        text.push_str(&layer_table(&census.layers));
    }
    text.push('\n');
    if let Some(trunk) = &census.trunk {
        text.push_str(&trunk.text());
        text.push('\n');
    }
    for note in &census.notes {
        text.push_str(&wrap(&format!("note: {}", escape::line(note))));
    }
    push_missing(&mut text, census);
    text
}

fn identity(census: &Census) -> String {
    let unknown = "unknown: not all of it is here";
    let identity = census.identity.map(|identity| identity.to_string());
    identity.unwrap_or_else(|| unknown.to_owned())
}

fn counted(tensors: u64, bytes: u64) -> String {
    format!("{tensors:>7}  {}", Bytes(bytes))
}

fn shards(census: &Census) -> String {
    let bytes = census.shards.iter().map(|shard| shard.file_bytes).sum();
    let here = census.shards.len();
    let all = here + census.missing_shards.len();
    if here == all {
        format!("{here:>7}  {}", Bytes(bytes))
    } else {
        format!("{here:>7}  of {all}, {}", Bytes(bytes))
    }
}

fn layers(census: &Census) -> String {
    let here = census.layers.len();
    match census.layers_expected {
        Some(all) if all != here => format!("{here:>7}  of {all}"),
        _ => format!("{here:>7}"),
    }
}

/// One line for neighbours that differ in nothing but their number.
fn layer_table(layers: &[LayerRow]) -> String {
    let same = |a: &LayerRow, b: &LayerRow| {
        let renumbered = LayerRow {
            layer: b.layer,
            ..a.clone()
        };
        renumbered == *b && a.layer + 1 == b.layer
    };
    let rows = layers.chunk_by(same).map(|group| {
        let (first, last) = (&group[0], group[group.len() - 1].layer);
        let number = if first.layer == last {
            last.to_string()
        } else {
            format!("{}-{last}", first.layer)
        };
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        vec![
            number,
            or_dash(first.attention),
            or_dash(first.mlp),
            first.types.join(" "),
            short_bytes(first.trunk_bytes),
            short_bytes(first.vector_bytes),
            first.experts.to_string(),
            short_bytes(first.expert_bytes),
        ]
    });
    let header = [
        "layer", "attn", "MLP", "type", "trunk", "vectors", "experts", "bytes",
    ];
    table::numbers(&header, rows)
}

fn push_missing(text: &mut String, census: &Census) {
    let write = "writing to a string cannot fail";
    if census.complete {
        writeln!(text, "complete: nothing is missing").expect(write);
    }
    let mut missing = Vec::new();
    for shard in &census.missing_shards {
        let layers = match shard.layers {
            Some((first, last)) if first == last => format!(" of layer {first}"),
            Some((first, last)) => format!(" of layers {first} to {last}"),
            None => String::new(),
        };
        missing.push(format!("{}: {} tensors{layers}", shard.name, shard.tensors));
    }
    for layer in &census.missing_experts {
        let all = census.experts_expected.unwrap_or_default();
        missing.push(format!(
            "layer {}: {} of {all} experts",
            layer.layer, layer.count
        ));
    }
    push_list(text, "missing", &missing);
    push_list(text, "unexpected", &census.unexpected);
    push_list(text, "problem", &census.problems);
}

fn push_list(text: &mut String, label: &str, entries: &[String]) {
    let write = "writing to a string cannot fail";
    for entry in entries.iter().take(LISTED_MAX) {
        writeln!(text, "{label}: {}", escape::line(entry)).expect(write);
    }
    if let Some(more) = entries.len().checked_sub(LISTED_MAX + 1) {
        writeln!(text, "{label}: and {} more", more + 1).expect(write);
    }
}
