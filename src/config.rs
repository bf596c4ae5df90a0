//! Configuration: files and environment in, typed sections and a list of all mistakes out.
//!
//! ```text
//! files ─┐
//!        ├─► source ─► substitute ─► decode ─► Sections   (what rooms say they understand)
//! env ───┘                 └────────────┴────► mistakes   (each with its place, see `report`)
//! ```
//!
//! Each room owns the struct of its section; this module only finds them their tables. What
//! needs more than one section to judge (names that must exist, say) is for [`crate::plan`].
//! No message ever shows the value of a secret, nor one that came from the environment.

pub mod decode;
pub mod fields;
pub mod locate;
pub mod report;
pub mod source;
pub mod substitute;
mod tables;
mod variables;

pub use decode::{Backend, Sections};
pub use report::Report;
pub use source::{DEFAULT, Located, Place, Sources};

use crate::mistake::Mistake;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// What a configuration is made from. A reload reads the same files again.
#[derive(Clone, Default)]
pub struct Inputs {
    /// `--config`, in order; none for the built-in one.
    pub files: Vec<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Whether they were read before, and a gateway runs by them.
    pub again: bool,
}

impl fmt::Debug for Inputs {
    /// The environment may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("files", &self.files)
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

/// A configuration as it was understood, mistakes and all.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What could be understood.
    pub sections: Sections,
    /// What could not.
    pub mistakes: Vec<Located>,
    /// What is allowed, and probably not meant.
    pub warnings: Vec<Located>,
    /// Where it all came from.
    pub sources: Sources,
    /// Whether the files could be read at all, so that it makes sense to judge the sections.
    pub readable: bool,
}

/// Reads, merges, substitutes and decodes.
pub fn load(inputs: &Inputs) -> Loaded {
    let mut mistakes = Vec::new();
    let (sources, tree) = source::read(inputs, &mut mistakes);
    let readable = tree.is_some();
    let mut unresolved = Vec::new();
    let mut found = Vec::new();
    let sections = tree.map_or_else(Sections::default, |mut tree| {
        let literal = |key: &str| sources.is_override(key);
        let replaced =
            substitute::substitute(&mut tree, &inputs.environment, &literal, &mut unresolved);
        let foreign = |key: &str| replaced.contains(key) || sources.is_override(key);
        decode::decode(tree, &foreign, &mut found)
    });
    for found in [unresolved, found] {
        mistakes.extend(new_only(&mistakes, found, &sources));
    }
    let warnings = variables::strange(&inputs.environment);
    Loaded { sections, mistakes, warnings, sources, readable }
}

/// Later findings, without those about keys that are known to be wrong: what is wrong with a
/// key first is the cause of the rest.
pub(crate) fn new_only(
    known: &[Located],
    mut found: Vec<Mistake>,
    sources: &Sources,
) -> Vec<Located> {
    let known: BTreeSet<&str> = known.iter().map(|known| &*known.mistake.key).collect();
    found.retain(|found| !known.contains(&*found.key));
    found.into_iter().map(|mistake| sources.locate(mistake)).collect()
}

/// The process's environment; variables that are not UTF-8 are as good as not set.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Whether this may name a listener, a principal or a backend: `[a-z][a-z0-9_]*`.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The full key of `name` inside the table `key`.
fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// The tables and keys at the top.
const SECTIONS: [&str; 8] =
    ["data_dir", "grace", "errors", "listeners", "admin", "principals", "backends", "routes"];
