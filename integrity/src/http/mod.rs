//! Requests over HTTP, and what may go wrong with them.
//!
//! | module | holds |
//! |---|---|
//! | `address` | addresses: where they lead, and how they are shown |
//! | `client` | one request with its redirects |
//! | `patient` | waiting, for as long as somebody wants to |
//! | `ranges` | whether an answer is the range that was asked for |
//! | `retry` | trying again, a bounded number of times |

mod address;
mod client;
mod patient;
mod ranges;
mod retry;

pub(crate) use address::{Address, encode_path, encode_segment};
pub(crate) use client::Answer;
pub use client::{Client, HttpSettings, Token};
pub(crate) use ranges::{RangeAnswer, range_answer};
pub(crate) use retry::Retry;
pub use retry::RetrySettings;

use std::time::Duration;

/// A request that failed. Addresses are shown without what follows a `?`: that
/// may be a signature.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection could not be made, or broke.
    #[error("{url}: {reason}")]
    Connection {
        /// What was asked for.
        url: String,
        /// What happened.
        reason: String,
    },
    /// An answer that says no.
    #[error(
        "{url}: the server answers {status}{}{}", after(*retry_after),
        hint(*status, sent_from.as_deref())
    )]
    Status {
        /// What was asked for.
        url: String,
        /// The code.
        status: u16,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
        /// The address that redirected to this other server, if one did.
        sent_from: Option<String>,
    },
    /// An answer that is not to the question.
    #[error("{url}: {reason}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A redirect that is not followed.
    #[error("{url}: {reason}")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Why not.
        reason: String,
    },
    /// An address that is none.
    #[error("{given:?}: {reason}")]
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The last of several tries.
    #[error("{last} (after {tries} tries without progress)")]
    Exhausted {
        /// How many.
        tries: u32,
        /// What went wrong with the last.
        last: Box<HttpError>,
    },
    /// The server asks for more patience than anybody has.
    #[error("{url}: the server asks to wait {} s; run the same command again then", wait.as_secs())]
    Patience {
        /// What was asked for.
        url: String,
        /// How long.
        wait: Duration,
    },
}

fn after(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| {
        format!(", to be asked again after {} s", wait.as_secs())
    })
}

/// What may help. Another server than the one asked never gets the token, and
/// what it refuses is not for who asked to mend.
fn hint(status: u16, sent_from: Option<&str>) -> String {
    match (status, sent_from) {
        (_, Some(from)) => format!("; {from} redirected there"),
        (401 | 403, None) => {
            "; if access needs a permission, put a token that has it into HF_TOKEN".to_owned()
        }
        (404, None) => "; check repository, revision and address".to_owned(),
        _ => String::new(),
    }
}

impl HttpError {
    /// A connection that broke, was silent for too long, or is not wanted any
    /// more.
    pub(crate) fn broken(address: &Address, error: &std::io::Error) -> Self {
        Self::Connection {
            url: address.to_string(),
            reason: error.to_string(),
        }
    }

    /// Whether another try may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Answer { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }

    /// How long the server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether other files may fare better: neither is the network gone nor has
    /// the server said that it will not have who asks.
    pub(crate) fn is_of_one_file(&self) -> bool {
        match self {
            Self::Exhausted { last, .. } => matches!(**last, Self::Answer { .. }),
            Self::Status {
                status, sent_from, ..
            } => sent_from.is_some() || !matches!(status, 401 | 403),
            Self::Connection { .. } | Self::Patience { .. } => false,
            _ => true,
        }
    }
}
