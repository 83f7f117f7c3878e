//! Who owns which memory, and when bytes move.
#![forbid(unsafe_code)]
