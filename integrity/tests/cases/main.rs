//! Fetch, verify and repair against a hub on loopback that misbehaves.

mod check;
mod faults;
mod fetch;
mod repair;
mod silence;
mod support;
