//! What the cache finds, keeps and survives.

mod crash;
mod shared;
mod store;

use std::fs;
use std::path::Path;

use k3_formats::Identity;

use super::*;

const BINDING: Binding = Binding {
    identity: Identity::from_bytes([7; 32]),
    numerics_version: 1,
    form: StateForm::Latent,
    layer_count: 3,
};

/// A limit that nothing here reaches.
const PLENTY_BYTES: u64 = 1 << 30;

/// The state after some ids: any other ids have another one.
fn state(tokens: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..200_u32 {
        let mix = |sum: u32, id: &u32| sum.wrapping_mul(31).wrapping_add(*id);
        let word = tokens.iter().fold(index, mix);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn save(store: &PrefixStore, tokens: &[u32]) -> Result<Saved, PrefixError> {
    let state = state(tokens);
    store.save(tokens, state.len() as u64, |out| out.write_all(&state))
}

/// The state that a hit loads.
fn load(store: &PrefixStore, hit: Hit) -> Result<Vec<u8>, PrefixError> {
    let mut found = Vec::new();
    store.load(hit, |from| from.read_to_end(&mut found).map(|_| ()))?;
    Ok(found)
}

/// Position of the longest prefix, whose state is loaded and compared.
fn found(store: &PrefixStore, tokens: &[u32], at_most: usize) -> Option<usize> {
    let hit = store.find(tokens, at_most)?;
    let position = hit.position();
    assert_eq!(load(store, hit).unwrap(), state(&tokens[..position]));
    Some(position)
}

fn open(directory: &Path, limit_bytes: u64) -> PrefixStore {
    PrefixStore::open(directory, limit_bytes, BINDING).unwrap()
}

/// Names in the directory but the lock.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".lock")
        .collect();
    names.sort();
    names
}

/// Length of the file of an entry of `position` ids.
fn entry_bytes(position: usize) -> u64 {
    144 + 4 * position as u64 + 800 + 16
}
