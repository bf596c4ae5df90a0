//! The keys of a principal, as a configuration writes them.

use super::hashed::Hashed;
use super::hawk::Hawk;
use super::network::Network;
use super::proof::UnixPeer;
use super::quota::Quota;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One principal's section: how it is known (any of these is enough), what it may write, and which
/// shape that is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whatever comes by these listeners without credentials.
    pub listeners: Vec<String>,
    /// Bearer tokens; better `tokens_file`.
    pub tokens: Vec<Hashed>,
    /// A file of bearer tokens, one a line.
    pub tokens_file: Option<PathBuf>,
    /// Users of HTTP basic authentication.
    pub basic: Vec<Basic>,
    /// Processes on this host that come by a stream in the file system.
    pub unix: Vec<UnixPeer>,
    /// Names in the certificates that clients show to a listener which asks for one.
    pub mtls: Vec<String>,
    /// Where it may come from.
    pub networks: Vec<Network>,
    /// What it may write.
    pub scopes: Vec<String>,
    /// Put before every name, after the check.
    pub prefix: String,
    /// What is done with tags.
    pub tags: Tags,
    /// How much it may write.
    pub quota: Quota,
    /// Signed requests.
    pub hawk: Hawk,
}

/// A user of HTTP basic authentication.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// Its name.
    pub username: String,
    /// Its password; better `password_file`.
    pub password: Option<Hashed>,
    /// The file that has it.
    pub password_file: Option<PathBuf>,
}

/// What is done with tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tags {
    /// Set whatever a client says.
    pub set: BTreeMap<String, String>,
    /// Left out.
    pub drop: Vec<String>,
    /// A point that says one of these is denied.
    pub reserved: Vec<String>,
}
