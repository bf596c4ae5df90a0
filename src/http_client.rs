//! What our clients of HTTP have in common: how one is built, how much of an answer it reads, and what
//! an error means in words.

use crate::tls::{self, client::Told};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Response};
use std::error::Error;

/// To build one of, which goes where it is sent and nowhere else.
pub fn builder() -> ClientBuilder {
    // The first caller wins and the others are told so, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let name = concat!("pointsman/", env!("CARGO_PKG_VERSION"));
    reqwest::Client::builder().user_agent(name).redirect(Policy::none())
}

/// Reads an answer's body to its end, or until there are more than so many bytes of it.
///
/// # Errors
///
/// It breaks off; what came before stands in `body`.
pub async fn read(response: &mut Response, body: &mut Vec<u8>, most: usize) -> reqwest::Result<()> {
    while body.len() <= most {
        let Some(chunk) = response.chunk().await? else { break };
        body.extend_from_slice(&chunk);
    }
    Ok(())
}

/// What an error means, where it is about certificates; else the error with its causes, and never
/// with its address, which may hold a secret.
pub fn trouble(error: reqwest::Error) -> String {
    let error = error.without_url();
    tls::client::explain(&error, Told::ByGateway).unwrap_or_else(|| causes(&error))
}

/// An error with its causes: "error sending request: connection refused".
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
