//! Where each key stands in the text of a file, for messages that point.
//!
//! The values themselves are read by crate `config`, which forgets places; so the text is read
//! a second time here, by a parser that keeps them: `toml_edit` for TOML, the events of
//! `yaml-rust2` for YAML, and for JSON `serde_json`, whose raw values still lie in the text.

mod json;
mod toml;
mod yaml;

use std::collections::BTreeMap;
use std::ops::Range;

/// How a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.yaml`, `.yml`
    Yaml,
    /// `.json`
    Json,
}

/// Where one key and its value stand, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The key; for an item of a list, the item.
    pub key: Range<usize>,
    /// The value, if it is a plain one: what a message must be able to hide.
    pub value: Option<Range<usize>>,
    /// Whether the value is a list, which replaces what earlier files said.
    pub list: bool,
}

/// A text that is not what its ending promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it goes wrong, in bytes.
    pub at: usize,
    /// What is wrong. Parsers like to quote the text; this does not.
    pub message: String,
}

/// Each full key of the text and where it stands.
///
/// # Errors
///
/// The first place where the text is malformed.
pub fn locate(format: Format, text: &str) -> Result<BTreeMap<String, Spot>, Unreadable> {
    match format {
        Format::Toml => toml::locate(text),
        Format::Yaml => yaml::locate(text),
        Format::Json => json::locate(text),
    }
}

/// Where the lines of a text begin.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Of each but the first.
    starts: Vec<usize>,
    /// Each character is a byte.
    is_ascii: bool,
}

impl Lines {
    /// Those of the text.
    pub fn of(text: &str) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes());
        Self { starts: ends.map(|end| end + 1).collect(), is_ascii: text.is_ascii() }
    }

    /// The number of the line in which a byte stands, counted from 1, and where that line begins.
    pub fn at(&self, byte: usize) -> (usize, usize) {
        let before = self.starts.partition_point(|start| *start <= byte);
        (before + 1, self.start(before))
    }

    /// The place of a line and a column, both counted from 1, the column in characters.
    fn offset(&self, text: &str, line: usize, column: usize) -> usize {
        let before = self.start(line.saturating_sub(1)).min(text.len());
        let (rest, column) = (text.get(before..).unwrap_or_default(), column.saturating_sub(1));
        if self.is_ascii {
            return before + column.min(rest.len());
        }
        let within = rest.char_indices().nth(column);
        before + within.map_or(rest.len(), |(at, _)| at)
    }

    /// Where a line begins, counted from 0; beyond the last one, nowhere in the text.
    fn start(&self, line: usize) -> usize {
        match line.checked_sub(1) {
            None => 0,
            Some(before) => self.starts.get(before).copied().unwrap_or(usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key, and the text that stands at its place.
    fn keys(format: Format, text: &str) -> Vec<(String, &str, Option<&str>)> {
        locate(format, text)
            .unwrap()
            .into_iter()
            .map(|(key, spot)| (key, &text[spot.key], spot.value.map(|value| &text[value])))
            .collect()
    }

    #[track_caller]
    fn check(format: Format, text: &str, expected: &[(&str, &str, Option<&str>)]) {
        let found = keys(format, text);
        let found: Vec<_> = found.iter().map(|(k, at, v)| (k.as_str(), *at, *v)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn toml() {
        let text = "data_dir = '/é' # x\n[listeners.s]\nbind = [\"a\",\n \"b\"]\nlimits.line = 1\n\
                    [[routes]]\nto = []\n[[routes]]\nmatch = { tags = { \"a.b\" = 'c' } }\n";
        check(
            Format::Toml,
            text,
            &[
                ("data_dir", "data_dir", Some("'/é'")),
                ("listeners", "listeners", None),
                ("listeners.s", "s", None),
                ("listeners.s.bind", "bind", None),
                ("listeners.s.bind[0]", "\"a\"", Some("\"a\"")),
                ("listeners.s.bind[1]", "\"b\"", Some("\"b\"")),
                ("listeners.s.limits", "limits", None),
                ("listeners.s.limits.line", "line", Some("1")),
                ("routes", "routes", None),
                ("routes[0]", "[[routes]]", None),
                ("routes[0].to", "to", None),
                ("routes[1]", "[[routes]]", None),
                ("routes[1].match", "match", None),
                ("routes[1].match.tags", "tags", None),
                ("routes[1].match.tags.a.b", "\"a.b\"", Some("'c'")),
            ],
        );
    }

    #[test]
    fn yaml() {
        let text = "# é\nadmin: {bind: \"é:1\", x: y}\nroutes:\n  - to: [a,\n      b]\n  - &r\n    name: n\n\
                    more:\n  token: |\n    one\n    two\n  at: *r\n";
        check(
            Format::Yaml,
            text,
            &[
                ("admin", "admin", None),
                ("admin.bind", "bind", Some("\"é:1\", x: y}")),
                ("admin.x", "x", Some("y}")),
                ("more", "more", None),
                ("more.at", "at", Some("*r")),
                ("more.token", "token", Some("one")),
                ("routes", "routes", None),
                ("routes[0]", "to: [a,", None),
                ("routes[0].to", "to", None),
                ("routes[0].to[0]", "a,", Some("a,")),
                ("routes[0].to[1]", "b]", Some("b]")),
                ("routes[1]", "name: n", None),
                ("routes[1].name", "name", Some("n")),
            ],
        );
    }

    #[test]
    fn json() {
        let text = "{ \"admin\" : {\"bind\":\"é:1\"},\n\t\"routes\":[ {\"to\": [\"a\", \"b\"]}, {} ], \"n\": -1.5e3 }";
        check(
            Format::Json,
            text,
            &[
                ("admin", "\"admin\"", None),
                ("admin.bind", "\"bind\"", Some("\"é:1\"")),
                ("n", "\"n\"", Some("-1.5e3")),
                ("routes", "\"routes\"", None),
                ("routes[0]", "{\"to\": [\"a\", \"b\"]}", None),
                ("routes[0].to", "\"to\"", None),
                ("routes[0].to[0]", "\"a\"", Some("\"a\"")),
                ("routes[0].to[1]", "\"b\"", Some("\"b\"")),
                ("routes[1]", "{}", None),
            ],
        );
    }

    #[test]
    fn malformed_texts_say_where() {
        for (format, text, at) in [
            (Format::Toml, "a = 1\nb = \n", "\n"),
            (Format::Toml, "[a]\nx = 1\n[a]\n", "a]\n"),
            (Format::Yaml, "a: 1\n b: 2\n", ": 2\n"),
            (Format::Yaml, "a: 1\n---\nb: 2\n", "---\nb: 2\n"),
            (Format::Json, "{\"a\": 1,\n }", "}"),
            (Format::Json, "{\"a\": 1, \"a\": 2}", "\"a\": 2}"),
        ] {
            let unreadable = locate(format, text).unwrap_err();
            assert_eq!(&text[unreadable.at..], at, "{text:?} {unreadable:?}");
            assert!(!unreadable.message.contains('\n'), "{unreadable:?}");
        }
    }
}
