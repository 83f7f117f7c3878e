//! Several shards, experts, and the index file beside them.

use k3_formats::safetensors::writer::{HeaderBuilder, write_index};
use k3_formats::{
    ExpertPart, FormatError, IndexFault, KimiK3Config, MemoryFile, ReadAt, ShardIndex, ShardList,
};

use crate::support::{add_expert, add_part, build, expert_name, finish, shard};

/// An index of 12 bytes in all, those of [`two_shards`].
fn index_file(entries: &[(&str, &str)]) -> MemoryFile {
    sized_index_file(12, entries)
}

fn sized_index_file(total_bytes: u64, entries: &[(&str, &str)]) -> MemoryFile {
    let mut text = Vec::new();
    write_index(&mut text, total_bytes, entries.iter().copied()).unwrap();
    MemoryFile::new("dir/model.safetensors.index.json", text)
}

fn text_file(text: &str) -> MemoryFile {
    MemoryFile::new("dir/model.safetensors.index.json", text.as_bytes().to_vec())
}

fn build_mapped(shards: &[&MemoryFile], map: &MemoryFile) -> Result<ShardIndex, FormatError> {
    let views: Vec<&dyn ReadAt> = shards.iter().map(|shard| *shard as &dyn ReadAt).collect();
    ShardIndex::build(&views, Some(map))
}

fn map_fault(shards: &[&MemoryFile], map: &MemoryFile) -> IndexFault {
    let error = build_mapped(shards, map).unwrap_err();
    assert!(error.to_string().contains("index.json"), "{error}");
    match error {
        FormatError::Index { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

fn two_shards() -> (MemoryFile, MemoryFile) {
    (
        shard("dir/1.safetensors", &[("a", 3), ("b", 4)]),
        shard("dir/2.safetensors", &[("c", 5)]),
    )
}

#[test]
fn an_agreeing_index_is_accepted() {
    let (one, two) = two_shards();
    let map = index_file(&[
        ("c", "2.safetensors"),
        ("a", "1.safetensors"),
        ("b", "1.safetensors"),
    ]);
    let index = build_mapped(&[&one, &two], &map).unwrap();
    assert_eq!(index.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(index.get("c").unwrap().shard, 1);
    assert_eq!(index.shard_name(1), "2.safetensors");
    assert_eq!((index.tensor_count(), index.tensor_bytes()), (3, 12));
    assert_eq!(index.get("d"), None);
}

#[test]
fn a_tensor_mapped_to_another_shard() {
    let (one, two) = two_shards();
    let map = index_file(&[
        ("a", "1.safetensors"),
        ("b", "2.safetensors"),
        ("c", "2.safetensors"),
    ]);
    assert_eq!(
        map_fault(&[&one, &two], &map),
        IndexFault::WrongShard {
            tensor: "b".into(),
            mapped: "2.safetensors".into(),
            actual: "1.safetensors".into(),
            count: 1,
        }
    );
}

#[test]
fn the_stated_size_is_that_of_the_tensors() {
    let (one, two) = two_shards();
    let map = "\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\
               \"c\":\"2.safetensors\"}";
    for stated in [0, 11, 13] {
        let text = format!("{{\"metadata\":{{\"total_size\":{stated}}},{map}}}");
        let fault = map_fault(&[&one, &two], &text_file(&text));
        assert_eq!(fault, IndexFault::TotalSize { stated, found: 12 });
        let message = fault.to_string();
        assert!(
            message.contains(&stated.to_string()) && message.contains("12 bytes"),
            "{message}"
        );
    }
    for metadata in ["{}", "null", "{\"total_size\":12}"] {
        let text = format!("{{\"metadata\":{metadata},{map}}}");
        build_mapped(&[&one, &two], &text_file(&text)).unwrap();
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    let text = "\u{feff}{\"weight_map\":{\"a\":\"1.safetensors\"}}";
    let error = ShardList::read(&text_file(text)).unwrap_err().to_string();
    assert!(error.contains("byte order mark of UTF-8"), "{error}");
}

#[test]
fn a_tensor_missing_in_the_map() {
    let (one, two) = two_shards();
    let map = index_file(&[("a", "1.safetensors"), ("c", "2.safetensors")]);
    let fault = map_fault(&[&one, &two], &map);
    assert!(
        matches!(&fault, IndexFault::NotInMap { count: 1, examples } if examples == &["b"]),
        "{fault}"
    );
}

#[test]
fn a_tensor_missing_in_the_shards() {
    let (one, two) = two_shards();
    let names: Vec<String> = (0..5).map(|number| format!("gone.{number}")).collect();
    let mut entries = vec![
        ("a", "1.safetensors"),
        ("b", "1.safetensors"),
        ("c", "2.safetensors"),
    ];
    entries.extend(names.iter().map(|name| (name.as_str(), "1.safetensors")));
    let fault = map_fault(&[&one, &two], &index_file(&entries));
    assert!(
        matches!(&fault, IndexFault::NotInShards { count: 5, examples } if examples.len() == 3),
        "{fault}"
    );
}

#[test]
fn a_mapped_shard_that_was_not_given() {
    let (one, _) = two_shards();
    let map = index_file(&[
        ("a", "1.safetensors"),
        ("b", "1.safetensors"),
        ("c", "old-2.safetensors"),
        ("d", "old-3.safetensors"),
    ]);
    let fault = map_fault(&[&one], &map);
    assert_eq!(
        fault,
        IndexFault::UnknownShards {
            count: 2,
            files: vec!["old-2.safetensors".into(), "old-3.safetensors".into()],
        }
    );
}

#[test]
fn an_expert_missing_in_the_map_and_one_mapped_wrongly() {
    let mut header = HeaderBuilder::new();
    add_expert(&mut header, 1, 0);
    let file = finish("1.safetensors", &header);
    let other = shard("2.safetensors", &[("x", 1)]);
    let names: Vec<String> = ExpertPart::ALL.map(|part| expert_name(1, 0, part)).into();
    let map_with = |skip: usize, wrong: usize| {
        let mut entries = vec![("x", "2.safetensors")];
        for (number, name) in names.iter().enumerate() {
            let shard = if number == wrong {
                "2.safetensors"
            } else {
                "1.safetensors"
            };
            if number != skip {
                entries.push((name, shard));
            }
        }
        sized_index_file(header.data_bytes() + 1, &entries)
    };
    build_mapped(&[&file, &other], &map_with(9, 9)).unwrap();
    let missing = map_fault(&[&file, &other], &map_with(4, 9));
    assert!(
        matches!(&missing, IndexFault::NotInMap { count: 1, examples } if examples[0] == names[4]),
        "{missing}"
    );
    let wrong = map_fault(&[&file, &other], &map_with(9, 2));
    assert!(
        matches!(&wrong, IndexFault::WrongShard { tensor, .. } if *tensor == names[2]),
        "{wrong}"
    );
}

#[test]
fn malformed_index_files() {
    let (one, two) = two_shards();
    for text in [
        "",
        "{",
        "[]",
        "x",
        "{\"weight_map\"",
        "{\"weight_map\":[]}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"1.safetensors\"}",
        "{\"weight_map\":{\"a\":\"1.safetensors\"}}x",
        "{\"weight_map\":{\"a\":\"1.safetensors\",}}",
        "{\"weight_map\":{\"a\":\"1.saf",
        "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"metadata\":{\"x\":tru},\"weight_map\":{}}",
        "{\"weight_map\":{\"a\\q\":\"1\"}}",
        "{\"weight_map\":{\"a\nb\":\"1\"}}",
        "{\"a\":}",
        "{\"a\":[1,2,],\"weight_map\":{}}",
        "{\"a\":01,\"weight_map\":{}}",
    ] {
        let error = build_mapped(&[&one, &two], &text_file(text)).unwrap_err();
        assert!(matches!(error, FormatError::Json { .. }), "{text}: {error}");
        assert!(ShardList::read(&text_file(text)).is_err(), "{text}");
    }
    let no_map = text_file("{\"metadata\":{\"total_size\":1}}");
    assert_eq!(map_fault(&[&one], &no_map), IndexFault::NoWeightMap);
    let twice = "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}}";
    let fault = map_fault(&[&one], &text_file(twice));
    assert_eq!(fault, IndexFault::MappedTwice { tensor: "a".into() });
    let deep = format!(
        "{{\"x\":{}1{},\"weight_map\":{{}}}}",
        "[".repeat(9999),
        "]".repeat(9999)
    );
    let error = ShardList::read(&text_file(&deep)).unwrap_err();
    assert!(error.to_string().contains("nested"), "{error}");
}

#[test]
fn the_index_need_not_be_pretty() {
    let (one, two) = two_shards();
    let text = "\n{\"other\":[1,{\"x\":null},-2.5e3,true,\"}\"],\"metadata\":{\"total_size\":12,\"a\":{}},\
                \"weight_map\":{\"\\u0061\":\"1.safetensors\"\t,\"b\" :\"1.safetensors\",\
                \"c\":\"2.safe\\u0074ensors\"}}\r\n";
    build_mapped(&[&one, &two], &text_file(text)).unwrap();
    let list = ShardList::read(&text_file(text)).unwrap();
    assert_eq!((list.total_bytes, list.tensor_count), (Some(12), 3));
}

/// The reader sees a window of the file: strings, escapes and multi-byte
/// characters must survive its edges.
#[test]
fn names_across_the_edge_of_the_readers_window() {
    const WINDOW_BYTES: usize = 256 << 10;
    let name = "n\u{e9}\u{4e2d}\"\\x";
    let one = shard("1.safetensors", &[(name, 1)]);
    let quoted = "n\u{e9}\u{4e2d}\\\"\\\\\\u0078";
    let entry_bytes = quoted.len() + 40;
    for lead in WINDOW_BYTES - entry_bytes..WINDOW_BYTES + 4 {
        let text = format!(
            "{{\"weight_map\":{}{{\"{quoted}\":\"1.safetensors\"}}}}",
            " ".repeat(lead - 20)
        );
        build_mapped(&[&one], &text_file(&text)).unwrap();
    }
    let huge = format!(
        "{{\"weight_map\":{{\"{}\":\"1\"}}}}",
        "x".repeat(WINDOW_BYTES + 10)
    );
    let error = ShardList::read(&text_file(&huge)).unwrap_err();
    assert!(error.to_string().contains("string longer"), "{error}");
}

#[test]
fn shard_names_that_leave_the_directory() {
    for name in [
        "../x",
        "/etc/passwd",
        "a/b",
        "..",
        ".",
        "",
        "a\\\\b",
        "a\\u0000",
        "a\\u001b[2J",
    ] {
        let text = format!("{{\"weight_map\":{{\"a\":\"{name}\"}}}}");
        let error = ShardList::read(&text_file(&text)).unwrap_err();
        let is_bad_name = matches!(
            error,
            FormatError::Index {
                fault: IndexFault::BadShardName { .. },
                ..
            }
        );
        assert!(is_bad_name, "{name}: {error}");
    }
    let empty = ShardList::read(&text_file("{\"weight_map\":{}}")).unwrap_err();
    assert!(matches!(
        empty,
        FormatError::Index {
            fault: IndexFault::Empty,
            ..
        }
    ));
}

#[test]
fn the_shard_list_says_what_each_file_holds() {
    let map = index_file(&[
        (
            "language_model.model.layers.36.input_layernorm.weight",
            "37.safetensors",
        ),
        ("language_model.model.norm.weight", "94.safetensors"),
        ("language_model.model.layers.35.x", "37.safetensors"),
    ]);
    let list = ShardList::read(&map).unwrap();
    assert_eq!(list.total_bytes, Some(12));
    assert_eq!(list.shards[0].name, "37.safetensors");
    assert_eq!(list.shards[0].layers, Some(35..=36));
    assert_eq!(list.shards[0].tensor_count, 2);
    assert_eq!(list.shards[1].layers, None);
    assert_eq!(
        list.shards[1].first_tensor,
        "language_model.model.norm.weight"
    );
}

#[test]
fn a_tensor_in_two_shards() {
    let one = shard("1.safetensors", &[("a", 3)]);
    let two = shard("2.safetensors", &[("a", 3)]);
    let error = build(&[&one, &two]).unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, FormatError::DuplicateTensor { .. }),
        "{message}"
    );
    assert!(
        message.contains("1.safetensors") && message.contains("2.safetensors"),
        "{message}"
    );

    let mut header = HeaderBuilder::new();
    add_expert(&mut header, 1, 0);
    let one = finish("1.safetensors", &header);
    let two = finish("2.safetensors", &header);
    let error = build(&[&one, &two]).unwrap_err();
    assert!(
        matches!(error, FormatError::DuplicateTensor { .. }),
        "{error}"
    );
}

#[test]
fn experts_out_of_order_are_found() {
    let mut header = HeaderBuilder::new();
    for expert in [2, 0, 1] {
        add_expert(&mut header, 1, expert);
    }
    let index = build(&[&finish("s", &header)]).unwrap();
    for expert in 0..3 {
        let found = index.experts().get(1, expert).unwrap();
        assert!(found.is_contiguous());
        assert_eq!(found.total_bytes(), 2 * (32 * 32 + 32 * 2) + 64 * 16 + 64);
        for part in ExpertPart::ALL {
            let tensor = index.get(&expert_name(1, expert, part)).unwrap();
            assert_eq!(tensor, found.part(part));
        }
    }
    let offset = |expert| index.experts().get(1, expert).unwrap().segments()[0].offset;
    assert!(offset(2) < offset(0) && offset(0) < offset(1));
}

#[test]
fn a_scattered_expert_is_read_in_pieces() {
    let mut one = HeaderBuilder::new();
    add_part(&mut one, 1, 0, ExpertPart::W1Packed);
    add_part(&mut one, 1, 0, ExpertPart::W1Scale);
    one.tensor("between", k3_formats::Dtype::U8, &[5]);
    add_part(&mut one, 1, 0, ExpertPart::W2Packed);
    let mut two = HeaderBuilder::new();
    for part in [
        ExpertPart::W2Scale,
        ExpertPart::W3Packed,
        ExpertPart::W3Scale,
    ] {
        add_part(&mut two, 1, 0, part);
    }
    let index = build(&[&finish("1", &one), &finish("2", &two)]).unwrap();
    let expert = index.experts().get(1, 0).unwrap();
    let segments = expert.segments();
    let sizes: Vec<_> = segments
        .iter()
        .map(|part| (part.shard, part.bytes))
        .collect();
    assert_eq!(sizes, [(0, 32 * 34), (0, 64 * 16), (1, 64 + 32 * 34)]);
    assert!(!expert.is_contiguous());
    let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(total, expert.total_bytes());
}

/// The second shard's part begins at the very offset where the first shard's
/// ends: neighbours by number, in different files.
#[test]
fn parts_of_two_files_are_never_merged() {
    let (head, tail) = ExpertPart::ALL.split_at(3);
    let mut one = HeaderBuilder::new();
    one.tensor("lead", k3_formats::Dtype::U8, &[4096]);
    head.iter().for_each(|part| add_part(&mut one, 1, 0, *part));
    let one = finish("1", &one);
    let with_lead = |lead: u64| {
        let mut two = HeaderBuilder::new();
        two.tensor("other lead", k3_formats::Dtype::U8, &[lead]);
        tail.iter().for_each(|part| add_part(&mut two, 1, 0, *part));
        finish("2", &two)
    };
    let met = (1..8192).map(with_lead).find_map(|two| {
        let index = build(&[&one, &two]).unwrap();
        let segments = index.experts().get(1, 0).unwrap().segments();
        let first_end = segments[0].offset + segments[0].bytes;
        let next = index.get(&expert_name(1, 0, tail[0])).unwrap();
        (next.offset == first_end).then_some(segments)
    });
    let segments = met.expect("some lead places the second part there");
    assert_eq!(segments.len(), 2);
    assert_eq!((segments[0].shard, segments[1].shard), (0, 1));
}

#[test]
fn missing_and_partial_experts_are_counted() {
    let mut header = HeaderBuilder::new();
    add_expert(&mut header, 1, 0);
    add_part(&mut header, 1, 1, ExpertPart::W2Packed);
    let error = build(&[&finish("s", &header)]).unwrap_err();
    assert!(
        matches!(&error, FormatError::MissingExperts { count: 5, examples }
            if examples.len() == 3 && examples[0] == expert_name(1, 1, ExpertPart::W1Packed)),
        "{error}"
    );
    let mut gap = HeaderBuilder::new();
    add_expert(&mut gap, 1, 65_535);
    let error = build(&[&finish("s", &gap)]).unwrap_err();
    assert!(
        matches!(&error, FormatError::MissingExperts { count, .. } if *count == 65_535 * 6),
        "{error}"
    );
}

fn config_for(layers: usize, experts: usize) -> KimiK3Config {
    let mut config = k3_formats::replica::released_config();
    config.num_hidden_layers = layers;
    config.mla_layers = vec![layers - 1];
    config.num_experts = experts;
    config.routed_expert_hidden_size = 64;
    config.moe_intermediate_size = 32;
    config
}

#[test]
fn experts_are_compared_with_the_configuration() {
    let mut header = HeaderBuilder::new();
    add_expert(&mut header, 1, 0);
    add_expert(&mut header, 1, 1);
    let index = build(&[&finish("s", &header)]).unwrap();
    index.require_experts(&config_for(2, 2)).unwrap();

    let missing = index.require_experts(&config_for(3, 2)).unwrap_err();
    assert!(
        matches!(missing, FormatError::MissingExperts { count: 12, .. }),
        "{missing}"
    );
    let extra = index.require_experts(&config_for(2, 1)).unwrap_err();
    assert!(
        matches!(extra, FormatError::ExtraExperts { count: 6, .. }),
        "{extra}"
    );
    let mut wider = config_for(2, 2);
    wider.moe_intermediate_size = 64;
    let form = index.require_experts(&wider).unwrap_err();
    let message = form.to_string();
    assert!(matches!(form, FormatError::ExpertForm { .. }), "{message}");
    assert!(
        message.contains("[64, 32]") && message.contains("[32, 32]"),
        "{message}"
    );

    let none = build(&[&shard("s", &[("a", 1)])]).unwrap();
    let message = none
        .require_experts(&config_for(2, 2))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains(&expert_name(1, 0, ExpertPart::W1Packed)),
        "{message}"
    );
}

#[test]
fn an_expert_tensor_that_is_no_matrix() {
    let mut header = HeaderBuilder::new();
    let name = expert_name(1, 0, ExpertPart::W1Packed);
    header.tensor(name.as_str(), k3_formats::Dtype::U8, &[8]);
    let error = build(&[&finish("dir/s", &header)]).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, FormatError::ExpertForm { .. }), "{message}");
    assert!(
        message.contains("dir/s") && message.contains(&name),
        "{message}"
    );
}

#[test]
fn the_identity_follows_headers_sizes_and_configuration() {
    let (one, two) = two_shards();
    let identity = |shards: &[&MemoryFile], config: &[u8]| build(shards).unwrap().identity(config);
    let base = identity(&[&one, &two], b"{}");
    assert_eq!(
        base,
        identity(&[&two, &one], b"{}"),
        "the order of opening is free"
    );
    assert_ne!(base, identity(&[&one, &two], b"{ }"));
    let renamed = MemoryFile::new("dir/3.safetensors", two.bytes().to_vec());
    assert_ne!(base, identity(&[&one, &renamed], b"{}"));
    let other = shard("dir/2.safetensors", &[("d", 5)]);
    assert_ne!(base, identity(&[&one, &other], b"{}"));
    let moved = MemoryFile::new("elsewhere/2.safetensors", two.bytes().to_vec());
    assert_eq!(
        base,
        identity(&[&one, &moved], b"{}"),
        "directories do not count"
    );
}
