//! What a model hub says about a repository.

use serde::Deserialize;

use crate::error::IntegrityError;
use crate::http::{Address, Client, Retry, RetrySettings, encode_path, encode_segment};
use crate::record::{is_relative, parse_sha256};
use crate::watch::Watch;

/// Longest answer about a repository that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Pages of a list of files.
const PAGES_MAX: usize = 1000;
/// Files of a repository.
const FILES_MAX: usize = 1 << 20;

/// What a file's content is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentId {
    /// SHA-256 of the content: large files.
    Sha256([u8; 32]),
    /// Id of the git object, SHA-1 over a header and the content: small files.
    GitBlob([u8; 20]),
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    /// Path inside the repository.
    pub path: String,
    /// Length.
    pub bytes: u64,
    /// What its content is known by.
    pub id: ContentId,
}

impl ContentId {
    /// In hexadecimal.
    pub fn hex(&self) -> String {
        let bytes: &[u8] = match self {
            Self::Sha256(hash) => hash,
            Self::GitBlob(hash) => hash,
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A repository of a hub.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    endpoint: Address,
    repo: String,
    client: Client,
    retry: RetrySettings,
}

#[derive(Deserialize)]
struct RevisionAnswer {
    sha: String,
}

#[derive(Deserialize)]
struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl Hub {
    /// The repository `repo` (`OWNER/NAME`) of the hub at `endpoint`.
    ///
    /// # Errors
    ///
    /// A name that is none.
    pub(crate) fn new(
        endpoint: Address,
        repo: &str,
        client: Client,
        retry: RetrySettings,
    ) -> Result<Self, IntegrityError> {
        let is_name = |name: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !name.is_empty() && name.len() <= 96 && name.chars().all(fits) && !name.starts_with('.')
        };
        match repo.split_once('/') {
            Some((owner, name)) if is_name(owner) && is_name(name) => Ok(Self {
                endpoint,
                repo: repo.to_owned(),
                client,
                retry,
            }),
            _ => Err(IntegrityError::Unusable {
                what: "repository",
                given: repo.to_owned(),
                reason: "a repository is OWNER/NAME, as in moonshotai/Kimi-K3".to_owned(),
            }),
        }
    }

    /// The commit that a branch, tag or commit stands for.
    ///
    /// # Errors
    ///
    /// No such revision, a refusal, or an answer that names no commit.
    pub(crate) fn commit(
        &self,
        revision: &str,
        watch: &dyn Watch,
    ) -> Result<String, IntegrityError> {
        let path = format!(
            "api/models/{}/revision/{}",
            self.repo,
            encode_segment(revision)
        );
        let address = self.endpoint.join(&path);
        let (bytes, _) = self.ask(&address, watch)?;
        let answer: RevisionAnswer = self.parse(&address, &bytes)?;
        let is_commit =
            answer.sha.len() == 40 && answer.sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_commit {
            let reason = format!("names {:?} instead of a commit", answer.sha);
            return Err(hub_fault(&address, reason));
        }
        Ok(answer.sha.to_ascii_lowercase())
    }

    /// The files of a commit, by path.
    ///
    /// # Errors
    ///
    /// A refusal, and answers that are no list of files.
    pub(crate) fn files(
        &self,
        commit: &str,
        watch: &dyn Watch,
    ) -> Result<Vec<HubFile>, IntegrityError> {
        let path = format!("api/models/{}/tree/{commit}", self.repo);
        let start = self.endpoint.join(&path);
        let mut next = Some(Address::parse(&format!("{}?recursive=true", start.full()))?);
        let mut files = Vec::new();
        let mut pages = 0;
        while let Some(address) = next {
            pages += 1;
            if pages > PAGES_MAX || files.len() > FILES_MAX {
                return Err(hub_fault(&start, "lists files without end".to_owned()));
            }
            let (bytes, link) = self.ask(&address, watch)?;
            let entries: Vec<TreeEntry> = self.parse(&address, &bytes)?;
            for entry in entries.into_iter().filter(|entry| entry.kind == "file") {
                files.push(self.file(&address, entry)?);
            }
            next = link.map(|link| address.redirect(&link)).transpose()?;
            if let Some(next) = &next
                && !next.same_origin(&self.endpoint)
            {
                return Err(hub_fault(&start, format!("continues its list at {next}")));
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        match files.windows(2).find(|pair| pair[0].path == pair[1].path) {
            Some(pair) => Err(hub_fault(&start, format!("lists {:?} twice", pair[0].path))),
            None => Ok(files),
        }
    }

    fn file(&self, address: &Address, entry: TreeEntry) -> Result<HubFile, IntegrityError> {
        let fault = |reason| hub_fault(address, format!("file {:?}: {reason}", entry.path));
        if !is_relative(&entry.path) {
            return Err(fault("its path leads outside the repository"));
        }
        let (bytes, id) = match &entry.lfs {
            Some(large) => {
                let digits = large.oid.strip_prefix("sha256:").unwrap_or(&large.oid);
                let hash = parse_sha256(digits).ok_or_else(|| fault("has no SHA-256"))?;
                (large.size, ContentId::Sha256(hash))
            }
            None => {
                let hash = parse_sha1(&entry.oid).ok_or_else(|| fault("has no object id"))?;
                (entry.size, ContentId::GitBlob(hash))
            }
        };
        Ok(HubFile {
            path: entry.path,
            bytes,
            id,
        })
    }

    /// Where a file of a commit is.
    pub(crate) fn file_address(&self, commit: &str, path: &str) -> Address {
        let path = format!("{}/resolve/{commit}/{}", self.repo, encode_path(path));
        self.endpoint.join(&path)
    }

    /// An answer's bytes, and where the list it is part of goes on.
    fn ask(
        &self,
        address: &Address,
        watch: &dyn Watch,
    ) -> Result<(Vec<u8>, Option<String>), IntegrityError> {
        let mut retry = Retry::new(&self.retry);
        loop {
            let go_on = || watch.go_on();
            let asked = self.client.get(address, None, &go_on).and_then(|answer| {
                let link = answer.header("link").and_then(next_link);
                Ok((answer.small_body(ANSWER_BYTES_MAX, &go_on)?, link))
            });
            match asked {
                Ok(answer) => return Ok(answer),
                Err(error) => retry.failed(error, watch)?,
            }
        }
    }

    fn parse<'de, T: Deserialize<'de>>(
        &self,
        address: &Address,
        bytes: &'de [u8],
    ) -> Result<T, IntegrityError> {
        serde_json::from_slice(bytes).map_err(|error| hub_fault(address, error.to_string()))
    }
}

fn hub_fault(address: &Address, reason: String) -> IntegrityError {
    IntegrityError::Hub {
        url: address.to_string(),
        reason,
    }
}

/// The address after which a `Link` header has `rel="next"`.
fn next_link(header: &str) -> Option<String> {
    header.split(',').find_map(|link| {
        let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = rest
            .split(';')
            .any(|part| matches!(part.trim(), "rel=\"next\"" | "rel=next"));
        is_next.then(|| address.to_owned())
    })
}

fn parse_sha1(text: &str) -> Option<[u8; 20]> {
    // The first digits of a SHA-256, if the rest is filled up.
    let padded = format!("{text}{}", "0".repeat(64_usize.checked_sub(text.len())?));
    let hash = parse_sha256(&padded)?;
    (text.len() == 40).then(|| hash[..20].try_into().expect("twenty bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpSettings;

    #[test]
    fn repositories_have_an_owner_and_a_name() {
        let new = |repo: &str| {
            let client = Client::new(&HttpSettings::default(), None, None);
            let endpoint = Address::parse("http://hub").unwrap();
            Hub::new(endpoint, repo, client, RetrySettings::default())
        };
        let hub = new("moonshotai/Kimi-K3").unwrap();
        assert_eq!(
            hub.file_address("c0ffee", "a b/c.json").full(),
            "http://hub/moonshotai/Kimi-K3/resolve/c0ffee/a%20b/c.json"
        );
        for wrong in ["", "a", "a/b/c", "../x", "a/..", "a/ b", "/b", "a/"] {
            let error = new(wrong).unwrap_err();
            assert!(matches!(error, IntegrityError::Unusable { .. }), "{error}");
        }
    }

    #[test]
    fn ids_are_digits_and_links_have_relations() {
        assert_eq!(parse_sha1(&"0a".repeat(20)), Some([10; 20]));
        for wrong in [
            "",
            "0a",
            &"0a".repeat(21),
            &"0g".repeat(20),
            &"0a".repeat(33),
        ] {
            assert_eq!(parse_sha1(wrong), None, "{wrong}");
        }
        let header = "<http://h/a>; rel=\"first\", <http://h/b?c=1>; rel=\"next\"";
        assert_eq!(next_link(header).as_deref(), Some("http://h/b?c=1"));
        assert_eq!(next_link("<http://h/a>; rel=\"prev\""), None);
        assert_eq!(next_link("nonsense"), None);
    }
}
