//! The safetensors container: eight bytes of header length, a JSON header, data.

pub mod writer;
