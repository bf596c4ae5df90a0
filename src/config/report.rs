//! Mistakes as people read them: file, line, caret and a hint.
//!
//! The line shown is the file's own, but a value is shown only if its key is one we know to be
//! harmless: what looks like an unknown key may be a misspelt `token`.

use super::fields::fields_of;
use super::locate::Lines;
use super::source::{Located, Place, Sources, Text};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::LazyLock;

/// Mistakes, or warnings, and the files they are in.
#[derive(Clone, Debug, Default)]
pub struct Report {
    severity: &'static str,
    located: Vec<Located>,
    sources: Sources,
    /// Of each file, if there is anything to report.
    pages: Vec<Page>,
}

impl Report {
    /// Mistakes, in the order in which they stand in the files.
    pub fn errors(located: Vec<Located>, sources: Sources) -> Self {
        Self::new("error", located, sources)
    }

    /// Things that are allowed and probably not meant.
    pub fn warnings(located: Vec<Located>, sources: Sources) -> Self {
        Self::new("warning", located, sources)
    }

    fn new(severity: &'static str, mut located: Vec<Located>, sources: Sources) -> Self {
        located.sort_by_key(|located| match &located.place {
            Place::File { file, at } => (*file, at.as_ref().map_or(0, |at| at.start)),
            Place::Nowhere | Place::Environment(_) => (usize::MAX, 0),
        });
        let files: &[Text] = if located.is_empty() { &[] } else { &sources.files };
        let pages = files.iter().map(Page::of).collect();
        Self { severity, located, sources, pages }
    }

    /// What is reported, in order.
    pub fn items(&self) -> &[Located] {
        &self.located
    }

    /// One line for each, for logs: `file:12:1: backends.x.tokn: unknown key …`.
    pub fn lines(&self) -> Vec<String> {
        self.located.iter().map(|located| self.line(located)).collect()
    }

    fn line(&self, located: &Located) -> String {
        let mut line = self.place(&located.place);
        let mistake = &located.mistake;
        for part in [&mistake.key, &mistake.message] {
            if !part.is_empty() {
                let separator = if line.is_empty() { "" } else { ": " };
                let _ = write!(line, "{separator}{part}");
            }
        }
        if let Some(hint) = &mistake.hint {
            let _ = write!(line, " ({hint})");
        }
        line
    }

    fn place(&self, place: &Place) -> String {
        match place {
            Place::Nowhere => String::new(),
            Place::Environment(variable) => format!("environment variable {variable}"),
            Place::File { file, at } => {
                let Some(text) = self.sources.files.get(*file) else { return String::new() };
                match at.as_ref().and_then(|at| self.pages.get(*file)?.line(text, at)) {
                    Some(line) => format!("{}:{}:{}", text.name, line.number, line.column),
                    None => text.name.clone(),
                }
            }
        }
    }

    fn excerpt(&self, place: &Place) -> Option<Line> {
        let Place::File { file, at: Some(at) } = place else { return None };
        self.pages.get(*file)?.line(self.sources.files.get(*file)?, at)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Located { mistake, place } in &self.located {
            writeln!(f, "{}: {}", self.severity, mistake.message)?;
            let excerpt = self.excerpt(place);
            let number = excerpt.as_ref().map_or(" ".to_owned(), |line| line.number.to_string());
            let margin = " ".repeat(number.len());
            let key = match mistake.key.as_str() {
                "" => String::new(),
                key => format!("  ({key})"),
            };
            match place {
                Place::Nowhere if key.is_empty() => {}
                _ => writeln!(f, "{margin}--> {}{key}", self.place(place))?,
            }
            if let Some(line) = excerpt {
                writeln!(f, "{margin} |\n{number} | {}", line.shown)?;
                let (blank, carets) = (" ".repeat(line.indent), "^".repeat(line.carets));
                writeln!(f, "{margin} | {blank}{carets}")?;
            }
            if let Some(hint) = &mistake.hint {
                writeln!(f, "{margin} = hint: {hint}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// A line of a file, fit to be shown.
struct Line {
    number: usize,
    /// Of the key, in characters, counted from 1.
    column: usize,
    shown: String,
    /// How many characters of `shown` stand before the carets.
    indent: usize,
    carets: usize,
}

/// What has to be known of a file to show any line of it; found once, since there may be as many
/// mistakes as lines.
#[derive(Clone, Debug, Default)]
struct Page {
    lines: Lines,
    /// What is not for showing, in order and apart from each other.
    hidden: Vec<Range<usize>>,
}

impl Page {
    fn of(text: &Text) -> Self {
        Self { lines: Lines::of(&text.text), hidden: hidden(text) }
    }

    fn line(&self, text: &Text, at: &Range<usize>) -> Option<Line> {
        let (number, start) = self.lines.at(at.start);
        let end = text.text.get(at.start..)?.find('\n').map_or(text.text.len(), |n| at.start + n);
        let column = text.text.get(start..at.start)?.chars().count() + 1;
        if text.spots.is_empty() {
            let shown = without_value(text.text.get(start..end)?.trim_end());
            let indent = (column - 1).min(shown.chars().count());
            return Some(Line { number, column, shown, indent, carets: 1 });
        }
        let marked = at.start..at.end.clamp(at.start, end);
        let indent = self.masked(text, start..marked.start).chars().count();
        let carets = self.masked(text, marked).chars().count().max(1);
        let shown = self.masked(text, start..end).trim_end().to_owned();
        Some(Line { number, column, shown, indent, carets })
    }

    /// A part of the file with `…` instead of values that are not for showing.
    fn masked(&self, text: &Text, part: Range<usize>) -> String {
        let (mut out, mut done) = (String::new(), part.start);
        let first = self.hidden.partition_point(|value| value.end <= part.start);
        let hidden = self.hidden.iter().skip(first).take_while(|value| value.start < part.end);
        for value in hidden {
            out.push_str(text.text.get(done..value.start.max(done)).unwrap_or_default());
            if value.start >= done {
                out.push('…');
            }
            done = done.max(value.end);
        }
        out.push_str(text.text.get(done..part.end).unwrap_or_default());
        out.replace(['\t', '\r'], " ")
    }
}

/// The values of a file that are not for showing.
fn hidden(text: &Text) -> Vec<Range<usize>> {
    let values = text.spots.iter().filter_map(|(key, spot)| {
        let value = spot.value.clone()?;
        (!may_show(key, text.text.get(value.clone())?)).then_some(value)
    });
    let mut values: Vec<_> = values.collect();
    values.sort_by_key(|value| value.start);
    // One reaches to the end of its line where a parser did not tell its end, and over others.
    values.dedup_by(|next, value| {
        let overlaps = next.start < value.end;
        if overlaps {
            value.end = value.end.max(next.end);
        }
        overlaps
    });
    values
}

/// A line of a file that could not be parsed: no more than the name at its beginning, and
/// nothing unless that is surely a name.
fn without_value(line: &str) -> String {
    let end = line.find(['=', ':']).map_or(line.len(), |end| end + 1);
    let name = line.get(..end).unwrap_or_default();
    let bare = name.trim_matches(|c: char| " \t\"'-[]{},=:".contains(c));
    let is_name = bare.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    let is_header = line.starts_with('[') && !line.contains(['"', '\'', ',', '=']);
    match () {
        () if is_header && is_name => line.to_owned(),
        () if is_name && end < line.len() => format!("{name} …"),
        () if line.is_empty() => String::new(),
        () => "…".to_owned(),
    }
}

/// Whether a value may be shown: its key is one that we know, it is no secret, and no address
/// with credentials in it, nor a URL, in which they could be anywhere.
fn may_show(key: &str, value: &str) -> bool {
    let name = last_name(key);
    let credentials = value.contains('@') || (value.contains("://") && value.contains('?'));
    KNOWN.contains(name) && !is_secret(key) && name != "url" && !credentials
}

/// Whether a key's value is a secret, by its name.
pub fn is_secret(key: &str) -> bool {
    let name = last_name(key);
    let is_hawk = name == "key" && key.contains(".hawk.");
    let is_named = || ["token", "password", "secret"].iter().any(|s| name.contains(s));
    is_hawk || (!name.ends_with("_file") && is_named())
}

/// The last name of a full key: `to` of `routes[0].to[1]`.
fn last_name(key: &str) -> &str {
    let name = key.rsplit('.').next().unwrap_or(key);
    name.split('[').next().unwrap_or(name)
}

static KNOWN: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    use crate::{access, admin, backend, ingest, lane, route};
    [
        &super::SECTIONS[..],
        &["kind"],
        fields_of::<admin::Config>(),
        fields_of::<access::Config>(),
        fields_of::<access::Basic>(),
        fields_of::<access::Tags>(),
        fields_of::<access::Quota>(),
        fields_of::<access::Hawk>(),
        fields_of::<access::HawkCredentials>(),
        fields_of::<ingest::Config>(),
        fields_of::<ingest::Limits>(),
        fields_of::<ingest::TimeWindow>(),
        fields_of::<lane::Config>(),
        fields_of::<lane::Expire>(),
        fields_of::<lane::Batch>(),
        fields_of::<lane::Retry>(),
        fields_of::<backend::statsd::Config>(),
        fields_of::<backend::influxdb::Config>(),
        fields_of::<backend::store::Config>(),
        fields_of::<route::Config>(),
        fields_of::<route::Match>(),
        fields_of::<route::Rewrite>(),
        fields_of::<route::RewriteTags>(),
    ]
    .concat()
    .into_iter()
    .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_by_name() {
        for (key, expected) in [
            ("backends.x.token", true),
            ("backends.x.tokens[0]", true),
            ("backends.token.url", false),
            ("backends.x.token_file", false),
            ("a.client_secret", true),
            ("principals.x.hawk.credentials[0].key", true),
            ("principals.x.hawk.credentials[0].key_file", false),
            ("listeners.x.tls.key", false),
        ] {
            assert_eq!(is_secret(key), expected, "{key}");
        }
    }

    #[test]
    fn only_harmless_values_are_shown() {
        for (key, value, expected) in [
            ("listeners.s.bind[0]", "udp://h:1", true),
            ("backends.x.url", "http://h:1", false),
            ("backends.x.address", "udp://h:1", true),
            ("backends.x.address", "udp://me:S@h:1", false),
            ("backends.x.address", "udp://h:1?p=S", false),
            ("backends.x.token", "S", false),
            ("backends.x.tokn", "S", false),
            ("routes[0].match.name", "task-?", true),
        ] {
            assert_eq!(may_show(key, value), expected, "{key}");
        }
    }

    /// Each has its place and its line, for which the file must not be searched again and again.
    #[test]
    fn as_many_mistakes_as_lines_are_told_in_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        let toml = |n| format!("[[routes]]\nnme = 'r{n}'\nto = ['nowhere']\n");
        let yaml = |n| format!("{{nme: r{n}, to: [nowhere]}}, ");
        let many = |route: &dyn Fn(u32) -> String| (0..3000).map(route).collect::<String>();
        for (ending, text) in
            [("toml", many(&toml)), ("yaml", format!("routes: [{}]\n", many(&yaml)))]
        {
            let file = dir.path().join(format!("x.{ending}"));
            std::fs::write(&file, text).unwrap();
            let inputs = crate::config::Inputs { files: vec![file], ..Default::default() };
            let begin = std::time::Instant::now();
            let report = crate::plan::Plan::load(&inputs).unwrap_err();
            assert!(report.lines().len() >= 6000);
            assert!(report.to_string().len() > 100_000);
            assert!(begin.elapsed().as_secs() < 30, "{ending}: {:?}", begin.elapsed());
        }
    }

    /// A slip of the pen, wherever it is, neither stops us nor brings a secret to light.
    #[test]
    fn no_missing_character_shows_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        for (ending, text) in [
            (
                "toml",
                "[backends.x]\nkind = 'influxdb'\nurl = 'http://u:S3CR3T@h'\ntoken = \"S3CR3T\"\n\
                 api = 'v2'\nretry = { mx = 'S3CR3T', max = '1' }\n[[routes]]\nto = ['x']\n",
            ),
            (
                "yaml",
                "backends:\n  x:\n    kind: influxdb\n    url: http://u:S3CR3T@h\n    token: S3CR3T\n    \
                 api: v2\n    tokn: \"S3CR3T\"\n    retry: {max: 1}\nroutes:\n  - to: [x]\n",
            ),
            (
                "json",
                "{\"backends\": {\"x\": {\"kind\": \"influxdb\", \"url\": \"http://u:S3CR3T@h\",\n\
                 \"token\": \"S3CR3T\", \"api\": \"v2\",\n\"retry\": {\"mx\": \"S3CR3T\"}}},\n\"routes\": []}",
            ),
        ] {
            let file = dir.path().join(format!("x.{ending}"));
            let inputs = crate::config::Inputs { files: vec![file.clone()], ..Default::default() };
            for (at, gone) in text.char_indices() {
                let slip = [&text[..at], &text[at + gone.len_utf8()..]].concat();
                std::fs::write(&file, &slip).unwrap();
                let report = crate::plan::Plan::load(&inputs).unwrap_err();
                let told = format!("{report}\n{:?}\n{report:?}", report.lines());
                assert!(!told.contains("S3CR3T"), "{slip}\n--- {told}");
            }
        }
    }
}
