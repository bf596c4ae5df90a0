//! What can be said after `pointsman dead-letters`.

use super::Asked;
use super::command::{Format, Task};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with dead letters.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub task: Verb,
    /// The gateway's configuration, which says where its admin listener is
    #[arg(long, short, value_name = "FILE", global = true)]
    pub config: Vec<PathBuf>,
    /// Where the dead letters are, for a list without a gateway; by default what the configuration says,
    /// unless it is only said where the gateway is (--admin)
    #[arg(long, value_name = "DIR", global = true)]
    pub data_dir: Option<PathBuf>,
    /// The gateway's admin listener, as host:port or https://host:port; by default what the
    /// configuration says
    #[arg(long, value_name = "ADDR", global = true)]
    pub admin: Option<String>,
    /// For https: the roots to trust, in PEM; by default the system's
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// How letters look
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", global = true)]
    pub format: Format,
}

/// What can be done with dead letters.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List them, the newest first; without a gateway, what lies in the data directory.
    List {
        /// Of this backend
        #[arg(long, value_name = "NAME")]
        backend: Option<String>,
        /// Refused for this reason
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
        /// How many
        #[arg(long, value_name = "LETTERS")]
        limit: Option<usize>,
        /// Those before this one
        #[arg(long, value_name = "ID")]
        after: Option<i64>,
    },
    /// Show one with its records, and the points that they tell.
    Show {
        /// The letter's id
        #[arg(value_name = "ID")]
        id: i64,
    },
    /// Send them through the routing table of now; all, if nothing is said.
    Replay(Which),
    /// Drop them.
    Purge(Which),
}

/// Which dead letters: those for which all holds that is said.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// Of this backend
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Refused for this reason
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// This one; may be said again
    #[arg(long = "id", value_name = "ID")]
    pub ids: Vec<i64>,
    /// Refused before this: "1h" (ago), "2026-01-31T12:00:00Z"
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Every one
    #[arg(long, conflicts_with_all = ["backend", "reason", "ids", "before"])]
    pub all: bool,
}

impl From<Verb> for Task {
    fn from(task: Verb) -> Self {
        match task {
            Verb::List { backend, reason, limit, after } => {
                Self::List(Asked { backend, reason, ..Asked::default() }, limit, after)
            }
            Verb::Show { id } => Self::Show(id),
            Verb::Replay(which) => Self::Replay(which.into()),
            Verb::Purge(which) => Self::Purge(which.into()),
        }
    }
}

impl From<Which> for Asked {
    fn from(Which { backend, reason, ids, before, all }: Which) -> Self {
        let ids = (!ids.is_empty()).then_some(ids);
        Self { backend, reason, ids, before, all }
    }
}
