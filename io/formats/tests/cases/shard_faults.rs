//! Broken shards: every class of fault is an error that names file and place.

use k3_formats::safetensors::writer::{HeaderBuilder, HeaderPadding};
use k3_formats::safetensors::{HEADER_BYTES_MAX, ShardHeader};
use k3_formats::{Dtype, FormatError, MemoryFile, ReadAt, TensorFault};

use crate::support::{build, finish, one_tensor, raw_shard, shard, shard_error};

fn fault_of(file: &MemoryFile) -> TensorFault {
    match shard_error(file) {
        FormatError::Tensor { tensor, fault, .. } => {
            assert_eq!(tensor, "t");
            fault
        }
        other => panic!("{other}"),
    }
}

#[test]
fn header_lengths_that_do_not_fit_the_file() {
    let file_bytes = 16_u64;
    let lengths = [
        u64::MAX,
        u64::MAX - 7,
        1 << 63,
        HEADER_BYTES_MAX + 1,
        file_bytes,
        file_bytes - 7,
        0,
        1,
    ];
    for length in lengths {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}      ");
        let error = shard_error(&MemoryFile::new("x.safetensors", bytes));
        assert!(
            matches!(error, FormatError::HeaderLength { header_bytes, file_bytes: 16, .. }
                if header_bytes == length),
            "{length}: {error}"
        );
    }
    for short in 0..8 {
        let error = shard_error(&MemoryFile::new("x.safetensors", vec![0; short]));
        assert!(matches!(error, FormatError::HeaderLength { .. }), "{error}");
    }
}

#[test]
fn the_header_may_fill_the_file_exactly() {
    let file = raw_shard("{}", 0);
    assert_eq!(ShardHeader::read(&file).unwrap().tensors, []);
    // Every header length from the shortest on: no fencepost at any size.
    for spaces in 0..64 {
        let mut header = HeaderBuilder::new();
        header.tensor("t", Dtype::F32, &[2]);
        let bytes = header.build_file(HeaderPadding::Spaces(spaces), &[1; 8]);
        let data_offset = bytes.len() as u64 - 8;
        let file = MemoryFile::new("s", bytes);
        let tensor = build(&[&file]).unwrap().get("t").unwrap();
        assert_eq!((tensor.offset, tensor.bytes), (data_offset, 8));
    }
}

#[test]
fn headers_around_the_sizes_readers_fetch_at_once() {
    for target in [4096_usize, 65_536, 100_000, 262_144, 1 << 20] {
        for header_bytes in target - 8..=target + 1 {
            let mut header = HeaderBuilder::new();
            header.tensor("t", Dtype::U8, &[1]);
            let plain = header.build(HeaderPadding::Spaces(0)).len() - 8;
            let spaces = HeaderPadding::Spaces(header_bytes - plain);
            let file = MemoryFile::new("s", header.build_file(spaces, &[1]));
            let tensor = build(&[&file]).unwrap().get("t").unwrap();
            assert_eq!(tensor.offset, header_bytes as u64 + 8);
        }
    }
}

#[test]
fn reversed_and_overflowing_offsets() {
    assert!(matches!(
        fault_of(&one_tensor("[32]", "[64,32]", 64)),
        TensorFault::ReversedRange { begin: 64, end: 32 }
    ));
    let wrapping = "[18446744073709551608,18446744073709551615]";
    assert!(matches!(
        fault_of(&one_tensor("[7]", wrapping, 64)),
        TensorFault::RangeOverflow { end: u64::MAX }
    ));
    assert!(matches!(
        fault_of(&one_tensor("[4294967296,4294967296]", "[0,64]", 64)),
        TensorFault::ShapeOverflow { .. }
    ));
    let beyond_64_bits = one_tensor("[1]", "[0,18446744073709551616]", 64);
    assert!(matches!(
        shard_error(&beyond_64_bits),
        FormatError::Json { .. }
    ));
}

#[test]
fn data_that_end_beyond_the_file() {
    for missing in [1, 4096] {
        let file = one_tensor("[8192]", "[0,8192]", 8192 - missing);
        let error = shard_error(&file);
        let expected = file.len_bytes() + missing as u64;
        assert!(
            matches!(&error, FormatError::Truncated { tensor, expected_bytes, actual_bytes, .. }
                if tensor == "t" && *expected_bytes == expected && *actual_bytes == file.len_bytes()),
            "{error}"
        );
    }
}

#[test]
fn a_shard_cut_by_a_page_is_refused_with_the_tensor_cut_off() {
    let whole = shard(
        "model-00037.safetensors",
        &[("a", 3000), ("b", 3000), ("c", 3000)],
    );
    let length = whole.bytes().len();
    let cut = MemoryFile::new(
        "model-00037.safetensors",
        whole.bytes()[..length - 4096].to_vec(),
    );
    let message = shard_error(&cut).to_string();
    for part in [
        "model-00037.safetensors",
        "\"b\"",
        &length.to_string(),
        &(length - 4096).to_string(),
        "4096 missing",
        "fetch",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    build(&[&whole]).unwrap();
}

#[test]
fn every_cut_of_a_shard_is_refused() {
    let whole = shard("s", &[("a", 5), ("b", 9)]);
    for length in 0..whole.bytes().len() {
        shard_error(&MemoryFile::new("s", whole.bytes()[..length].to_vec()));
    }
}

#[test]
fn bytes_after_the_last_tensor() {
    let file = one_tensor("[8]", "[0,8]", 9);
    let error = shard_error(&file);
    assert!(
        matches!(error, FormatError::TrailingData { offset, extra_bytes: 1, .. }
            if offset == file.len_bytes() - 1),
        "{error}"
    );
}

#[test]
fn overlaps_and_holes() {
    let entry = |name: &str, begin: u64, end: u64| {
        let length = end - begin;
        format!(
            "\"{name}\":{{\"dtype\":\"U8\",\"shape\":[{length}],\"data_offsets\":[{begin},{end}]}}"
        )
    };
    let two = |a: String, b: String| raw_shard(&format!("{{{a},{b}}}"), 16);
    assert!(matches!(
        fault_of(&two(entry("a", 0, 9), entry("t", 8, 16))),
        TensorFault::Overlap { begin: 8, other_end: 9, other } if other == "a"
    ));
    assert!(matches!(
        fault_of(&two(entry("a", 0, 8), entry("t", 9, 16))),
        TensorFault::Hole {
            begin: 9,
            gap_bytes: 1
        }
    ));
    assert!(matches!(
        fault_of(&raw_shard(&format!("{{{}}}", entry("t", 1, 16)), 16)),
        TensorFault::Hole {
            begin: 1,
            gap_bytes: 1
        }
    ));
    // The order of the entries in the header is free.
    build(&[&two(entry("b", 8, 16), entry("a", 0, 8))]).unwrap();
}

#[test]
fn shapes_types_and_lengths_that_disagree() {
    assert!(matches!(
        fault_of(&one_tensor("[2,3]", "[0,7]", 7)),
        TensorFault::LengthMismatch {
            expected: 6,
            found: 7,
            ..
        }
    ));
    assert!(matches!(
        fault_of(&one_tensor("[1,1,1,1,1]", "[0,1]", 1)),
        TensorFault::TooManyDimensions { limit: 4 }
    ));
    let dtype = raw_shard(
        "{\"t\":{\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        1,
    );
    assert!(matches!(fault_of(&dtype), TensorFault::UnknownDtype(name) if name == "Q9"));
}

#[test]
fn the_same_name_twice() {
    let entry = |begin: u64| {
        format!(
            "\"t\":{{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[{begin},{}]}}",
            begin + 4
        )
    };
    let error = shard_error(&raw_shard(&format!("{{{},{}}}", entry(0), entry(4)), 8));
    assert!(
        matches!(&error, FormatError::DuplicateTensor { tensor, first_offset, second_offset, .. }
            if tensor == "t" && first_offset + 4 == *second_offset),
        "{error}"
    );
    let FormatError::DuplicateTensor {
        first_offset,
        second_offset,
        ..
    } = &error
    else {
        unreachable!("matched above")
    };
    let message = error.to_string();
    for part in [
        "twice in the header",
        &format!("offset {first_offset} and at offset {second_offset}"),
        "fetch this file again",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("keep one"), "{message}");
}

/// Whatever is wrong with a header, its message says what to do, and its names
/// are shown short and escaped.
#[test]
fn messages_end_with_a_way_out() {
    let name = format!("t\\u001b{}", "y".repeat(5000));
    let entry = |fields: &str| format!("{{\"{name}\":{{{fields}}}}}");
    let good = "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]";
    let twice = entry(good);
    let twice = format!("{},{}", &twice[..twice.len() - 1], &twice[1..]);
    for (json, data_bytes) in [
        ("{}xx".to_owned(), 0),
        ("{\"t\":".to_owned(), 0),
        (entry(&good.replace("[0,1]", "[1,2]")), 2),
        (entry(&good.replace("[0,1]", "[0,2]")), 2),
        (entry(&good.replace("U8", "\\u001b")), 1),
        (entry(&good.replace("\"U8\"", "7")), 1),
        (entry(good), 0),
        (entry(good), 2),
        (twice, 1),
    ] {
        let error = build(&[&raw_shard(&json, data_bytes)]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("fetch this file again"), "{message}");
        let is_safe = !message.contains('\u{1b}') && message.len() < 700;
        assert!(is_safe, "{message}");
    }
    let error = shard_error(&raw_shard("{}xx", 0)).to_string();
    assert!(
        error.contains("4 bytes by the length at offset 0"),
        "{error}"
    );
}

#[test]
fn json_that_is_no_header() {
    let good = "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]";
    for json in [
        "[]".to_owned(),
        " {}".to_owned(),
        "{ ".to_owned(),
        "{}x".to_owned(),
        "{\"t\":1}".to_owned(),
        "{\"t\":{}}".to_owned(),
        "{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}".to_owned(),
        format!("{{\"t\":{{{good},\"extra\":1}}}}"),
        format!("{{\"t\":{{{good},\"dtype\":\"U8\"}}}}"),
        format!("{{\"t\":{{{}}}}}", good.replace("[1]", "[-1]")),
        format!("{{\"t\":{{{}}}}}", good.replace("[1]", "[1.0]")),
        format!("{{\"t\":{{{}}}}}", good.replace("[0,1]", "[0,1,2]")),
        format!("{{\"t\":{{{}}}}}", good.replace("[0,1]", "[0]")),
        format!("{{\"__metadata__\":{{\"a\":1}},\"t\":{{{good}}}}}"),
        format!("{{\"__metadata__\":{{}},\"__metadata__\":{{}},\"t\":{{{good}}}}}"),
    ] {
        let error = shard_error(&raw_shard(&json, 1));
        assert!(
            matches!(error, FormatError::Json { offset, .. } if offset >= 8),
            "{json}: {error}"
        );
    }
    let named = shard_error(&raw_shard("{\"the.tensor\":{\"dtype\":7}}", 0));
    assert!(named.to_string().contains("the.tensor"), "{named}");
    build(&[&raw_shard(&format!("{{\"t\":{{{good}}}}}"), 1)]).unwrap();
}

#[test]
fn an_entry_is_reported_where_it_stands() {
    let file = one_tensor("[2,3]", "[0,7]", 7);
    let FormatError::Tensor { offset, .. } = shard_error(&file) else {
        panic!("another error");
    };
    let place = usize::try_from(offset).unwrap();
    assert_eq!(file.bytes()[place], b't');
}

#[test]
fn escaped_names_are_the_names_they_mean() {
    let json = "{\"\\u0061\\\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    let index = build(&[&raw_shard(json, 1)]).unwrap();
    assert_eq!(index.names().collect::<Vec<_>>(), ["a\"b"]);
    assert!(index.get("a\"b").is_some());
}

/// A file with the given header whose data are not there.
struct Hollow {
    header: MemoryFile,
    file_bytes: u64,
}

impl ReadAt for Hollow {
    fn label(&self) -> &std::path::Path {
        self.header.label()
    }

    fn len_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        self.header.read_exact_at(offset, buffer)
    }
}

#[test]
fn tensors_beyond_two_and_four_gibibytes() {
    let mut header = HeaderBuilder::new();
    header
        .tensor("a", Dtype::U8, &[(1 << 31) + 1])
        .tensor("b", Dtype::Bf16, &[163_840, 7168])
        .tensor("c", Dtype::U8, &[5 << 32])
        .tensor("d", Dtype::F32, &[1]);
    let header_file = MemoryFile::new("big", header.build(HeaderPadding::Spaces(0)));
    let start = header_file.len_bytes();
    let file = Hollow {
        file_bytes: start + header.data_bytes(),
        header: header_file,
    };
    let index = k3_formats::ShardIndex::build(&[&file], None).unwrap();
    let a = (1_u64 << 31) + 1;
    let b = 2_348_810_240;
    assert_eq!(index.get("a").unwrap().bytes, a);
    assert_eq!(index.get("b").unwrap().bytes, b);
    assert_eq!(index.get("c").unwrap().offset, start + a + b);
    assert_eq!(index.get("d").unwrap().offset, start + a + b + (5 << 32));
    assert_eq!(index.tensor_bytes(), header.data_bytes());
}

#[test]
fn empty_tensors_and_metadata_are_fine() {
    let mut header = HeaderBuilder::new();
    header
        .metadata("format", "pt")
        .tensor("empty", Dtype::F32, &[0, 3])
        .tensor("scalar", Dtype::F64, &[])
        .tensor("also empty", Dtype::U8, &[0]);
    let file = finish("s", &header);
    let read = ShardHeader::read(&file).unwrap();
    assert_eq!(read.metadata, [("format".to_owned(), "pt".to_owned())]);
    assert_eq!(read.tensors.len(), 3);
    assert_eq!(read.tensors[1].1.bytes, 8);
}
