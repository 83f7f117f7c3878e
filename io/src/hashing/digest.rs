//! The two hashes that checkpoints are published and kept with.

use sha2::Digest as _;

/// Which hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// BLAKE3, of manifests.
    Blake3,
    /// SHA-256, of the model hub.
    Sha256,
}

/// A hash under way.
#[derive(Debug, Clone)]
pub struct Digest(State);

#[derive(Debug, Clone)]
enum State {
    Blake3(Box<blake3::Hasher>),
    Sha256(Box<sha2::Sha256>),
}

impl Digest {
    /// Nothing hashed yet.
    #[must_use]
    pub fn new(kind: HashKind) -> Self {
        Self(match kind {
            HashKind::Blake3 => State::Blake3(Box::default()),
            HashKind::Sha256 => State::Sha256(Box::default()),
        })
    }

    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Blake3(hasher) => {
                hasher.update(bytes);
            }
            State::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// The hash of all bytes.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        match self.0 {
            State::Blake3(hasher) => *hasher.finalize().as_bytes(),
            State::Sha256(hasher) => hasher.finalize().into(),
        }
    }
}
