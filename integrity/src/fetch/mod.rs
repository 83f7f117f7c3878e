//! Downloading a snapshot.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | what is here already, and what is to come |
//! | `job` | one file: its parts, who has them, starting anew |
//! | `journal` | which parts of a file are on the disk |
//! | `run` | threads that take parts |
//! | `part` | one part, over as many answers as it takes |
//! | `finish` | the hash, and the name |

mod finish;
mod job;
mod journal;
mod part;
mod plan;
mod run;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::error::IntegrityError;
use crate::http::{Address, Client, HttpSettings, RetrySettings, Token};
use crate::hub::{Hub, HubFile};
use crate::pattern::Pattern;
use crate::watch::Watch;
use plan::Directory;

/// Where models are published unless told otherwise.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// The model this program is for.
pub const DEFAULT_REPO: &str = "moonshotai/Kimi-K3";
/// The branch that is current.
pub const DEFAULT_REVISION: &str = "main";

/// What to download, and how.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Address of the hub.
    pub endpoint: String,
    /// What proves who asks; goes to the hub alone.
    pub token: Option<Token>,
    /// Repository, `OWNER/NAME`.
    pub repo: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Where to put it.
    pub directory: PathBuf,
    /// Only files that match one of these, if there are any.
    pub include: Vec<Pattern>,
    /// But none that match one of these.
    pub exclude: Vec<Pattern>,
    /// Connections at once.
    pub parallel: usize,
    /// Bytes that are asked for at once.
    pub part_bytes: u64,
    /// Whether files that are recorded as complete are hashed again.
    pub recheck: bool,
    /// What is to stay free on the disk.
    pub reserve_bytes: u64,
    /// How long to wait.
    pub http: HttpSettings,
    /// How often to try.
    pub retry: RetrySettings,
}

impl FetchSettings {
    /// The default hub, and its model.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            token: None,
            repo: DEFAULT_REPO.to_owned(),
            revision: DEFAULT_REVISION.to_owned(),
            directory,
            include: Vec::new(),
            exclude: Vec::new(),
            parallel: 8,
            part_bytes: 64 << 20,
            recheck: false,
            reserve_bytes: 1 << 30,
            http: HttpSettings::default(),
            retry: RetrySettings::default(),
        }
    }

    fn selects(&self, path: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FetchSummary {
    /// The commit that is here now.
    pub commit: String,
    /// Files that were selected, and are here.
    pub file_count: usize,
    /// Their bytes.
    pub total_bytes: u64,
    /// Files that had been here.
    pub kept_count: usize,
    /// Bytes that came over the network.
    pub fetched_bytes: u64,
    /// Wall time.
    pub seconds: f64,
}

/// Downloads what is not here yet. What there is of a file when this ends, for
/// whatever reason, is kept and gone on with the next time.
///
/// # Errors
///
/// A hub that does not answer or refuses, too little space, a directory that
/// cannot be written, files whose hash is not the published one, and
/// [`IntegrityError::Interrupted`].
///
/// # Panics
///
/// When a setting that counts something is 0.
pub fn fetch(
    settings: &FetchSettings,
    watch: &Arc<dyn Watch>,
) -> Result<FetchSummary, IntegrityError> {
    assert!(settings.parallel > 0 && settings.part_bytes > 0);
    let started = Instant::now();
    let endpoint = Address::base(&settings.endpoint)?;
    let client = Client::new(
        &settings.http,
        Some(endpoint.clone()),
        settings.token.clone(),
    );
    let hub = Hub::new(endpoint, &settings.repo, client.clone(), settings.retry)?;
    let commit = hub.commit(&settings.revision, &**watch)?;
    let all = hub.files(&commit, &**watch)?;
    let mut files: Vec<HubFile> = all
        .iter()
        .filter(|file| settings.selects(&file.path))
        .cloned()
        .collect();
    if files.is_empty() {
        return Err(IntegrityError::NothingSelected {
            repo: settings.repo.clone(),
            count: all.len(),
        });
    }
    // What describes the model first: with it a plan can be made meanwhile.
    files.sort_by_key(|file| file.bytes > settings.part_bytes);
    let directory = Directory::open(settings, &commit, &**watch)?;
    let plan = directory.plan(&files, &all, settings, &hub, &**watch)?;
    let kept_count = files.len() - plan.jobs.len();
    let fetched_bytes = run::run(plan, settings, client, watch)?;
    Ok(FetchSummary {
        commit,
        file_count: files.len(),
        total_bytes: files.iter().map(|file| file.bytes).sum(),
        kept_count,
        fetched_bytes,
        seconds: started.elapsed().as_secs_f64(),
    })
}
