//! Model mechanics per family, without I/O.
#![forbid(unsafe_code)]
