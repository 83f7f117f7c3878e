//! Rank files: strictness and round trips.

use std::path::Path;

use k3_formats::{FormatError, RankFault, RankFile, write_ranks};

fn parse(bytes: &[u8]) -> Result<RankFile, FormatError> {
    RankFile::parse(Path::new("dir/tiktoken.model"), bytes)
}

fn bytes_and(extra: &[&[u8]]) -> Vec<Vec<u8>> {
    let single = (0..=u8::MAX).rev().map(|byte| vec![byte]);
    single
        .chain(extra.iter().map(|token| token.to_vec()))
        .collect()
}

fn text(tokens: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    write_ranks(&mut text, tokens.iter().map(Vec::as_slice)).unwrap();
    text
}

/// Fault, line and offset.
fn fault(bytes: &[u8]) -> (RankFault, u64, u64) {
    let error = parse(bytes).unwrap_err();
    assert!(
        error.to_string().contains("dir/tiktoken.model: line"),
        "{error}"
    );
    match error {
        FormatError::Rank {
            line,
            offset,
            fault,
            ..
        } => (fault, line, offset),
        other => panic!("{other}"),
    }
}

#[test]
fn a_vocabulary_round_trips() {
    let tokens = bytes_and(&[b"ab", b" the", "\u{4e2d}".as_bytes(), &[0; 256]]);
    let file = parse(&text(&tokens)).unwrap();
    assert_eq!(file.len(), 260);
    assert!(file.tokens().eq(tokens.iter().map(Vec::as_slice)));
    for (rank, token) in (0..).zip(&tokens) {
        assert_eq!(file.token(rank), Some(token.as_slice()));
    }
    assert_eq!(file.token(260), None);
    assert_eq!(file.token_bytes(), 256 + 2 + 4 + 3 + 256);
}

#[test]
fn each_fault_has_its_line_and_offset() {
    let good = text(&bytes_and(&[]));
    let end = good.len() as u64;
    let with = |line: &str| [good.as_slice(), line.as_bytes()].concat();
    for (line, expected) in [
        ("YWI=\n", RankFault::Form),
        ("\n", RankFault::Form),
        ("YWI= \n", RankFault::Form),
        ("YWI=  256\n", RankFault::Form),
        ("YWI= 256 \n", RankFault::Form),
        ("YWI= 256\r\n", RankFault::Form),
        ("YWI= +256\n", RankFault::Form),
        ("YWI= -1\n", RankFault::Form),
        (" 256\n", RankFault::EmptyToken),
        ("YWI 256\n", RankFault::Base64),
        ("YWJ= 256\n", RankFault::Base64),
        ("YW*= 256\n", RankFault::Base64),
        ("YWI= 256", RankFault::Unterminated),
        (
            "YWI= 257\n",
            RankFault::RankOrder {
                expected: 256,
                found: "257".into(),
            },
        ),
        (
            "YWI= 0256\n",
            RankFault::RankOrder {
                expected: 256,
                found: "0256".into(),
            },
        ),
        (
            "YWI= 255\n",
            RankFault::RankOrder {
                expected: 256,
                found: "255".into(),
            },
        ),
        (
            "YWI= 99999999999999999999999\n",
            RankFault::RankOrder {
                expected: 256,
                found: "99999999999999999999".into(),
            },
        ),
        (
            "YQ== 256\n",
            RankFault::DuplicateToken {
                first_rank: 255 - 97,
            },
        ),
    ] {
        assert_eq!(fault(&with(line)), (expected, 257, end), "{line:?}");
    }
}

#[test]
fn every_byte_needs_a_token() {
    let mut tokens = bytes_and(&[b"ab"]);
    tokens.retain(|token| token != &[9] && token != &[200]);
    let (kind, ..) = fault(&text(&tokens));
    assert_eq!(
        kind,
        RankFault::MissingByte {
            byte: 9,
            missing: 2
        }
    );
    let (kind, ..) = fault(b"");
    assert_eq!(
        kind,
        RankFault::MissingByte {
            byte: 0,
            missing: 256
        }
    );
}

#[test]
fn a_cut_file_is_refused_unless_it_ends_between_lines() {
    let whole = text(&bytes_and(&[b"ab", b"cd"]));
    let lines_end = text(&bytes_and(&[])).len();
    for length in 0..whole.len() {
        let is_prefix = length >= lines_end && whole[length - 1] == b'\n';
        assert_eq!(parse(&whole[..length]).is_ok(), is_prefix, "{length}");
    }
}
