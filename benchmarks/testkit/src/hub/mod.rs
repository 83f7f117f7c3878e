//! A model hub on loopback that can be told to misbehave.
//!
//! It speaks as much of a hub's interface as a download needs: a revision's
//! commit, the list of files in pages, and the files, with ranges. Large files
//! may be redirected to another server. Each connection has its thread.

mod connection;
mod fault;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sha1::Digest as _;

use crate::tiny::FileImage;

pub use fault::HubFault;

/// The commit that every hub here has.
pub const HUB_COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// The repository that every hub here has.
pub const HUB_REPO: &str = "tests/tiny";
/// Its other name: what is fetched when no repository is named.
const DEFAULT_REPO: &str = "moonshotai/Kimi-K3";

/// A request and the answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// What was asked for, query included.
    pub target: String,
    /// Which bytes of it: first and last.
    pub range: Option<(u64, u64)>,
    /// `Authorization`, as it was sent.
    pub authorization: Option<String>,
    /// The answer's code; 0 when the connection was dropped without one.
    pub status: u16,
    /// Bytes of a file that were sent.
    pub body_bytes: u64,
}

/// A server; it stops when this is dropped.
#[derive(Debug)]
pub struct Hub {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Stored>,
    faults: Vec<Armed>,
    log: Vec<Exchange>,
    /// Where large files are redirected to.
    redirect: Option<String>,
    /// Token that is asked for.
    token: Option<String>,
    /// Files of one page of the list.
    page: usize,
    /// Requests being answered.
    busy: usize,
}

/// A file and the name of its version.
#[derive(Debug, Clone)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    /// What the list says of it: `None` when nothing was changed since.
    listed: Arc<Vec<u8>>,
    /// The length that the list tells, if it is not that of the bytes.
    claimed_bytes: Option<u64>,
    version: u32,
}

/// A fault that waits for its request.
#[derive(Debug)]
struct Armed {
    name: String,
    /// Requests that pass before.
    after: usize,
    times: usize,
    fault: HubFault,
}

impl Hub {
    /// Serves `files` as [`HUB_REPO`] at [`HUB_COMMIT`], also as branch `main`.
    ///
    /// # Panics
    ///
    /// When loopback has no free port.
    #[must_use]
    pub fn start(files: &[FileImage]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let state = State {
            files: files
                .iter()
                .map(|file| (file.name.clone(), Stored::new(&file.bytes)))
                .collect(),
            page: 5,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            stopped: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if theirs.stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&theirs);
                std::thread::spawn(move || connection::serve(stream, &shared));
            }
        });
        Self {
            address,
            shared,
            thread: Some(thread),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// The address that HF_ENDPOINT would have.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address below which the files lie.
    #[must_use]
    pub fn files_address(&self) -> String {
        format!("{}/{HUB_REPO}/resolve/{HUB_COMMIT}", self.endpoint())
    }

    /// Answers the next `times` requests for files whose name ends with `name`
    /// with `fault`, after the first `after`.
    pub fn misbehave(&self, name: &str, after: usize, times: usize, fault: HubFault) {
        self.state().faults.push(Armed {
            name: name.to_owned(),
            after,
            times,
            fault,
        });
    }

    /// Whether every fault has been asked for.
    #[must_use]
    pub fn all_faults_done(&self) -> bool {
        self.state().faults.iter().all(|armed| armed.times == 0)
    }

    /// Redirects large files to another hub, as hubs do.
    pub fn redirect_to(&self, other: &Self) {
        self.redirect_to_address(&other.files_address());
    }

    /// The same, to whatever lies below `address`.
    pub fn redirect_to_address(&self, address: &str) {
        self.state().redirect = Some(address.to_owned());
    }

    /// Asks for a token.
    pub fn require_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Serves other bytes for a file; the list still tells of the former.
    ///
    /// # Panics
    ///
    /// When there is no such file.
    pub fn change(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let stored = state.files.get_mut(name).expect("a file of the hub");
        stored.bytes = Arc::new(bytes);
        stored.version += 1;
    }

    /// The list says that a file has `bytes` bytes.
    ///
    /// # Panics
    ///
    /// When there is no such file.
    pub fn claim(&self, name: &str, bytes: u64) {
        let mut state = self.state();
        let stored = state.files.get_mut(name).expect("a file of the hub");
        stored.claimed_bytes = Some(bytes);
    }

    /// Publishes other bytes for a file, in the list too.
    pub fn publish(&self, name: &str, bytes: &[u8]) {
        self.state()
            .files
            .insert(name.to_owned(), Stored::new(bytes));
    }

    /// All requests so far, once those being answered are.
    #[must_use]
    pub fn log(&self) -> Vec<Exchange> {
        for _ in 0..2000 {
            let state = self.state();
            if state.busy == 0 {
                return state.log.clone();
            }
            drop(state);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.state().log.clone()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.state().log.clear();
    }

    /// Bytes of files sent so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.log().iter().map(|exchange| exchange.body_bytes).sum()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn new(bytes: &[u8]) -> Self {
        let bytes = Arc::new(bytes.to_vec());
        Self {
            listed: Arc::clone(&bytes),
            claimed_bytes: None,
            bytes,
            version: 0,
        }
    }
}

impl State {
    /// The fault that the next request for `name` gets.
    fn fault(&mut self, name: &str) -> Option<HubFault> {
        for armed in &mut self.faults {
            if armed.times == 0 || !name.ends_with(&armed.name) {
                continue;
            }
            if armed.after > 0 {
                armed.after -= 1;
                continue;
            }
            armed.times -= 1;
            return Some(armed.fault.clone());
        }
        None
    }

    /// Entries `start..` of the list of files, as JSON, and where it goes on.
    fn tree(&self, start: usize) -> (String, Option<usize>) {
        let entries: Vec<serde_json::Value> = self
            .files
            .iter()
            .skip(start)
            .take(self.page)
            .map(|(name, stored)| entry(name, stored))
            .collect();
        let next = start + entries.len();
        let more = (next < self.files.len()).then_some(next);
        (serde_json::Value::Array(entries).to_string(), more)
    }
}

/// Whether a hub keeps a file apart, known by its SHA-256.
fn is_large(name: &str) -> bool {
    name.ends_with(".safetensors") || name.ends_with(".model")
}

fn entry(name: &str, stored: &Stored) -> serde_json::Value {
    let bytes = stored.listed.as_slice();
    let size = stored.claimed_bytes.unwrap_or(bytes.len() as u64);
    let mut blob = sha1::Sha1::new();
    let digits =
        |hash: &[u8]| -> String { hash.iter().map(|byte| format!("{byte:02x}")).collect() };
    if !is_large(name) {
        blob.update(format!("blob {}\0", bytes.len()));
        blob.update(bytes);
        let oid = digits(&blob.finalize());
        return serde_json::json!({"type": "file", "oid": oid, "size": size, "path": name});
    }
    let sha256 = digits(&sha2::Sha256::digest(bytes));
    let pointer = format!("oid sha256:{sha256}");
    blob.update(&pointer);
    serde_json::json!({
        "type": "file", "oid": digits(&blob.finalize()), "size": size, "path": name,
        "lfs": {"oid": sha256, "size": size, "pointerSize": pointer.len()},
    })
}
