//! What people do with dead letters: look at them, replay them, purge them.
//!
//! The letters themselves are kept by [`lane`](crate::lane). Here records become points again
//! ([`decode`]), points go through the routing table of now ([`replay()`]), letters get the shape
//! that answers and the command show ([`view`]), and a command asks a running gateway for all of it
//! ([`command`]).

mod arguments;
pub mod command;
pub mod decode;
pub mod replay;
pub mod view;

pub use replay::{Replayed, replay};
pub use view::{Content, List, Shown, View};

use crate::lane::Selection;
use crate::when;
use protocols::UnixNanos;
use serde::{Deserialize, Serialize};

/// Which letters a request means: those for which all holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Asked {
    /// Of this backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Refused for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<i64>>,
    /// Refused before this, written as [`when::parse`] reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Every letter, which has to be said where nothing else is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl Asked {
    /// The letters meant.
    ///
    /// # Errors
    ///
    /// A sentence that says how to write a time.
    pub fn selection(&self, now: UnixNanos) -> Result<Selection, String> {
        let before = self.before.as_deref().map(|text| when::parse(text, now)).transpose();
        Ok(Selection {
            backend: self.backend.clone(),
            reason: self.reason.clone(),
            ids: self.ids.clone(),
            before: before.map_err(|problem| format!("before: {problem}"))?,
        })
    }

    /// The same, of what cannot be undone.
    ///
    /// # Errors
    ///
    /// A sentence that says what has to be said.
    pub fn deliberate(&self, now: UnixNanos) -> Result<Selection, String> {
        let which = self.selection(now)?;
        if which.is_everything() && !self.all {
            return Err("say which, by --backend, --reason, --id or --before, or --all".to_owned());
        }
        Ok(which)
    }
}
