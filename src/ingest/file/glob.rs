//! Paths with wildcards, and the files that they mean.

use crate::pattern::Pattern;
use std::fs;
use std::path::{Path, PathBuf};

/// A path in which `*`, `?` and `{a,b}` stand for parts of names, never for a slash.
#[derive(Clone, Debug)]
pub struct Glob {
    root: PathBuf,
    parts: Vec<Pattern>,
    /// Whether it speaks of compressed files.
    pub(super) takes_gzip: bool,
}

impl Glob {
    /// Reads an absolute path.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn compile(path: &str) -> Result<Self, String> {
        let Some(relative) = path.strip_prefix('/') else {
            return Err(format!("`{path}` does not begin with a slash"));
        };
        let parts = relative.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(Pattern::compile).collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(format!("`{path}` names no file"));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(Self { root: PathBuf::from("/"), parts, takes_gzip: name.contains(".gz") })
    }

    /// The files there are, no more than `max`, in the order of their names.
    pub(super) fn files(&self, max: usize) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.root, &self.parts, max, &mut found);
        found
    }
}

fn walk(place: &Path, parts: &[Pattern], max: usize, found: &mut Vec<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else {
        if place.is_file() && found.len() < max {
            found.push(place.to_owned());
        }
        return;
    };
    if let Pattern::Exact(name) = part {
        return walk(&place.join(name), rest, max, found);
    }
    let Ok(entries) = fs::read_dir(place) else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // As a shell has it, what begins with a dot is not meant.
    let mut names: Vec<_> =
        names.filter(|name| !name.starts_with('.') && part.matches(name)).collect();
    names.sort_unstable();
    for name in names {
        walk(&place.join(name), rest, max, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_parts_of_names() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/x.log", "a/y.log", "a/y.txt", "b/x.log", "b/.x.log", "b/c/x.log"] {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "").unwrap();
        }
        let found = |glob: &str, max| {
            let glob = Glob::compile(&format!("{}/{glob}", dir.path().display())).unwrap();
            let files = glob.files(max).into_iter();
            let names = files
                .map(|file| file.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found("a/x.log", 9), "a/x.log");
        assert_eq!(found("a/no.log", 9), "");
        assert_eq!(found("*/x.log", 9), "a/x.log b/x.log");
        assert_eq!(found("a/*", 9), "a/x.log a/y.log a/y.txt");
        assert_eq!(found("{a,b}/?.log", 9), "a/x.log a/y.log b/x.log");
        assert_eq!(found("a/*", 2), "a/x.log a/y.log");
        assert!(Glob::compile("a/b").is_err() && Glob::compile("/").is_err());
    }
}
