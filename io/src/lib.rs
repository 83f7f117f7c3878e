//! Bytes from files into caller-owned memory.

