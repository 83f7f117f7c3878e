//! How much a process may hold before the kernel ends it, and what says so.

use std::fmt;
use std::path::PathBuf;

use super::HostMemory;
use crate::bytes::Bytes;

/// The tightest of the memory available and every control group's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    /// What there is.
    pub bytes: Bytes,
    /// The group that says so; `None` for the machine as a whole.
    pub group: Option<GroupUse>,
}

/// A group's limit, and what is taken of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupUse {
    /// The file that states the limit.
    pub path: PathBuf,
    /// The limit.
    pub limit: Bytes,
    /// What counts as taken: page cache does not.
    pub in_use: Bytes,
}

impl Headroom {
    /// What decides: `MemAvailable`, or the path of the limit.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.group {
            Some(group) => group.path.display().to_string(),
            None => "MemAvailable".to_owned(),
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) if group.in_use > Bytes(0) => write!(
                f,
                "{} allows {}, and {} of it are in use",
                group.path.display(),
                group.limit,
                group.in_use
            ),
            Some(group) => write!(f, "{} allows {}", group.path.display(), group.limit),
            None => f.write_str("MemAvailable"),
        }
    }
}

impl HostMemory {
    /// What this process may hold altogether, what it already holds included:
    /// the memory available and `beside` it, or what a group's limit leaves,
    /// whichever is least. `None` where the kernel tells neither.
    ///
    /// A group's use is that of its other processes: a plan counts the own
    /// memory too, from its first page on, so it is not counted twice. Page
    /// cache gives way and does not count.
    #[must_use]
    pub fn headroom(&self, beside: Bytes) -> Option<Headroom> {
        self.least(beside, self.own_resident.unwrap_or(Bytes(0)))
    }

    /// What this process may take on top of what it holds. Swap space is room
    /// too: the question is whether a kernel ends the run, not how fast it is.
    #[must_use]
    pub fn room(&self) -> Option<Headroom> {
        self.least(self.swap_free.unwrap_or(Bytes(0)), Bytes(0))
    }

    fn least(&self, beside: Bytes, own: Bytes) -> Option<Headroom> {
        let machine = self.available.map(|available| Headroom {
            bytes: Bytes(available.0.saturating_add(beside.0)),
            group: None,
        });
        let groups = self.limits.iter().map(|limit| {
            let held = limit.held.unwrap_or(Bytes(0));
            let in_use = Bytes(held.0.saturating_sub(own.0));
            Headroom {
                bytes: Bytes(limit.bytes.0.saturating_sub(in_use.0)),
                group: Some(GroupUse {
                    path: limit.path.clone(),
                    limit: limit.bytes,
                    in_use,
                }),
            }
        });
        machine
            .into_iter()
            .chain(groups)
            .min_by_key(|room| room.bytes)
    }
}
