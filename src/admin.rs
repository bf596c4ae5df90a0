//! The admin listener: metrics, health, the ledger, reload, store queries and the page.

use serde::Deserialize;

/// The `[admin]` section.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `host:port`.
    pub bind: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { bind: "127.0.0.1:9102".to_owned() }
    }
}
