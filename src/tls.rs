//! TLS for whatever is a stream: what the `tls` blocks say, and what is made of their files.
//!
//! In reading order: what files hold and what is wrong with it ([`files`], pure), who a certificate
//! names (`names`, pure); the end that is connected to ([`server`]) and the end that connects
//! ([`client`]), and what goes wrong between them in words (`words`, pure); certificates that
//! change while they are in use ([`keeper`]); and how a stream is read without waiting (`at_once`).
//!
//! A certificate is taken as it is at the moment of a handshake: a connection keeps the one that it
//! began with. A new pair that does not fit together changes nothing. Private keys are never shown:
//! no error quotes a file's content, and nothing here that holds one prints it.
//!
//! Noticed in the book of the listener or backend: `certificate_renewed`, `certificate_kept` (the
//! files have changed and cannot be used, so the old ones are kept).

mod at_once;
pub mod client;
pub mod files;
pub mod keeper;
mod live;
mod names;
pub mod server;
mod words;

pub use at_once::{at_once, try_now};
pub use client::Client;
pub use files::Problem;
pub use keeper::{Keeper, Owner};
pub use names::PeerCertificate;
pub use server::{Refusal, Server};

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// The `tls` block of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// The certificate that is shown, and after it those that lead to a root, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM and not encrypted.
    pub key: PathBuf,
    /// Roots that must have signed the certificates which clients then have to show.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    #[serde(default)]
    pub min_version: Version,
}

impl ServerSettings {
    /// What clients have to know of it.
    pub const fn in_words(&self) -> &'static str {
        if self.client_ca.is_some() { "TLS, asks for certificates" } else { "TLS" }
    }
}

/// The `tls` block of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// Roots that are trusted, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A certificate to show to servers that ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name that must stand in the server's certificate, if not the host's.
    pub server_name: Option<String>,
    /// The oldest version that is spoken.
    pub min_version: Version,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Version {
    /// TLS 1.2; older ones are not spoken at all.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

impl Version {
    /// This one and all that are younger.
    const fn and_above(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::V12 => BOTH,
            Self::V13 => YOUNGEST,
        }
    }
}

static BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
static YOUNGEST: &[&SupportedProtocolVersion] = &[&TLS13];

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    Arc::clone(&PROVIDER)
}

#[cfg(test)]
mod tests;
