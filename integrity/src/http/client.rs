//! One request with its redirects.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use ureq::Agent;
use ureq::http::HeaderMap;
use ureq::http::header;

use super::patient::{self, Body, GoOn};
use super::retry::parse_retry_after;
use super::{Address, HttpError};

/// Bytes of a small body that are taken at once.
const SMALL_BYTES: usize = 16 << 10;
/// Redirects followed for one request.
const REDIRECTS_MAX: u32 = 10;

/// A secret that is shown nowhere.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token, if it is one: visible characters without blanks.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSettings {
    /// For a connection, its encryption included.
    pub connect: Duration,
    /// For an answer to begin.
    pub response: Duration,
    /// For more of an answer.
    pub stall: Duration,
    /// Whether the environment's proxies are used.
    pub proxies: bool,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            response: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            proxies: true,
        }
    }
}

/// Asks a server, and those it redirects to.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    /// The only server that gets the token.
    trusted: Option<Address>,
    token: Option<Token>,
}

/// An answer whose head has come.
pub(crate) struct Answer {
    /// 200, 206, …
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Where it came from, after redirects.
    pub(crate) address: Address,
    pub(crate) body: Body,
}

/// What comes before the body.
struct Head {
    status: u16,
    headers: HeaderMap,
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", self.status, self.address)
    }
}

impl Answer {
    /// A header that is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The stated length of the body.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.header(header::CONTENT_LENGTH.as_str())?
            .trim()
            .parse()
            .ok()
    }

    /// What the server calls this version of the content: strong tags only, a
    /// weak one does not promise the same bytes.
    pub(crate) fn etag(&self) -> Option<String> {
        let tag = self.header(header::ETAG.as_str())?;
        (!tag.starts_with("W/")).then(|| tag.to_owned())
    }

    /// All of a small body.
    ///
    /// # Errors
    ///
    /// A connection that breaks, and more than `limit` bytes.
    pub(crate) fn small_body(mut self, limit: u64, go_on: GoOn<'_>) -> Result<Vec<u8>, HttpError> {
        let stated = self.content_length();
        let url = self.address.to_string();
        let mut bytes = Vec::new();
        let mut buffer = vec![0; SMALL_BYTES];
        loop {
            let read = self.body.read(&mut buffer, go_on);
            let count = read.map_err(|error| HttpError::broken(&self.address, &error))?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..count]);
            if bytes.len() as u64 > limit {
                let reason = format!("an answer of more than {limit} bytes");
                return Err(HttpError::Answer { url, reason });
            }
        }
        let found = bytes.len() as u64;
        match stated {
            Some(stated) if stated != found => {
                let reason = format!("{found} bytes came of {stated} announced");
                Err(HttpError::Connection { url, reason })
            }
            _ => Ok(bytes),
        }
    }
}

impl Client {
    /// A client that gives `token` to the server of `trusted` alone.
    pub(crate) fn new(
        settings: &HttpSettings,
        trusted: Option<Address>,
        token: Option<Token>,
    ) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are followed here, where the token is known.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(settings.connect))
            .timeout_recv_response(Some(settings.response))
            .timeout_per_read(Some(settings.stall))
            .user_agent(concat!("k3/", env!("CARGO_PKG_VERSION")));
        if !settings.proxies {
            config = config.proxy(None);
        }
        Self {
            agent: config.build().into(),
            trusted,
            token,
        }
    }

    /// Asks for `address`, or the bytes from `range.0` up to `range.1` of it.
    ///
    /// # Errors
    ///
    /// No connection, redirects without end, and every status but 200 and 206.
    pub(crate) fn get(
        &self,
        address: &Address,
        range: Option<(u64, u64)>,
        go_on: GoOn<'_>,
    ) -> Result<Answer, HttpError> {
        let asked = address;
        let mut address = address.clone();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.ask_while(&address, range, go_on)?;
            match answer.status {
                200 | 206 => return Ok(answer),
                301 | 302 | 303 | 307 | 308 => {
                    let Some(location) = answer.header(header::LOCATION.as_str()) else {
                        let reason = "redirects without saying where to".to_owned();
                        let url = address.to_string();
                        return Err(HttpError::Redirect { url, reason });
                    };
                    address = address.redirect(location)?;
                }
                status => {
                    let retry_after = answer.header(header::RETRY_AFTER.as_str());
                    return Err(HttpError::Status {
                        url: address.to_string(),
                        status,
                        retry_after: retry_after.and_then(parse_retry_after),
                        sent_from: (!address.same_origin(asked)).then(|| asked.to_string()),
                    });
                }
            }
        }
        Err(HttpError::Redirect {
            url: address.to_string(),
            reason: format!("redirects more than {REDIRECTS_MAX} times"),
        })
    }

    fn ask_while(
        &self,
        address: &Address,
        range: Option<(u64, u64)>,
        go_on: GoOn<'_>,
    ) -> Result<Answer, HttpError> {
        let (client, at) = (self.clone(), address.clone());
        let asked = patient::ask(go_on, move || client.ask(&at, range));
        let (head, body) = asked.map_err(|error| HttpError::broken(address, &error))??;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            address: address.clone(),
            body,
        })
    }

    fn ask(
        &self,
        address: &Address,
        range: Option<(u64, u64)>,
    ) -> Result<(Head, Box<dyn Read + Send>), HttpError> {
        let mut request = self
            .agent
            .get(address.full())
            // Bytes are counted and compared: nothing may repack them.
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some((begin, end)) = range {
            request = request.header(header::RANGE, format!("bytes={begin}-{}", end - 1));
        }
        let is_trusted = |trusted: &Address| trusted.same_origin(address);
        if let Some(Token(token)) = &self.token
            && self.trusted.as_ref().is_some_and(is_trusted)
        {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| failure(address, &error))?;
        let (parts, body) = response.into_parts();
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(HttpError::Answer {
                url: address.to_string(),
                reason: "the answer is compressed, which was not asked for".to_owned(),
            });
        }
        let head = Head {
            status: parts.status.as_u16(),
            headers: parts.headers,
        };
        Ok((head, Box::new(body.into_reader())))
    }
}

fn failure(address: &Address, error: &ureq::Error) -> HttpError {
    let url = address.to_string();
    match error {
        // No other try makes these right.
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => HttpError::Address {
            given: url,
            reason: "this is no address",
        },
        other => HttpError::Connection {
            url,
            reason: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new(" hf_secret\n").unwrap();
        assert_eq!(token.0, "hf_secret");
        let client = Client::new(&HttpSettings::default(), None, Some(token));
        assert!(!format!("{client:?}").contains("secret"));
        for wrong in ["", "  ", "a b", "a\u{e9}", "a\nb"] {
            assert!(Token::new(wrong).is_none(), "{wrong:?}");
        }
    }
}
