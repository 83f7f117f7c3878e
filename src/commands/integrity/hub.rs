//! What the environment says about the hub.

use std::env::{self, VarError};

use k3_integrity::fetch::DEFAULT_ENDPOINT;
use k3_integrity::http::Token;

use crate::error::CliError;

/// Variable that names the hub.
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
/// Variable that holds the token.
const TOKEN_VARIABLE: &str = "HF_TOKEN";

/// Address of the hub.
///
/// # Errors
///
/// A variable that is no text or no address.
pub(super) fn endpoint() -> Result<String, CliError> {
    let Some(given) = variable(ENDPOINT_VARIABLE)? else {
        return Ok(DEFAULT_ENDPOINT.to_owned());
    };
    let given = given.trim();
    if !["https://", "http://"]
        .iter()
        .any(|scheme| given.starts_with(scheme))
    {
        return Err(CliError::BadVariable {
            name: ENDPOINT_VARIABLE,
            reason: "is no address: it begins with https:// or http://",
        });
    }
    Ok(given.to_owned())
}

/// The token, if there is one.
///
/// # Errors
///
/// A variable that holds no token; what it holds is not shown.
pub(super) fn token() -> Result<Option<Token>, CliError> {
    let wrong = || CliError::BadVariable {
        name: TOKEN_VARIABLE,
        reason: "is no token: visible characters without blanks",
    };
    let given = variable(TOKEN_VARIABLE)?;
    given
        .map(|text| Token::new(&text).ok_or_else(wrong))
        .transpose()
}

/// A variable's value; an empty one counts as unset.
fn variable(name: &'static str) -> Result<Option<String>, CliError> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(CliError::BadVariable {
            name,
            reason: "is not text",
        }),
    }
}
