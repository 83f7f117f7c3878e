//! Strict readers and writers of every file k3 touches.
#![forbid(unsafe_code)]
