//! Files and environment, read and merged by crate `config`; and where each key came from.
//!
//! A later file adds to the tables of an earlier one and replaces its plain values and lists,
//! `routes` among them. `POINTSMAN__SECTION__KEY` comes last. An override is taken literally,
//! without substitution; whether it is a text or a number is for the key to say, and one that
//! looks like a list or a table in TOML is one.

use super::Inputs;
use super::locate::{Format, Spot, locate};
use crate::mistake::{Mistake, did_you_mean};
use crate::small_file;
use config::{Config, Environment, File, FileFormat};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// How a file is read.
type Read = fn(&Path, usize) -> Result<Vec<u8>, String>;

/// What a bare start uses, and what `default-config` prints.
pub const DEFAULT: &str = include_str!("../../config/pointsman.toml");

/// Where keys came from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub(super) files: Vec<Text>,
    /// For each key the file that said it last, and where.
    spots: BTreeMap<String, (usize, Spot)>,
    /// Each key that an environment variable set, and the variable.
    overrides: BTreeMap<String, String>,
}

/// One file.
#[derive(Clone)]
pub(super) struct Text {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) spots: BTreeMap<String, Spot>,
}

impl fmt::Debug for Text {
    /// The text may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Where a mistake is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In no file at all.
    Nowhere,
    /// In an environment variable.
    Environment(String),
    /// In a file, at a place or as a whole.
    File {
        /// Which of the files.
        file: usize,
        /// Which bytes of it.
        at: Option<Range<usize>>,
    },
}

/// A mistake and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// What is wrong.
    pub mistake: Mistake,
    /// Where.
    pub place: Place,
}

impl Sources {
    /// Finds the place of a mistake: its key, or the nearest table around a key that is missing.
    pub fn locate(&self, mistake: Mistake) -> Located {
        let mut key = mistake.key.as_str();
        while !key.is_empty() {
            if let Some(place) = self.place(key) {
                return Located { mistake, place };
            }
            key = key.rfind(['.', '[']).and_then(|end| key.get(..end)).unwrap_or_default();
        }
        let place = match self.files.len().checked_sub(1) {
            Some(file) => Place::File { file, at: None },
            None => Place::Nowhere,
        };
        Located { mistake, place }
    }

    /// Whether an environment variable set this key, or the table or list around it.
    pub fn is_override(&self, key: &str) -> bool {
        self.overrides.keys().any(|set| key == set || is_under(key, set))
    }

    fn place(&self, key: &str) -> Option<Place> {
        if let Some(variable) = self.overrides.get(key) {
            return Some(Place::Environment(variable.clone()));
        }
        if let Some((file, spot)) = self.spots.get(key) {
            return Some(Place::File { file: *file, at: Some(spot.key.clone()) });
        }
        let (_, variable) = self.overrides.iter().find(|(set, _)| is_under(set, key))?;
        Some(Place::Environment(variable.clone()))
    }

    fn add(&mut self, name: String, text: String, spots: BTreeMap<String, Spot>) {
        let file = self.files.len();
        let is_list = |key: &str| spots.get(key).is_some_and(|spot| spot.list);
        self.spots.retain(|key, _| !above(key).any(is_list));
        self.spots.extend(spots.iter().map(|(key, spot)| (key.clone(), (file, spot.clone()))));
        self.files.push(Text { name, text, spots });
    }
}

/// Reads and merges everything. There is no tree when a file could not be read: what its
/// absence makes look wrong would only distract.
pub(super) fn read(inputs: &Inputs, mistakes: &mut Vec<Located>) -> (Sources, Option<Value>) {
    let mut sources = Sources::default();
    let mut builder = Config::builder();
    for (text, format) in texts(inputs, &mut sources, mistakes) {
        builder = builder.add_source(File::from_str(&text, format));
    }
    let variables = overrides(&inputs.environment, &mut sources, mistakes);
    if !mistakes.is_empty() {
        return (sources, None);
    }
    let variables = variables.into_iter().collect();
    builder = builder
        .add_source(Environment::with_prefix(PREFIX).separator(SEPARATOR).source(Some(variables)));
    match builder.build().and_then(Config::try_deserialize::<Value>) {
        Ok(mut tree) => {
            sources.overrides.keys().for_each(|key| open_up(&mut tree, key));
            (sources, Some(tree))
        }
        Err(error) => {
            // Parsers quote the text from the second line on, and it may hold a secret.
            let message = error.to_string().lines().next().unwrap_or_default().to_owned();
            mistakes.push(sources.locate(Mistake::new("", message)));
            (sources, None)
        }
    }
}

/// The texts to merge; without files, the built-in one.
fn texts(
    inputs: &Inputs,
    sources: &mut Sources,
    mistakes: &mut Vec<Located>,
) -> Vec<(String, FileFormat)> {
    if inputs.files.is_empty() {
        let spots = locate(Format::Toml, DEFAULT).unwrap_or_default();
        sources.add("(built-in configuration)".to_owned(), DEFAULT.to_owned(), spots);
        return vec![(DEFAULT.to_owned(), FileFormat::Toml)];
    }
    let mut texts = Vec::new();
    // Who starts may wait for a pipe; a gateway that runs does not.
    let read: Read = if inputs.again { small_file::read } else { small_file::read_once };
    for path in &inputs.files {
        match text(path, read, sources) {
            Ok(read) => texts.push(read),
            Err(located) => mistakes.push(located),
        }
    }
    texts
}

fn text(path: &Path, read: Read, sources: &mut Sources) -> Result<(String, FileFormat), Located> {
    let name = path.display().to_string();
    let read = format_of(path).and_then(|format| {
        let bytes = read(path, FILE_BYTES_MAX);
        let text = bytes.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "is no text in UTF-8".to_owned())
        });
        match text {
            Ok(text) => Ok((format, text)),
            Err(what) => Err(Mistake::new("", format!("the file {what}"))),
        }
    });
    let file = sources.files.len();
    let (format, text) = read.map_err(|mistake| {
        sources.add(name.clone(), String::new(), BTreeMap::new());
        Located { mistake, place: Place::File { file, at: None } }
    })?;
    match locate(format, &text) {
        Ok(spots) if spots.is_empty() => {
            sources.add(name, text, spots);
            let mistake = Mistake::new("", "the file sets nothing")
                .hint("`pointsman default-config` prints one to begin with");
            Err(Located { mistake, place: Place::File { file, at: None } })
        }
        Ok(spots) => {
            sources.add(name, text.clone(), spots);
            Ok((text, reader_of(format)))
        }
        Err(unreadable) => {
            sources.add(name, text, BTreeMap::new());
            let mistake = Mistake::new("", unreadable.message);
            let at = Some(unreadable.at..unreadable.at + 1);
            Err(Located { mistake, place: Place::File { file, at } })
        }
    }
}

fn format_of(path: &Path) -> Result<Format, Mistake> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => Ok(Format::Toml),
        Some("yaml" | "yml") => Ok(Format::Yaml),
        Some("json") => Ok(Format::Json),
        _ => Err(Mistake::new("", "the file's ending does not say how it is written")
            .hint("use .toml, .yaml, .yml or .json")),
    }
}

const fn reader_of(format: Format) -> FileFormat {
    match format {
        Format::Toml => FileFormat::Toml,
        Format::Yaml => FileFormat::Yaml,
        Format::Json => FileFormat::Json,
    }
}

/// The variables that override keys. Crate `config` lower-cases them, which is why names of
/// listeners and backends are lower-case; it would also turn `routes` into a table if a
/// variable named one of them, so that is refused here.
fn overrides(
    environment: &BTreeMap<String, String>,
    sources: &mut Sources,
    mistakes: &mut Vec<Located>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (variable, value) in environment {
        let Some(path) = variable.strip_prefix(PREFIX).and_then(|v| v.strip_prefix(SEPARATOR))
        else {
            continue;
        };
        let key = path.to_lowercase().replace(SEPARATOR, ".");
        match complaint(&key) {
            Some(mistake) => {
                let place = Place::Environment(variable.clone());
                mistakes.push(Located { mistake, place });
            }
            None => {
                variables.insert(variable.clone(), value.clone());
                sources.overrides.insert(key, variable.clone());
            }
        }
    }
    variables
}

fn complaint(key: &str) -> Option<Mistake> {
    if key.starts_with("routes.") {
        let mistake = Mistake::new(key, "one route cannot be overridden by itself");
        return Some(mistake.hint("set POINTSMAN__ROUTES to the whole list, as in TOML"));
    }
    let sound = key.split('.').all(super::is_name);
    let section = key.split('.').next().unwrap_or_default();
    (!sound).then(|| {
        let mistake = Mistake::new(key, "this is not the name of a key");
        match did_you_mean(section, super::SECTIONS) {
            Some(hint) => mistake.hint(hint),
            None => mistake.hint("write POINTSMAN__SECTION__KEY"),
        }
    })
}

/// Turns the text of an override that is a list or an inline table in TOML into one.
fn open_up(tree: &mut Value, key: &str) {
    let mut value = tree;
    for name in key.split('.') {
        match value.get_mut(name) {
            Some(inner) => value = inner,
            None => return,
        }
    }
    if let Some(read) = value.as_str().and_then(as_toml).filter(|v| v.is_array() || v.is_object()) {
        *value = read;
    }
}

/// Reads a text as a value of TOML.
pub(super) fn as_toml(text: &str) -> Option<Value> {
    fn convert(value: &toml_edit::Value) -> Option<Value> {
        Some(match value {
            toml_edit::Value::String(text) => text.value().as_str().into(),
            toml_edit::Value::Integer(number) => (*number.value()).into(),
            toml_edit::Value::Float(number) => (*number.value()).into(),
            toml_edit::Value::Boolean(truth) => (*truth.value()).into(),
            toml_edit::Value::Datetime(time) => time.value().to_string().into(),
            toml_edit::Value::Array(items) => items.iter().map(convert).collect::<Option<_>>()?,
            toml_edit::Value::InlineTable(table) => table
                .iter()
                .map(|(name, value)| Some((name.to_owned(), convert(value)?)))
                .collect::<Option<_>>()?,
        })
    }
    convert(&text.trim().parse().ok()?)
}

/// The tables and lists that a key is inside of.
fn above(key: &str) -> impl Iterator<Item = &str> {
    key.match_indices(['.', '[']).filter_map(|(end, _)| key.get(..end))
}

/// Whether a key is inside the table or list `above`.
fn is_under(key: &str, above: &str) -> bool {
    key.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Many thousands of routes.
const FILE_BYTES_MAX: usize = 64 << 20;

const PREFIX: &str = "POINTSMAN";
const SEPARATOR: &str = "__";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

    fn write(dir: &Path, files: &[(&str, &str)]) -> Vec<PathBuf> {
        files
            .iter()
            .map(|(name, text)| {
                let path = dir.join(name);
                std::fs::write(&path, text).unwrap();
                path
            })
            .collect()
    }

    fn read_all(
        files: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> (Sources, Option<Value>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let files = write(dir.path(), files);
        let environment =
            environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut mistakes = Vec::new();
        let inputs = Inputs { files, environment, ..Inputs::default() };
        let (sources, tree) = read(&inputs, &mut mistakes);
        (sources, tree, mistakes.into_iter().map(|located| located.mistake.message).collect())
    }

    #[test]
    fn later_files_add_to_tables_and_replace_lists() {
        let (sources, tree, mistakes) = read_all(
            &[
                ("a.toml", "[listeners.s]\nbind = [\"x\", \"y\"]\nKept = 1\n[[routes]]\nto = []\n"),
                ("b.yaml", "listeners: {s: {bind: [z]}}\n"),
                ("c.json", "{\"routes\": [{\"name\": \"N\"}, {}]}"),
            ],
            &[],
        );
        assert_eq!(mistakes, [""; 0]);
        assert_eq!(
            tree.unwrap(),
            json!({
                "listeners": { "s": { "bind": ["z"], "Kept": 1 } },
                "routes": [{ "name": "N" }, {}],
            })
        );
        for (key, expected) in [
            ("listeners.s.bind[0]", Some(1)),
            ("listeners.s.bind[1]", Some(1)), // Nothing is left of the first file's list.
            ("listeners.s.Kept", Some(0)),
            ("routes[0].to", Some(2)),
        ] {
            let place = sources.locate(Mistake::new(key, "")).place;
            let file = match place {
                Place::File { file, .. } => Some(file),
                _ => None,
            };
            assert_eq!(file, expected, "{key}");
        }
    }

    #[test]
    fn environment_overrides_are_texts_lists_or_tables() {
        let (sources, tree, mistakes) = read_all(
            &[("a.toml", "[admin]\nbind = \"x\"\n[listeners.s]\nprotocol = \"http\"\n")],
            &[
                ("POINTSMAN__ADMIN__BIND", "1234"),
                ("POINTSMAN__LISTENERS__S__BIND", "[\"tcp://h:1\"]"),
                ("POINTSMAN__ROUTES", "[{ to = ['a'], final = true }]"),
                ("POINTSMAN_DATA", "/elsewhere"),
                ("PATH", "/bin"),
            ],
        );
        assert_eq!(mistakes, [""; 0]);
        assert_eq!(
            tree.unwrap(),
            json!({
                "admin": { "bind": "1234" },
                "listeners": { "s": { "protocol": "http", "bind": ["tcp://h:1"] } },
                "routes": [{ "to": ["a"], "final": true }],
            })
        );
        assert_eq!(
            sources.locate(Mistake::new("routes[0].to", "")).place,
            Place::Environment("POINTSMAN__ROUTES".to_owned())
        );
        assert!(sources.is_override("routes[0].to[0]") && !sources.is_override("listeners.s"));
    }

    #[test]
    fn what_cannot_be_read_leaves_no_tree() {
        for (files, environment, says) in [
            (&[("a.toml", "# nothing\n")][..], &[][..], "the file sets nothing"),
            (&[("a.yaml", "")], &[], "the file sets nothing"),
            (&[("a.json", "{}")], &[], "the file sets nothing"),
            (&[("a.toml", "a = ")], &[], "string"),
            (&[("a.ini", "a = 1")], &[], "does not say how it is written"),
            (&[("a.toml", "a = 1")], &[("POINTSMAN__ROUTES__0__TO", "x")], "one route"),
            (&[("a.toml", "a = 1")], &[("POINTSMAN__A____B", "x")], "not the name of a key"),
            (&[("a.toml", "a = 1")], &[("POINTSMAN__", "x")], "not the name of a key"),
        ] {
            let (_, tree, mistakes) = read_all(files, environment);
            assert_eq!(tree, None);
            assert!(mistakes.len() == 1 && mistakes[0].contains(says), "{files:?}: {mistakes:?}");
        }
        let mut mistakes = Vec::new();
        let files = vec![PathBuf::from("/does/not/exist.toml")];
        read(&Inputs { files, ..Inputs::default() }, &mut mistakes);
        assert!(mistakes[0].mistake.message.starts_with("the file cannot be read"), "{mistakes:?}");
    }
}
