//! Rank files (`tiktoken.model`): the tokens of a byte-pair vocabulary.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use crate::base64;
use crate::error::{FormatError, RankFault};

/// Longest rank file that is read. Kimi's has 2.8 MB.
pub const RANK_FILE_BYTES_MAX: u64 = 64 << 20;

/// The tokens of a vocabulary, numbered by rank from 0 without gaps.
///
/// Every single byte has a token, no token is empty and none stands twice, so
/// every text can be encoded and decoding is unambiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankFile {
    /// All tokens, one after another.
    arena: Vec<u8>,
    /// End of each token in the arena, by rank.
    ends: Vec<u32>,
}

impl RankFile {
    /// Reads lines of the form `base64 SPACE rank LF`; `label` is the path
    /// shown in messages.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLarge`] beyond [`RANK_FILE_BYTES_MAX`], else
    /// [`FormatError::Rank`] with line and offset of the first fault.
    pub fn parse(label: &Path, bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() as u64 > RANK_FILE_BYTES_MAX {
            return Err(FormatError::TooLarge {
                path: label.to_path_buf(),
                found_bytes: bytes.len() as u64,
                limit_bytes: RANK_FILE_BYTES_MAX,
            });
        }
        let mut file = Self {
            // Four base64 digits become at most three bytes.
            arena: Vec::with_capacity(bytes.len() / 4 * 3),
            ends: Vec::new(),
        };
        let mut offset = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            file.add_line(line).map_err(|fault| FormatError::Rank {
                path: label.to_path_buf(),
                line: file.ends.len() as u64 + 1,
                offset,
                fault,
            })?;
            offset += line.len() as u64;
        }
        file.check_tokens().map_err(|(rank, fault)| {
            let lines = bytes.split_inclusive(|&byte| byte == b'\n').take(rank);
            FormatError::Rank {
                path: label.to_path_buf(),
                line: rank as u64 + 1,
                offset: lines.map(|line| line.len() as u64).sum(),
                fault,
            }
        })?;
        file.arena.shrink_to_fit();
        Ok(file)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), RankFault> {
        let line = line.strip_suffix(b"\n").ok_or(RankFault::Unterminated)?;
        let space = line.iter().position(|&byte| byte == b' ');
        let (token, rank) = line.split_at(space.ok_or(RankFault::Form)?);
        let rank = &rank[1..];
        if token.is_empty() {
            return Err(RankFault::EmptyToken);
        }
        let expected = u32::try_from(self.ends.len()).map_err(|_| RankFault::TooMany)?;
        if rank != expected.to_string().as_bytes() {
            if rank.is_empty() || !rank.iter().all(u8::is_ascii_digit) {
                return Err(RankFault::Form);
            }
            let found = rank.iter().take(20).map(|&byte| char::from(byte)).collect();
            return Err(RankFault::RankOrder { expected, found });
        }
        if !base64::decode(token, &mut self.arena) {
            return Err(RankFault::Base64);
        }
        let end = u32::try_from(self.arena.len()).map_err(|_| RankFault::TooMany)?;
        self.ends.push(end);
        Ok(())
    }

    /// Looks for tokens that stand twice and for bytes without one. A fault
    /// comes with the rank of the line to blame.
    fn check_tokens(&self) -> Result<(), (usize, RankFault)> {
        let mut ranks: HashMap<&[u8], u32> = HashMap::with_capacity(self.len());
        for (rank, token) in (0..).zip(self.tokens()) {
            if let Some(first_rank) = ranks.insert(token, rank) {
                return Err((rank as usize, RankFault::DuplicateToken { first_rank }));
            }
        }
        let absent = |byte: &u8| !ranks.contains_key(std::slice::from_ref(byte));
        if let Some(byte) = (0..=u8::MAX).find(absent) {
            let missing = (0..=u8::MAX).filter(absent).map(|_| 1).sum();
            return Err((self.len(), RankFault::MissingByte { byte, missing }));
        }
        Ok(())
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no tokens: never so for a file that was read.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of the token with this rank.
    pub fn token(&self, rank: u32) -> Option<&[u8]> {
        let rank = rank as usize;
        let end = *self.ends.get(rank)? as usize;
        let start = match rank.checked_sub(1) {
            Some(previous) => self.ends[previous] as usize,
            None => 0,
        };
        Some(&self.arena[start..end])
    }

    /// The tokens by rank.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let token = &self.arena[start..end as usize];
            start = end as usize;
            token
        })
    }

    /// Bytes of all tokens together.
    pub fn token_bytes(&self) -> usize {
        self.arena.len()
    }
}

/// Writes a rank file; the tokens' ranks are their positions.
///
/// # Errors
///
/// Those of `out`.
pub fn write_ranks<'a, W: Write>(
    mut out: W,
    tokens: impl IntoIterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut line = Vec::new();
    for (rank, token) in tokens.into_iter().enumerate() {
        line.clear();
        base64::encode(token, &mut line);
        writeln!(line, " {rank}")?;
        out.write_all(&line)?;
    }
    out.flush()
}
