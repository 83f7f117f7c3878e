//! Requests from any thread, run on one.
//!
//! The thread that computes owns the [`Scheduler`](k3_runtime::Scheduler) and serves a mailbox
//! ([`serve`]); everybody else has a [`SchedulerHandle`]. Requests go down,
//! events come up, and nobody waits for anybody: a request that finds the queue
//! full is handed back, and events wait in a channel of the request's own, whose
//! length is bounded by what the request can bring about.
//!
//! | queue | bound |
//! |---|---|
//! | mailbox | `queue_max` of the scheduler's settings, those included that wait inside it |
//! | events of a request | per choice: its tokens, its prompt's rows and two more |

mod handle;
mod serve;

pub use handle::{Answer, SchedulerHandle};
pub use serve::{Mailbox, serve};
