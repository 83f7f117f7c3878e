//! Trunks in files of their own.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use k3_pack::trunk::{Hooks, SourcePaths, TrunkPlan, TrunkSettings, TrunkSource, pack};
use serde_json::{Map, Value, json};

use super::Case;

/// Packs the trunk of `case` in blocks of `block_bytes`, striped over `stripes`
/// directories beside the model.
pub(crate) fn packed(case: &Case, stripes: usize, block_bytes: u64) -> Vec<PathBuf> {
    let model = case.dir.path();
    let outs: Vec<PathBuf> = (0..stripes)
        .map(|stripe| model.join(format!("packed-{stripes}-{stripe}")))
        .collect();
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    let source = TrunkSource::open(&paths, Some(block_bytes)).unwrap();
    let mut settings = TrunkSettings::new(outs.clone());
    settings.reserve_bytes = 0;
    let plan = TrunkPlan::new(&source, &settings).unwrap();
    pack(&source, &plan, &AtomicBool::new(false), &Hooks::NONE).unwrap();
    outs
}

/// Writes `trunk.bin` and `trunk.json` as other tools do: layer by layer the
/// tensors that are no expert's, here each an odd number of bytes apart.
pub(crate) fn foreign(case: &Case) -> Vec<PathBuf> {
    let directory = case.dir.path().join("foreign");
    fs::create_dir(&directory).unwrap();
    let mut bin = File::create(directory.join("trunk.bin")).unwrap();
    let layer_count = case.tiny.config.num_hidden_layers;
    let mut at = 0;
    let layers: Vec<Value> = (0..layer_count)
        .map(|layer| {
            let (bytes, tensors) = layer_run(case, layer);
            bin.write_all(&bytes).unwrap();
            let entry = json!({
                "layer": layer,
                "shard": "model.safetensors",
                "nbytes": bytes.len(),
                "file_off": at,
                "tensors": tensors,
            });
            at += bytes.len();
            entry
        })
        .collect();
    let text = json!({ "n_layers": layer_count, "align": 4096, "layers": layers });
    fs::write(directory.join("trunk.json"), text.to_string()).unwrap();
    vec![directory]
}

/// A layer's run, padded to whole pages, and where its tensors lie in it.
fn layer_run(case: &Case, layer: usize) -> (Vec<u8>, Map<String, Value>) {
    let (mut bytes, mut tensors) = (Vec::new(), Map::new());
    let wanted = format!(".layers.{layer}.");
    for (name, tensor) in case.checkpoint.index().tensors() {
        if !name.contains(&wanted) || name.contains(".experts.") {
            continue;
        }
        let mut data = vec![0; usize::try_from(tensor.bytes).unwrap()];
        case.checkpoint.read_tensor(&tensor, &mut data).unwrap();
        bytes.extend([7; 3]);
        let entry = json!({
            "off": bytes.len(),
            "nbytes": data.len(),
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape.as_slice(),
        });
        bytes.extend(data);
        tensors.insert(name.to_owned(), entry);
    }
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    (bytes, tensors)
}

/// Every stripe file of a packed trunk.
pub(crate) fn stripe_files(directories: &[PathBuf]) -> Vec<PathBuf> {
    let is_stripe = |path: &Path| path.extension().is_some_and(|end| end == "k3trunk");
    let mut files = Vec::new();
    for directory in directories {
        let entries = fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        files.extend(paths.filter(|path| is_stripe(path)));
    }
    files
}
