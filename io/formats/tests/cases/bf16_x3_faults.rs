//! Payloads that no encoder writes are refused, and none panics.

use k3_formats::trunk::bf16_x3::{Bf16X3Error, decode, encode_any_size};
use proptest::prelude::*;

use super::bf16_x3::{Random, bytes};

const ROWS: usize = 3;
const COLS: usize = 75;
/// Where the areas begin.
const DICTIONARIES: usize = 4 * (ROWS + 1);
const CODES: usize = DICTIONARIES + 8 * ROWS;
const ROW_BYTES: usize = 11 * COLS.div_ceil(8);
const ESCAPES: usize = CODES + ROWS * ROW_BYTES;

/// Row 0 has escapes, row 1 two exponents, row 2 escapes again.
fn payload() -> (Vec<u8>, Vec<u8>) {
    let mut random = Random(7);
    let mut words = Vec::new();
    for row in 0..ROWS {
        for _ in 0..COLS {
            let kinds = if row == 1 { 2 } else { 12 };
            let exponent = 100 + random.below(kinds).min(random.below(kinds));
            let word = random.below(128) | random.below(2) << 15 | exponent << 7;
            words.push(u16::try_from(word).expect("16 bits"));
        }
    }
    let raw = bytes(&words);
    let mut payload = Vec::new();
    assert!(encode_any_size(&raw, ROWS, COLS, &mut payload));
    (raw, payload)
}

fn decoded(payload: &[u8]) -> Result<Vec<u8>, Bf16X3Error> {
    let mut out = vec![0; 2 * ROWS * COLS];
    decode(payload, ROWS, COLS, &mut out).map(|()| out)
}

/// One byte, changed in every way: refused, or the payload of other weights.
#[test]
fn every_changed_byte_is_refused_or_shows() {
    let (raw, payload) = payload();
    assert_eq!(decoded(&payload).as_deref(), Ok(&raw[..]));
    for at in 0..payload.len() {
        for flip in 1..=255_u8 {
            let mut changed = payload.clone();
            changed[at] ^= flip;
            match decoded(&changed) {
                Ok(found) => {
                    assert!(found != raw, "byte {at} ^ {flip:#04x} is not looked at");
                    let mut again = Vec::new();
                    assert!(encode_any_size(&found, ROWS, COLS, &mut again));
                    assert!(again == changed, "byte {at} ^ {flip:#04x}: no encoder's");
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            // What no weight reads must be refused.
            let is_fixed = at < DICTIONARIES || at >= payload.len() - 64;
            assert!(!is_fixed || decoded(&changed).is_err(), "{at}");
        }
    }
}

#[test]
fn every_other_length_is_refused() {
    let (_, payload) = payload();
    for len in 0..payload.len() {
        let error = decoded(&payload[..len]).unwrap_err();
        assert!(
            matches!(error, Bf16X3Error::Length { found, .. } if found == len),
            "{len}: {error}"
        );
    }
    let mut longer = payload.clone();
    longer.push(0);
    assert!(matches!(decoded(&longer), Err(Bf16X3Error::Length { .. })));
}

#[test]
fn each_fault_is_named_with_its_place() {
    let (_, payload) = payload();
    let with = |at: usize, value: u8| {
        let mut changed = payload.clone();
        changed[at] = value;
        decoded(&changed).unwrap_err()
    };
    // The directory's first entry, and a descent.
    let error = with(0, 1);
    assert!(
        matches!(
            error,
            Bf16X3Error::Directory {
                row: 0,
                start: 1,
                ..
            }
        ),
        "{error}"
    );
    let error = with(4, 255);
    assert!(
        matches!(
            error,
            Bf16X3Error::Directory {
                row: 1,
                start: 255,
                ..
            }
        ),
        "{error}"
    );
    // The marker; an entry twice; an infinity.
    for (place, value) in [(7, 254), (1, payload[DICTIONARIES + 2]), (0, 255)] {
        let error = with(DICTIONARIES + place, value);
        assert!(
            matches!(error, Bf16X3Error::Dictionary { row: 0, .. }),
            "{error}"
        );
    }
    // An unused entry of row 1.
    let error = with(DICTIONARIES + 8 + 6, 9);
    assert!(
        matches!(error, Bf16X3Error::Dictionary { row: 1, .. }),
        "{error}"
    );
    // Codes 2 of row 1, which has two exponents: 2, and what is left of others.
    let error = with(CODES + ROW_BYTES, 0b10);
    assert!(
        matches!(
            error,
            Bf16X3Error::UnusedCode {
                row: 1,
                col: 0,
                code: 2
            }
        ),
        "{error}"
    );
    // An escape less: code 7 of row 0 becomes another.
    let escape = (0..64).find(|j| {
        let bits = u32::from_le_bytes(payload[CODES + 3 * (j / 8)..][..4].try_into().unwrap());
        bits >> (3 * (j % 8)) & 7 == 7
    });
    let bit = 3 * escape.expect("an escape among 64");
    let at = CODES + bit / 8;
    let error = with(at, payload[at] ^ 1 << (bit % 8));
    assert!(
        matches!(error, Bf16X3Error::EscapeCount { row: 0, .. }),
        "{error}"
    );
    // An escape that the dictionary has.
    let error = with(ESCAPES, payload[DICTIONARIES]);
    assert!(
        matches!(error, Bf16X3Error::Escaped { row: 0, .. }),
        "{error}"
    );
    // The last low byte of row 0, beyond its columns; the tail.
    for offset in [CODES + ROW_BYTES - 1, payload.len() - 1] {
        let error = with(offset, 1);
        assert_eq!(error, Bf16X3Error::Padding { offset, found: 1 });
    }
    // Codes beyond the columns: 75 = 64 + 11, so bits 33..48 of the last group.
    let offset = CODES + 88 + 5;
    let error = with(offset, 0x80);
    assert_eq!(
        error,
        Bf16X3Error::Padding {
            offset,
            found: 0x80
        }
    );
}

/// The same weights in another way: the rarer of two exponents comes first.
#[test]
fn an_unordered_dictionary_is_refused() {
    let weights = bytes(&[0x3F80, 0xBFC0, 0x0000]);
    let mut payload = Vec::new();
    assert!(encode_any_size(&weights, 1, 3, &mut payload));
    payload[8..15].copy_from_slice(&[0, 0x7F, 0, 0, 0, 0, 0]);
    payload[16] = 0b001_001;
    let error = decode(&payload, 1, 3, &mut [0; 6]).unwrap_err();
    assert!(
        matches!(error, Bf16X3Error::Dictionary { row: 0, .. }),
        "{error}"
    );
}

proptest! {
    /// Anything at all, of any length: an error or a decoded block, no panic.
    #[test]
    fn arbitrary_bytes_are_an_error_or_decode(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        rows in 0_usize..6,
        cols in 0_usize..150,
    ) {
        let mut out = vec![0; 2 * rows * cols];
        let _ = decode(&noise, rows, cols, &mut out);
    }

    /// Several bytes changed at once, a piece cut out or repeated, another shape.
    #[test]
    fn mutated_payloads_are_an_error_or_decode(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        kept in any::<prop::sample::Index>(),
        (rows, cols) in prop_oneof![
            Just((ROWS, COLS)),
            Just((ROWS, COLS + 5)),
            Just((ROWS - 1, COLS)),
            (1_usize..5, 1_usize..90),
        ],
    ) {
        let (_, mut payload) = payload();
        for (at, value) in changes {
            let at = at.index(payload.len());
            payload[at] = value;
        }
        let mut out = vec![0; 2 * rows * cols];
        let _ = decode(&payload, rows, cols, &mut out);
        let (cut, kept) = (cut.index(payload.len()), kept.index(payload.len()));
        payload.drain(cut.min(kept)..cut.max(kept));
        let _ = decode(&payload, rows, cols, &mut out);
    }
}
