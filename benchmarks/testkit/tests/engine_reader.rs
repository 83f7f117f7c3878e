//! The engine's index over generated checkpoints: it finds the tensors the
//! generator made, and refuses the files a fault was put into.

use k3_formats::{ExpertPart, FormatError, MemoryFile, ReadAt, ShardIndex};
use k3_testkit::{Fault, FaultyReadAt, TinyCheckpoint, TinySpec};

fn build(files: &[impl ReadAt], map: Option<&MemoryFile>) -> Result<ShardIndex, FormatError> {
    let shards: Vec<&dyn ReadAt> = files.iter().map(|file| file as &dyn ReadAt).collect();
    ShardIndex::build(&shards, map.map(|map| map as &dyn ReadAt))
}

fn checkpoints() -> Vec<TinyCheckpoint> {
    [
        TinySpec::small(3),
        TinySpec::small(3).shards(4).converted(),
        TinySpec::odd(3),
        TinySpec::wide_union(3).with(|spec| spec.layout.odd_offsets = true),
    ]
    .map(|spec| spec.generate())
    .into()
}

#[test]
fn finds_every_tensor_and_its_bytes() {
    for checkpoint in checkpoints() {
        let files = checkpoint.shard_files();
        let index = build(&files, checkpoint.index_file().as_ref()).unwrap();
        assert_eq!(index.tensor_count(), checkpoint.tensors.len());
        index.require_experts(&checkpoint.config).unwrap();
        for tensor in &checkpoint.tensors {
            let found = index.get(&tensor.name).unwrap();
            assert_eq!(
                (found.dtype, found.shape.as_slice()),
                (tensor.dtype, &tensor.shape[..])
            );
            let mut bytes = vec![0; tensor.bytes.len()];
            let file = &files[usize::from(found.shard)];
            file.read_exact_at(found.offset, &mut bytes).unwrap();
            assert_eq!(bytes, tensor.bytes, "{}", tensor.name);
        }
    }
}

#[test]
fn experts_are_read_in_as_many_pieces_as_asked_for() {
    for (checkpoint, pieces) in checkpoints().into_iter().zip([1, 1, 6, 1]) {
        let files = checkpoint.shard_files();
        let index = build(&files, None).unwrap();
        let shape = &checkpoint.spec.shape;
        for layer in shape.dense_layers..shape.layers {
            for id in 0..shape.experts {
                let expert = index.experts().get(layer, id).unwrap();
                assert_eq!(expert.segments().len(), pieces);
                let mut bytes = Vec::new();
                for segment in expert.segments().iter() {
                    let mut piece = vec![0; usize::try_from(segment.bytes).unwrap()];
                    let file = &files[usize::from(segment.shard)];
                    file.read_exact_at(segment.offset, &mut piece).unwrap();
                    bytes.extend(piece);
                }
                let tails = [
                    "w1.weight_packed",
                    "w1.weight_scale",
                    "w2.weight_packed",
                    "w2.weight_scale",
                    "w3.weight_packed",
                    "w3.weight_scale",
                ];
                assert_eq!(tails.len(), ExpertPart::ALL.len());
                let stored = tails.map(|tail| {
                    let name = format!("layers.{layer}.block_sparse_moe.experts.{id}.{tail}");
                    checkpoint.bytes(&checkpoint.name(&name)).to_vec()
                });
                assert_eq!(bytes, stored.concat(), "layer {layer}, expert {id}");
            }
        }
    }
}

#[test]
fn faulty_files_are_refused_by_name() {
    let checkpoint = TinySpec::small(3).generate();
    let [file] = &checkpoint.shard_files()[..] else {
        panic!("one file")
    };
    let len_bytes = file.len_bytes();
    for fault in [
        Fault::Truncated {
            len_bytes: len_bytes - 1,
        },
        Fault::CutWhileOpen { len_bytes: 100 },
        Fault::ErrorAt { offset: 50 },
        Fault::ErrorOnRead { read: 0 },
        // The header's length and its first byte.
        Fault::BitFlip {
            offset: 7,
            mask: 0x80,
        },
        Fault::BitFlip { offset: 8, mask: 1 },
    ] {
        let faulty = FaultyReadAt::new(file).with(fault.clone());
        let error = build(&[faulty], None).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "{fault:?}: {error}");
    }
    let whole = FaultyReadAt::new(file).with(Fault::BitFlip {
        offset: len_bytes - 1,
        mask: 1,
    });
    build(&[&whole], None).unwrap();
    assert!(whole.read_count() > 0);
}
