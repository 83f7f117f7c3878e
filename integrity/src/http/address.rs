//! Addresses: `http://HOST[:PORT]/PATH[?QUERY]`, or https.

use std::fmt;

use super::HttpError;

/// An address taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    is_secure: bool,
    /// Host and port, in lower case.
    authority: String,
    /// From the first slash on.
    path: String,
    /// With its question mark.
    query: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// [`HttpError::Address`] for anything that is none, or names a user.
    pub(crate) fn parse(given: &str) -> Result<Self, HttpError> {
        let fault = |reason| HttpError::Address {
            given: without_query(given).to_owned(),
            reason,
        };
        let (is_secure, rest) = if let Some(rest) = given.strip_prefix("https://") {
            (true, rest)
        } else if let Some(rest) = given.strip_prefix("http://") {
            (false, rest)
        } else {
            return Err(fault("an address begins with https:// or http://"));
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') {
            // Not shown: it may be a password.
            return Err(HttpError::Address {
                given: "(with a user)".to_owned(),
                reason: "a user in an address is not supported; use HF_TOKEN",
            });
        }
        if authority.is_empty() || !rest.is_ascii() || rest.contains(char::is_whitespace) {
            return Err(fault("this is no address"));
        }
        let is_host =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if !authority.chars().all(is_host) {
            return Err(fault("this is no host"));
        }
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        Ok(Self {
            is_secure,
            authority: authority.to_ascii_lowercase(),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            query: query.to_owned(),
        })
    }

    /// Reads the address of a place that has files, to which names are added.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`], and [`HttpError::Address`] with a query or a fragment:
    /// they could not be asked for with every file.
    pub(crate) fn base(given: &str) -> Result<Self, HttpError> {
        let address = Self::parse(given)?;
        if given.contains(['?', '#']) {
            return Err(HttpError::Address {
                given: address.to_string(),
                reason: "names are added to this address, so it ends before any ? or #",
            });
        }
        Ok(address)
    }

    /// Where a redirect from here leads.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; and from https nothing leads to http.
    pub(crate) fn redirect(&self, location: &str) -> Result<Self, HttpError> {
        let next = if location.starts_with("//") {
            let scheme = if self.is_secure { "https:" } else { "http:" };
            Self::parse(&format!("{scheme}{location}"))?
        } else if location.starts_with("http://") || location.starts_with("https://") {
            Self::parse(location)?
        } else {
            let path = if location.starts_with('/') {
                location.to_owned()
            } else {
                let parent = self.path.rsplit_once('/').map_or("", |(parent, _)| parent);
                format!("{parent}/{location}")
            };
            Self::parse(&format!("{}{path}", self.origin()))?
        };
        if self.is_secure && !next.is_secure {
            return Err(HttpError::Redirect {
                url: self.to_string(),
                reason: format!("redirects from https to {next}, which is not encrypted"),
            });
        }
        Ok(next)
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Whether both lead to the same server.
    pub(crate) fn same_origin(&self, other: &Self) -> bool {
        let port = |address: &Self| {
            let default = if address.is_secure { ":443" } else { ":80" };
            let authority = address.authority.strip_suffix(default);
            authority.unwrap_or(&address.authority).to_owned()
        };
        self.is_secure == other.is_secure && port(self) == port(other)
    }

    /// The address with `more` after its path; `more` is encoded already.
    pub(crate) fn join(&self, more: &str) -> Self {
        let path = self.path.trim_end_matches('/');
        Self {
            path: format!("{path}/{more}"),
            query: String::new(),
            ..self.clone()
        }
    }

    /// All of it, as it is sent.
    pub(crate) fn full(&self) -> String {
        format!("{}{}{}", self.origin(), self.path, self.query)
    }
}

/// Without the query.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin(), self.path)
    }
}

fn without_query(text: &str) -> &str {
    text.split('?').next().unwrap_or_default()
}

/// One part of a path, everything but letters, digits and `-._~` encoded.
pub(crate) fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A path, its slashes kept.
pub(crate) fn encode_path(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(encode_segment).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn addresses_are_taken_apart_and_put_together() {
        for text in ["http://a.b:8/c/d?e=f", "https://hub/", "http://[::1]:80/x"] {
            assert_eq!(parse(text).full(), text);
        }
        assert_eq!(parse("https://Hub.Example").full(), "https://hub.example/");
        assert_eq!(parse("https://h/a?Signature=s").to_string(), "https://h/a");
        assert_eq!(
            parse("http://h/a/").join("b%20c").full(),
            "http://h/a/b%20c"
        );
        for wrong in [
            "",
            "h/a",
            "ftp://h/",
            "https://",
            "http:///a",
            "http://h/a b",
            "https://h\u{e9}/",
        ] {
            Address::parse(wrong).unwrap_err();
        }
        let error = Address::parse("https://me:secret@h/")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
        let error = Address::parse("gopher://h/?sig=secret")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_place_of_files_has_no_query_and_shows_none() {
        assert_eq!(Address::base("http://h/a").unwrap(), parse("http://h/a"));
        for wrong in [
            "http://h/a?sig=secret",
            "http://h?secret",
            "http://h/#secret",
        ] {
            let said = Address::base(wrong).unwrap_err().to_string();
            assert!(
                said.contains("http://h") && !said.contains("secret"),
                "{said}"
            );
        }
        Address::base("http://me:secret@h/").unwrap_err();
    }

    #[test]
    fn redirects_are_relative_or_whole_and_never_lose_encryption() {
        let from = parse("https://hub/a/b?c");
        let to = |location: &str| from.redirect(location).unwrap().full();
        assert_eq!(to("/x?y"), "https://hub/x?y");
        assert_eq!(to("x"), "https://hub/a/x");
        assert_eq!(to("//cdn/x"), "https://cdn/x");
        assert_eq!(to("https://cdn/x#y"), "https://cdn/x");
        let error = from.redirect("http://cdn/x").unwrap_err();
        assert!(matches!(error, HttpError::Redirect { .. }), "{error}");
        assert_eq!(
            parse("http://a/").redirect("https://b/").unwrap().full(),
            "https://b/"
        );
    }

    #[test]
    fn origins_differ_by_scheme_host_and_port() {
        let hub = parse("https://hub/a");
        for same in ["https://hub/b", "https://HUB:443/", "https://hub"] {
            assert!(hub.same_origin(&parse(same)), "{same}");
        }
        for other in [
            "http://hub/",
            "https://hub:444/",
            "https://hub.evil/",
            "https://cdn.hub/",
        ] {
            assert!(!hub.same_origin(&parse(other)), "{other}");
        }
    }

    #[test]
    fn paths_are_encoded() {
        assert_eq!(encode_path("a b/c%?.json"), "a%20b/c%25%3F.json");
        assert_eq!(encode_segment("refs/pr/1"), "refs%2Fpr%2F1");
    }
}
