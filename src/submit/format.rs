//! What a file is, and what its name tells.

use super::source::is_nameless;
use clap::ValueEnum;
use protocols::csv;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// A table whose first line names the columns.
    Csv,
}

impl Format {
    /// By the name of a file, if nobody says so.
    pub(super) fn of(path: &Path, said: Option<Self>) -> Result<Self, String> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        match (said, plain.rsplit_once('.').map(|(_, ending)| ending)) {
            (Some(format), _) => Ok(format),
            (None, Some("csv")) => Ok(Self::Csv),
            (None, Some("jsonl" | "ndjson" | "json")) => Ok(Self::Jsonl),
            (None, _) if is_nameless(path) => Ok(Self::Jsonl),
            _ if path.is_dir() => {
                Err(format!("{} is a folder; name the files in it", path.display()))
            }
            _ => Err(format!("what is {}? say --format jsonl or --format csv", path.display())),
        }
    }

    /// The series of a table, if nobody says so; lines name their own.
    pub(super) fn series(self, path: &Path, said: Option<&String>) -> Option<String> {
        let named = || csv::series_of(path).filter(|_| !is_nameless(path));
        match self {
            Self::Jsonl => None,
            Self::Csv => said.cloned().or_else(named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_what_is_in_them() {
        for (path, expected) in [
            ("a.csv", Some(Format::Csv)),
            ("d/A.CSV.gz", Some(Format::Csv)),
            ("a.jsonl", Some(Format::Jsonl)),
            ("a.ndjson.gz", Some(Format::Jsonl)),
            ("-", Some(Format::Jsonl)),
            ("/dev/stdin", Some(Format::Jsonl)),
            ("/dev/fd/63", Some(Format::Jsonl)),
            ("a.txt", None),
            ("csv", None),
        ] {
            assert_eq!(Format::of(Path::new(path), None).ok(), expected, "{path}");
        }
        assert_eq!(Format::of(Path::new("a.csv"), Some(Format::Jsonl)), Ok(Format::Jsonl));
        let folder = tempfile::tempdir().unwrap();
        let problem = Format::of(folder.path(), None).unwrap_err();
        assert!(problem.ends_with("is a folder; name the files in it"), "{problem}");
    }

    #[test]
    fn names_of_tables_tell_their_series() {
        let said = "s".to_owned();
        for (path, said, expected) in [
            ("statistics/build/times.csv", None, Some("build/times")),
            ("a.csv", Some(&said), Some("s")),
            ("-", None, None),
            ("/dev/fd/63", None, None),
        ] {
            let series = Format::Csv.series(Path::new(path), said);
            assert_eq!(series.as_deref(), expected, "{path}");
        }
        assert_eq!(Format::Jsonl.series(Path::new("a.csv"), Some(&said)), None);
    }
}
