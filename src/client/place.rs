//! Which gateway a command sends to, and what it needs for that: options that commands share.

use super::token;
use crate::tls::client::Told;
use crate::units::Secret;
use crate::{http_client, tls};
use clap::Args;
use reqwest::redirect::Policy;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The gateway to send to.
#[derive(Clone, Debug, Default, Args)]
pub struct Place {
    /// URL of the gateway's `http` listener; by default $POINTSMAN_URL, or http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// File with the bearer token that the gateway asks for; by default $POINTSMAN_TOKEN_FILE
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the CA certificates (PEM) to trust for https://, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl Place {
    /// With what the environment says where no option does.
    #[must_use]
    pub fn within(self, environment: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            to: self.to.or_else(|| set("POINTSMAN_URL")),
            token_file: self.token_file.or_else(|| set("POINTSMAN_TOKEN_FILE").map(Into::into)),
            ca: self.ca,
        }
    }

    #[cfg(test)]
    pub(super) fn at(url: &str) -> Self {
        Self { to: Some(url.to_owned()), ..Self::default() }
    }

    /// Its address.
    pub fn to(&self) -> &str {
        self.to.as_deref().unwrap_or(USUAL)
    }

    /// Its address, for people.
    pub fn shown(&self) -> &str {
        shown(self.to())
    }

    /// What it asks for.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read.
    pub fn token(&self) -> Result<Option<Secret>, String> {
        self.token_file.as_deref().map(token).transpose()
    }
}

/// An address, for people: a log that anybody may read shows no credentials, wherever in an address
/// somebody has put them.
pub fn shown(address: &str) -> &str {
    match address.split(['?', '#']).next() {
        Some(place) if !address.contains('@') => place,
        _ => "an address with credentials in it",
    }
}

/// A client of HTTP that speaks TLS where the address says so.
///
/// # Errors
///
/// What is wrong with the file of roots.
pub fn http(url: &str, ca: Option<&Path>) -> Result<reqwest::ClientBuilder, String> {
    let builder = http_client::builder().redirect(Policy::default());
    if !url.starts_with("https:") {
        return Ok(builder);
    }
    let tls = tls::Client::trusting(ca).map_err(|problem| format!("--ca: {}", problem.message))?;
    Ok(builder.tls_backend_preconfigured(tls.config(&["http/1.1"])))
}

/// What is to be said of an error: what is wrong with TLS, or the innermost cause, which is the one
/// that says something: "Connection refused".
pub fn cause(error: &(dyn Error + 'static)) -> String {
    if let Some(words) = tls::client::explain(error, Told::ByCommand) {
        return words;
    }
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The listener `http` of a bare start, on this host.
const USUAL: &str = "http://127.0.0.1:8080";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_credentials() {
        for (address, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("gateway:8080", "gateway:8080"),
            ("https://h/p?token=S3CR3T", "https://h/p"),
            ("h:1/#S3CR3T", "h:1/"),
        ] {
            assert_eq!(shown(address), expected);
        }
        for address in
            ["http://u:S3CR3T@h", "S3CR3T@h:1", "ftp://S3CR3T@h", "h?a=b@S3CR3T", "h#S3?CR3T@h"]
        {
            assert!(!shown(address).contains("S3"), "{address}");
        }
    }
}
