//! Fork and join over fixed threads: one body, run once for each index, each
//! index on a thread of its own.
//!
//! A sweep of a model forks some thousand times, often for ten microseconds of
//! arithmetic. So a fork costs one store for each thread and a join one
//! counter; threads look for work for a moment before they sleep, and nothing
//! is allocated.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`word`] | the atomic word everything waits on: the kernel's futex, or a model checker's |
//! | [`signal`] | one thread tells another that it may go on |
//! | [`fork_join`] | the protocol: who may touch the job when |
//! | [`pool`] | the threads, the panics and the one piece of unsafe code |
//!
//! # Invariants
//!
//! - `run` returns when every body has returned or panicked; not before, for
//!   the body lives on its caller's stack.
//! - An index always runs on the same thread: what a thread has in its caches
//!   is what it works on next.
//! - A thread that has found no work for its [`patience`](pool::Setup::patience)
//!   sleeps in the kernel and costs nothing.
//! - `run` within a body, or from two threads at once, never waits: the second
//!   runs its bodies itself, one after the other.

pub mod fork_join;
pub mod pool;
pub mod signal;
pub mod word;

pub use pool::{Pool, Setup, StartError};
