//! InfluxDB 1.x, 2.x and 3.x over HTTP, as line protocol.

use crate::units::Secret;
use serde::Deserialize;
use std::path::PathBuf;

/// What is particular to this kind of backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Scheme, host and port (and a path prefix, if a proxy wants one); never credentials.
    pub url: String,
    /// Which write API to speak.
    #[serde(default)]
    pub api: Api,
    /// v1 and v3: the database, forced here so that no client can choose another.
    pub database: Option<String>,
    /// v1: the retention policy.
    pub retention_policy: Option<String>,
    /// v2: the organisation.
    pub org: Option<String>,
    /// v2: the bucket.
    pub bucket: Option<String>,
    /// v1: user name, sent as basic authentication.
    pub username: Option<String>,
    /// v1: password; better `password_file`.
    pub password: Option<Secret>,
    /// A file that holds the password.
    pub password_file: Option<PathBuf>,
    /// v2 and v3: token; better `token_file`.
    pub token: Option<Secret>,
    /// A file that holds the token.
    pub token_file: Option<PathBuf>,
    /// Whether bodies are compressed.
    #[serde(default = "yes")]
    pub gzip: bool,
    /// v1: whether to create the database when the gateway starts.
    #[serde(default)]
    pub create_database: bool,
    /// How numbers are written.
    #[serde(default)]
    pub integers: Integers,
}

/// Which write API to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/write?db=`, InfluxDB 1.x and VictoriaMetrics.
    #[default]
    V1,
    /// `/api/v2/write?org=&bucket=`.
    V2,
    /// `/api/v3/write_lp?db=`.
    V3,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integers {
    /// As floats, so that `1` followed by `1.5` is never a type conflict.
    #[default]
    Float,
    /// As integers where the input said an integer.
    Keep,
}

const fn yes() -> bool {
    true
}
