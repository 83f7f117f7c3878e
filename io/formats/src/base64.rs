//! Canonical base64 with padding, as rank files use it (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// No digit of the alphabet.
const INVALID: u8 = 0xff;

/// Value of each byte as a digit.
const VALUES: [u8; 256] = {
    let mut values = [INVALID; 256];
    let mut value = 0;
    while value < 64_u8 {
        values[ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// Appends the decoded bytes; `false` when `text` is not canonical base64.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    if !text.len().is_multiple_of(4) {
        return false;
    }
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return false;
    }
    for group in text[..text.len() - padding].chunks(4) {
        let mut bits = 0;
        for digit in group {
            let value = VALUES[usize::from(*digit)];
            if value == INVALID {
                return false;
            }
            bits = bits << 6 | u32::from(value);
        }
        // A short group has one or two bytes and unused low bits, which must be
        // zero: else two texts would mean the same token.
        let byte_count = group.len() * 6 / 8;
        bits <<= 6 * (4 - group.len());
        let bytes = bits.to_be_bytes();
        if bytes[1 + byte_count..].iter().any(|&byte| byte != 0) {
            return false;
        }
        out.extend_from_slice(&bytes[1..1 + byte_count]);
    }
    true
}

/// Appends the text of `bytes`.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..1 + group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for position in 0..4 {
            let digit = bits >> (18 - 6 * position) & 63;
            out.push(if position <= group.len() {
                ALPHABET[digit as usize]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The RFC's test vectors.
    const VECTORS: [(&str, &str); 7] = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ];

    #[test]
    fn the_published_vectors_hold_both_ways() {
        for (plain, coded) in VECTORS {
            let mut text = Vec::new();
            encode(plain.as_bytes(), &mut text);
            assert_eq!(text, coded.as_bytes());
            let mut bytes = Vec::new();
            assert!(decode(coded.as_bytes(), &mut bytes));
            assert_eq!(bytes, plain.as_bytes());
        }
    }

    #[test]
    fn every_other_text_is_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zg===", "====", "=", "Zh==", "Zm9=", "Zm8=Zm8=", "Z g=", "Zg=\n",
            "Zm9v=", "Zm-_", "====Zg==", "Zg=a",
        ] {
            assert!(!decode(text.as_bytes(), &mut Vec::new()), "{text:?}");
        }
    }

    #[test]
    fn all_pairs_of_bytes_round_trip() {
        for pair in 0..=u16::MAX {
            let mut text = Vec::new();
            encode(&pair.to_le_bytes(), &mut text);
            let mut bytes = Vec::new();
            assert!(decode(&text, &mut bytes));
            assert_eq!(bytes, pair.to_le_bytes());
        }
    }
}
