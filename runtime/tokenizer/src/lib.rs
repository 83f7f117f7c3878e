//! Text to ids and back.
#![forbid(unsafe_code)]
