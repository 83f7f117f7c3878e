//! Checks on published data, which run when `K3_REFERENCE_DATA` names its folder.

use std::fs;
use std::path::Path;

use k3_formats::gates::reference_data as folder;
use k3_formats::replica::released_config;
use k3_formats::{ExpertTrace, KimiK3Config, MemoryFile, RankFile, ShardIndex, write_ranks};

fn config(path: &Path) -> KimiK3Config {
    KimiK3Config::parse(path, &fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_released_configuration() {
    let Some(folder) = folder() else { return };
    let config = config(&folder.join("k3-config/config.json"));
    assert_eq!(config, released_config());
    assert_eq!(config.expert_bytes(), 17_547_264);
    assert_eq!(config.snapshot_count(), 8);
    assert_eq!(
        (config.kda_layer_count(), config.moe_layer_count()),
        (69, 92)
    );
    assert!(config.is_mla(91) && config.is_mla(92) && config.is_mla(3) && !config.is_mla(4));
}

#[test]
fn the_tiny_checkpoints() {
    let Some(folder) = folder() else { return };
    for (name, tensors) in [("seed7", 916), ("e30", 2500)] {
        let folder = folder.join("k3tiny").join(name);
        let config = config(&folder.join("config.json"));
        let path = folder.join("model.safetensors");
        let file = MemoryFile::new(&path, fs::read(&path).unwrap());
        let index = ShardIndex::build(&[&file], None).unwrap();
        index.require_experts(&config).unwrap();
        assert_eq!(index.experts().expert_count(), 12 * config.num_experts);
        assert_eq!(index.tensor_count(), tensors);
        assert!(config.eos_token_ids.is_empty() && config.architectures.is_empty());
    }
}

#[test]
fn the_real_vocabulary() {
    let Some(folder) = folder() else { return };
    let path = folder.join("kimi-tokenizer/tiktoken.model");
    let bytes = fs::read(&path).unwrap();
    let ranks = RankFile::parse(&path, &bytes).unwrap();
    assert_eq!(ranks.len(), 163_584);
    assert_eq!(ranks.tokens().map(<[u8]>::len).max(), Some(256));
    assert_eq!(ranks.token(1008), Some(&b"The"[..]));
    assert_eq!(ranks.token(17_374), Some(&b" Paris"[..]));
    let mut written = Vec::new();
    write_ranks(&mut written, ranks.tokens()).unwrap();
    assert!(written == bytes, "the writer gives the file back");
}

#[test]
fn the_real_trace() {
    let Some(folder) = folder() else { return };
    let path = folder.join("real/expert_trace.bin");
    let trace = ExpertTrace::parse(&path, &fs::read(&path).unwrap()).unwrap();
    trace.check(&path, 1..93, 896, 16).unwrap();
    let positions: Vec<_> = trace
        .sweeps()
        .map(|sweep| sweep.pairs().len() / (92 * 16))
        .collect();
    assert_eq!(positions, [5, 6, 7, 8, 9, 10, 11, 12]);
}
