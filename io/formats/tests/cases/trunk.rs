//! Packed trunks: whole ones are read, and no byte of one can change unnoticed.

use k3_formats::trunk::{
    Codec, CodecChoice, EntryFault, PackedBlock, PackedTrunk, SetDescription, StripeHeader,
    TrunkFault, checksum, encode_table, stripe_file_name, table_hash,
};
use k3_formats::{Dtype, FormatError, Identity, MemoryFile, ReadAt};
use proptest::prelude::*;

const PAGE: usize = 4096;
const IDENTITY: Identity = Identity::from_bytes([0xA5; 32]);

/// A set of stripe files as a packer writes them, with payloads of no meaning.
#[derive(Debug, Clone)]
struct Set {
    description: SetDescription,
    blocks: Vec<PackedBlock>,
    payloads: Vec<Vec<u8>>,
}

impl Set {
    /// Blocks of two matrices of 600 rows, every second one packed.
    fn new(weights: &[u32], block_count: u32, seed: u8) -> Self {
        let description = SetDescription {
            identity: IDENTITY,
            block_bytes: 12_000,
            weights: weights.to_vec(),
            codec: CodecChoice::Auto,
        };
        let stripes = description.stripes((0..block_count).map(|_| 12_000));
        let mut set = Self {
            description,
            blocks: Vec::new(),
            payloads: Vec::new(),
        };
        for index in 0..block_count {
            let codec = [Codec::Raw, Codec::Bf16X3][index as usize % 2];
            let stored = [12_000, 7_000][index as usize % 2];
            let payload = (0..stored).map(|at: u32| (at * 7 + index * 31).to_le_bytes()[0] ^ seed);
            set.payloads.push(payload.collect());
            set.blocks.push(PackedBlock {
                shard: 1,
                source_offset: 77 + u64::from(index) * 12_000,
                row_start: index % 6 * 100,
                row_count: 100,
                row_total: 600,
                cols: 60,
                dtype: Dtype::Bf16,
                codec,
                stripe: stripes[index as usize],
                offset: 0,
                stored_bytes: stored.into(),
                raw_bytes: 12_000,
                checksum: 0,
                matrix_hash: [u8::try_from(index / 6).unwrap(); 32],
            });
        }
        set
    }

    /// The bytes of every stripe, after `edit` has changed the entries.
    fn files_with(&self, edit: impl FnOnce(&mut Vec<PackedBlock>)) -> Vec<MemoryFile> {
        let count = self.description.weights.len();
        let mut files = vec![vec![0; PAGE]; count];
        let mut counts = vec![0; count];
        let mut blocks = self.blocks.clone();
        for (index, (block, payload)) in (0..).zip(blocks.iter_mut().zip(&self.payloads)) {
            let file = &mut files[usize::from(block.stripe)];
            block.offset = file.len() as u64;
            let mut extent = payload.clone();
            extent.resize(usize::try_from(block.extent_bytes()).unwrap(), 0);
            block.checksum = checksum(index, &extent);
            file.extend_from_slice(&extent);
            counts[usize::from(block.stripe)] += 1;
        }
        edit(&mut blocks);
        let table = encode_table(&blocks);
        let table_offset = files[0].len() as u64;
        files[0].extend_from_slice(&table);
        let stripe = |(index, mut bytes): (usize, Vec<u8>)| {
            let index = u16::try_from(index).unwrap();
            let header = StripeHeader {
                identity: self.description.identity,
                set_id: self.description.id(),
                index,
                count: u16::try_from(count).unwrap(),
                stripe_blocks: counts[usize::from(index)],
                block_bytes: self.description.block_bytes,
                block_count: u32::try_from(blocks.len()).unwrap(),
                table_offset: if index == 0 { table_offset } else { 0 },
                table_hash: table_hash(&table),
                file_bytes: bytes.len() as u64,
            };
            bytes[..PAGE].copy_from_slice(&header.encode());
            let name = stripe_file_name(index, u16::try_from(count).unwrap());
            MemoryFile::new(format!("disk{index}/{name}"), bytes)
        };
        files.into_iter().enumerate().map(stripe).collect()
    }

    fn files(&self) -> Vec<MemoryFile> {
        self.files_with(|_| ())
    }
}

fn open(files: &[MemoryFile]) -> Result<PackedTrunk, FormatError> {
    let views: Vec<&dyn ReadAt> = files.iter().map(|file| file as &dyn ReadAt).collect();
    PackedTrunk::open(&views, &IDENTITY)
}

/// Opens the set and checks every block of it.
fn check(files: &[MemoryFile]) -> Result<PackedTrunk, FormatError> {
    let trunk = open(files)?;
    for (index, block) in (0..).zip(trunk.blocks()) {
        let file = &files[trunk.file_index(block.stripe)];
        let mut extent = vec![0; usize::try_from(block.extent_bytes()).unwrap()];
        file.read_exact_at(block.offset, &mut extent)?;
        trunk.check_block(index, &extent, file.label())?;
    }
    Ok(trunk)
}

/// The fault, which the message places in `file`.
fn fault(result: Result<PackedTrunk, FormatError>) -> (String, u64, TrunkFault) {
    match result {
        Err(FormatError::Trunk {
            path,
            offset,
            fault,
        }) => (path.display().to_string(), offset, *fault),
        other => panic!("no fault of a trunk: {other:?}"),
    }
}

fn edited(file: &MemoryFile, edit: impl FnOnce(&mut Vec<u8>)) -> MemoryFile {
    let mut bytes = file.bytes().to_vec();
    edit(&mut bytes);
    MemoryFile::new(file.label(), bytes)
}

#[test]
fn a_whole_set_is_read_in_any_order() {
    let set = Set::new(&[2, 1, 1], 13, 0);
    let mut files = set.files();
    files.rotate_left(1);
    let trunk = check(&files).unwrap();
    assert_eq!(trunk.stripe_count(), 3);
    assert_eq!(trunk.block_bytes(), 12_000);
    assert_eq!(trunk.set_id(), &set.description.id());
    assert_eq!(trunk.file_index(0), 2);
    for (index, (found, made)) in (0..).zip(trunk.blocks().iter().zip(&set.blocks)) {
        assert_eq!(found.source_offset, made.source_offset);
        assert_eq!(found.codec, made.codec);
        assert_eq!(trunk.find(1, made.source_offset), Some(index));
        assert_eq!(trunk.find(1, made.source_offset + 1), None);
    }
    assert_eq!(trunk.find(0, 77), None);
    // A stripe may have nothing to hold.
    check(&Set::new(&[1, 1, 1], 2, 0).files()).unwrap();
    check(&Set::new(&[1], 1, 0).files()).unwrap();
}

#[test]
fn every_flipped_byte_is_refused_with_its_place() {
    let files = Set::new(&[1, 1], 5, 0).files();
    let mut shown = 0;
    for place in 0..files.len() {
        let mut bytes = files[place].bytes().to_vec();
        for at in 0..bytes.len() {
            let flip = 1 << (at % 8);
            bytes[at] ^= flip;
            let mut all = files.clone();
            all[place] = MemoryFile::new(files[place].label(), bytes.clone());
            bytes[at] ^= flip;
            let (path, offset, fault) = fault(check(&all));
            // Within the part that was changed: header, table, or block.
            assert_eq!(path, files[place].label().display().to_string());
            shown += u32::from(shows_both_checksums(&fault));
            match fault {
                TrunkFault::BlockDamaged { bytes, .. } => {
                    assert!((offset..offset + bytes).contains(&(at as u64)), "{at}");
                }
                TrunkFault::TableDamaged { .. } => assert!(at as u64 >= offset, "{at}: {offset}"),
                _ => assert!(at < PAGE && offset < PAGE as u64, "{at}: {fault}"),
            }
        }
    }
    assert!(shown > 200, "{shown}");
}

/// Whether a header or a table is told to be damaged: with the hash that it has and the
/// one that it should have.
fn shows_both_checksums(fault: &TrunkFault) -> bool {
    let (TrunkFault::HeaderDamaged { expected, found }
    | TrunkFault::TableDamaged {
        expected, found, ..
    }) = fault
    else {
        return false;
    };
    let hex = |hash: &[u8; 32]| -> String {
        let half = hash[..16].iter();
        half.map(|byte| format!("{byte:02x}")).collect()
    };
    let said = format!("({} instead of {})", hex(found), hex(expected));
    assert_ne!(expected, found);
    assert!(fault.to_string().contains(&said), "{fault}");
    true
}

#[test]
fn a_set_that_is_cut_or_longer_is_refused() {
    let files = Set::new(&[1, 1], 5, 0).files();
    for place in 0..files.len() {
        let whole = files[place].bytes().len();
        let lengths = (0..whole)
            .step_by(97)
            .chain([PAGE - 1, PAGE, whole - 1, whole + 1]);
        for length in lengths {
            let mut all = files.clone();
            all[place] = edited(&files[place], |bytes| bytes.resize(length, 0));
            let (path, _, fault) = fault(check(&all));
            assert_eq!(path, files[place].label().display().to_string());
            let wanted = if length < PAGE {
                "fewer than"
            } else {
                "cut short or"
            };
            assert!(fault.to_string().contains(wanted), "{length}: {fault}");
        }
    }
}

#[test]
fn blocks_that_changed_places_are_noticed() {
    // Blocks 0 and 2 have the same length, so the files stay whole.
    let mut set = Set::new(&[1], 4, 0);
    set.payloads[2] = set.payloads[0].clone();
    let files = set.files();
    check(&files).unwrap();
    let other = Set::new(&[1], 4, 0).files();
    let [a, b] = [0, 2].map(|index| {
        let block = open(&other).unwrap().blocks()[index];
        usize::try_from(block.offset).unwrap()
    });
    let swapped = edited(&other[0], |bytes| {
        let (left, right) = bytes.split_at_mut(b);
        left[a..a + 3 * PAGE].swap_with_slice(&mut right[..3 * PAGE]);
    });
    let (_, offset, fault) = fault(check(&[swapped]));
    assert!(
        matches!(fault, TrunkFault::BlockDamaged { block: 0, .. }),
        "{fault}"
    );
    assert_eq!(offset, a as u64);
}

#[test]
fn sets_that_do_not_belong_together_are_refused() {
    let files = Set::new(&[1, 1], 6, 0).files();
    // The same plan over other weights: only the table tells.
    let reseeded = Set::new(&[1, 1], 6, 9).files();
    let replanned = Set::new(&[2, 1], 6, 0).files();
    for other in [&reseeded, &replanned] {
        for (a, b) in [(&files[0], &other[1]), (&other[0], &files[1])] {
            let (path, offset, fault) = fault(open(&[a.clone(), b.clone()]));
            assert_eq!((path.as_str(), offset), (b.label().to_str().unwrap(), 48));
            let expected = a.label().to_path_buf();
            assert_eq!(fault, TrunkFault::OtherSet { other: expected });
        }
    }
    let (_, _, twice) = fault(open(&[files[0].clone(), files[0].clone()]));
    assert!(
        matches!(twice, TrunkFault::DuplicateStripe { index: 0, .. }),
        "{twice}"
    );
    for (given, lacking) in [(0, 1), (1, 0)] {
        let (_, _, fault) = fault(open(&files[given..=given]));
        let missing = vec![lacking];
        assert_eq!(fault, TrunkFault::MissingStripes { count: 2, missing });
    }
    assert_eq!(fault(open(&[])).2, TrunkFault::NoFiles);
}

#[test]
fn another_checkpoint_or_version_is_refused() {
    let mut set = Set::new(&[1], 3, 0);
    set.description.identity = Identity::from_bytes([1; 32]);
    let (_, offset, found) = fault(open(&set.files()));
    assert!(matches!(found, TrunkFault::Identity { .. }), "{found}");
    assert_eq!(offset, 16);
    assert!(found.to_string().contains("a5a5") && found.to_string().contains("0101"));
    let files = Set::new(&[1], 3, 0).files();
    let older = edited(&files[0], |bytes| {
        bytes[8] = 1;
        let hash = blake3::hash(&bytes[..4064]);
        bytes[4064..PAGE].copy_from_slice(hash.as_bytes());
    });
    let (_, offset, found) = fault(open(&[older]));
    assert_eq!(
        (offset, &found),
        (
            8,
            &TrunkFault::Version {
                found: 1,
                supported: 2
            }
        )
    );
    let shard = MemoryFile::new("model.safetensors", vec![b'{'; 2 * PAGE]);
    assert_eq!(fault(open(&[shard])).2, TrunkFault::Magic);
}

/// Rewrites fields of a header and its checksum.
fn forged(file: &MemoryFile, at: usize, value: &[u8]) -> MemoryFile {
    edited(file, |bytes| {
        bytes[at..at + value.len()].copy_from_slice(value);
        let hash = blake3::hash(&bytes[..4064]);
        bytes[4064..PAGE].copy_from_slice(hash.as_bytes());
    })
}

#[test]
fn headers_with_true_checksums_and_wrong_fields_are_refused() {
    let files = Set::new(&[1], 3, 0).files();
    let cases: [(usize, &[u8], &str); 11] = [
        (12, &[1], "flags"),
        (80, &[1, 0], "stripe"),
        (82, &[0, 0], "number of stripes"),
        (82, &[65, 0], "number of stripes"),
        (88, &[0; 8], "largest block"),
        (96, &[0; 4], "number of blocks"),
        (96, &[0xFF; 4], "number of blocks"),
        (104, &[0xFF; 8], "place of the table"),
        (112, &[0xFF; 8], "size of the table"),
        (160, &[1], "reserved"),
        (100, &[1], "reserved"),
    ];
    for (at, value, field) in cases {
        let (_, offset, found) = fault(open(&[forged(&files[0], at, value)]));
        assert!(found.to_string().contains(field), "{at}: {found}");
        assert_eq!(offset, at as u64);
    }
    let (_, _, found) = fault(open(&[forged(&files[0], 152, &[1])]));
    assert!(found.to_string().contains("place of the table"), "{found}");
    let (_, _, found) = fault(open(&[forged(&files[0], 84, &[9])]));
    let sum = matches!(
        found,
        TrunkFault::Entry {
            block: 2,
            fault: EntryFault::Sum {
                stated: 9,
                count: 3,
                ..
            }
        }
    );
    assert!(sum, "{found}");
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    type Edit = fn(&mut PackedBlock);
    let cases: [(Edit, &str); 15] = [
        (|block| block.row_count = 0, "not within a matrix"),
        (|block| block.row_start = u32::MAX, "not within a matrix"),
        (|block| block.row_total = 99, "not within a matrix"),
        (|block| block.raw_bytes += 1, "its rows take"),
        (|block| block.cols = u32::MAX, "its rows take"),
        (|block| block.dtype = Dtype::F32, "its rows take"),
        (|block| block.stored_bytes = 11_999, "are stored"),
        (|block| block.codec = Codec::Bf16X3, "are stored"),
        (|block| block.stripe = 2, "stripe 2 of 2"),
        (|block| block.offset += 4096, "instead of"),
        (|block| block.offset = 0, "instead of"),
        (|block| block.source_offset = u64::MAX, "no file can reach"),
        (|block| block.source_offset = 5, "no file can reach"),
        (
            |block| block.matrix_hash[31] ^= 1,
            "another hash of the matrix",
        ),
        (|block| block.source_offset += 12_000, "same source"),
    ];
    for (edit, wanted) in cases {
        let files = Set::new(&[1, 1], 6, 0).files_with(|blocks| edit(&mut blocks[2]));
        let (path, offset, found) = fault(open(&files));
        assert!(found.to_string().contains(wanted), "{wanted}: {found}");
        assert!(path.contains("disk0"), "{path}");
        let table = files[0].len_bytes() - 4096;
        let block = (offset - table) / 104;
        assert!(
            block == 2 || wanted == "same source" && block == 3,
            "{block}"
        );
    }
    // Unknown codes, and bytes that are reserved.
    for (at, wanted) in [
        (2, "element type"),
        (3, "codec"),
        (6, "reserved"),
        (6 * 104, "reserved"),
    ] {
        let files = Set::new(&[1], 6, 0).files();
        let table = files[0].bytes().len() - 4096;
        let bad = edited(&files[0], |bytes| {
            bytes[table + at] = 200;
            let hash = table_hash(&bytes[table..]);
            bytes[120..152].copy_from_slice(&hash);
            let hash = blake3::hash(&bytes[..4064]);
            bytes[4064..PAGE].copy_from_slice(hash.as_bytes());
        });
        let (_, _, found) = fault(open(&[bad]));
        assert!(found.to_string().contains(wanted), "{wanted}: {found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any piece of a set copied over any other is noticed, unless nothing changed.
    #[test]
    fn pieces_in_other_places_are_noticed(
        [from_file, to_file] in [0_usize..3, 0_usize..3],
        [from, to] in [0.0..1.0_f64, 0.0..1.0],
        length in 1_usize..20_000,
    ) {
        let files = Set::new(&[1, 2, 1], 9, 3).files();
        let at = |file: usize, fraction: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let at = (files[file].bytes().len() as f64 * fraction) as usize;
            at
        };
        let (from, to) = (at(from_file, from), at(to_file, to));
        let piece = &files[from_file].bytes()[from..];
        let room = files[to_file].bytes().len() - to;
        let piece = &piece[..length.min(piece.len()).min(room)];
        let mut all = files.clone();
        all[to_file] = edited(&files[to_file], |bytes| {
            bytes[to..to + piece.len()].copy_from_slice(piece);
        });
        let unchanged = all[to_file].bytes() == files[to_file].bytes();
        prop_assert_eq!(check(&all).is_ok(), unchanged);
    }
}
