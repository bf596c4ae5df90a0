//! `pointsman query NAME`: the embedded store, for people and scripts.
//!
//! ```text
//! pointsman query NAME [--since 10m] [--until …] [--limit N] [--format table|json|csv]
//! ```
//!
//! Standard output only ever carries the answer in the format asked for. The exit status is 0
//! if there are rows, 1 if there are none (as `grep` does, so that a script can wait for a point)
//! or the store cannot be read, 2 if the question makes no sense. Standard error says which, and
//! names series that may have been meant.

mod csv;
mod table;

use crate::printout::Printout;
use crate::store::{Answer, Error, Question, Series, Store};
use crate::when;
use clap::ValueEnum;
use protocols::UnixNanos;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `store.db` lies.
    pub data_dir: PathBuf,
    /// A name, a glob, or `/regex/`.
    pub name: String,
    /// As [`when::parse`] reads it.
    pub since: Option<String>,
    /// As [`when::parse`] reads it.
    pub until: Option<String>,
    /// Rows of each series, the newest.
    pub limit: Option<u32>,
    /// What standard output carries.
    pub format: Format,
}

/// How rows look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One object, as GET /v1/query answers.
    Json,
    /// Comma-separated.
    Csv,
}

/// Runs the command; blocks.
pub fn run(options: &Options, now: UnixNanos) -> Printout {
    match question(options, now) {
        Ok(question) => answer(options, &question),
        Err(usage) => Printout::failed(2, &usage),
    }
}

fn question(options: &Options, now: UnixNanos) -> Result<Question, String> {
    let moment = |text: &Option<String>, flag: &str| {
        let moment = text.as_deref().map(|text| when::parse(text, now)).transpose();
        moment.map_err(|error| format!("--{flag}: {error}"))
    };
    Ok(Question {
        name: options.name.clone(),
        since: moment(&options.since, "since")?,
        until: moment(&options.until, "until")?,
        limit: options.limit,
    })
}

fn answer(options: &Options, question: &Question) -> Printout {
    let found = Store::open_read_only(&options.data_dir).and_then(|store| {
        let answer = store.query(question)?;
        let hint = if answer.series.is_empty() { Some(hint(&store, question)?) } else { None };
        Ok((answer, hint))
    });
    match found {
        Ok((answer, hint)) => printout(options.format, &answer, hint),
        Err(error @ Error::Pattern(_)) => Printout::failed(2, &error.to_string()),
        Err(error @ Error::Missing(_)) => Printout::failed(
            1,
            &format!(
                "{error}; is `--data-dir` right, and has the gateway a backend of kind `store`?"
            ),
        ),
        Err(error) => Printout::failed(1, &error.to_string()),
    }
}

fn printout(format: Format, answer: &Answer, hint: Option<String>) -> Printout {
    let out = match format {
        Format::Table => table::write(&answer.series),
        Format::Json => serde_json::to_string(answer).unwrap_or_default() + "\n",
        Format::Csv => csv::write(&answer.series),
    };
    let status = u8::from(hint.is_some());
    let cut = answer.truncated.then(|| {
        "the answer is cut: ask for less time, for fewer series, or for more rows with --limit"
            .into()
    });
    let err = hint.or(cut).map_or_else(String::new, |words: String| words + "\n");
    Printout { out, err, status }
}

fn hint(store: &Store, question: &Question) -> Result<String, Error> {
    let name = &question.name;
    if store.knows(name)? {
        return Ok(format!("`{name}` has no points in that time"));
    }
    let near = store.near(name)?;
    let near: Vec<_> = near.iter().map(|name| format!("`{}`", name.escape_debug())).collect();
    Ok(match near.as_slice() {
        [] => format!("there is no series `{name}`; `pointsman query '*'` shows all"),
        near => format!("there is no series `{name}`; did you mean {}?", near.join(", ")),
    })
}

/// The columns that rows of several series share: keys of tags, then keys of fields.
struct Columns<'a> {
    tags: Vec<&'a str>,
    fields: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(series: &'a [Series]) -> Self {
        let tags: BTreeSet<_> = series.iter().flat_map(|one| one.tags.keys()).collect();
        let rows = series.iter().flat_map(|one| &one.rows);
        let fields: BTreeSet<_> = rows.flat_map(|row| row.fields.keys()).collect();
        let names = |keys: BTreeSet<&'a String>| keys.into_iter().map(String::as_str).collect();
        Self { tags: names(tags), fields: names(fields) }
    }

    /// Our own titles, and those of tags and fields. They are unique, so that columns can be told apart:
    /// a tag or a field whose key is taken already is called `tag.key` or `field.key`.
    fn titles(&self, own: [&str; 2]) -> Vec<String> {
        let mut titles = own.map(str::to_owned).to_vec();
        for (prefix, keys) in [("tag", &self.tags), ("field", &self.fields)] {
            for key in keys {
                let mut title = (*key).to_owned();
                while titles.contains(&title) {
                    title = format!("{prefix}.{title}");
                }
                titles.push(title);
            }
        }
        titles
    }
}

/// A cell's text, and whether it is a number.
fn cell(value: Option<&serde_json::Value>) -> (String, bool) {
    match value {
        None => (String::new(), false),
        Some(serde_json::Value::String(text)) => (text.clone(), false),
        Some(other) => (other.to_string(), other.is_number()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printout::Printout;
    use crate::store::{Limits, Row, Writer};
    use std::time::Duration;

    const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_000);

    fn filled() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let lines = [
            r#"{"name":"cpu.load","tags":{"host":"a"},"time":1699999990000000000,"kind":"gauge","value":1.5}"#,
            r#"{"name":"cpu.load","tags":{"host":"b"},"time":1699999000000000000,"kind":"gauge","value":100.0}"#,
            r#"{"name":"build","time":1699999990500000000,"kind":"fields","fields":{"ok":true,"log":"a \"b\",\n\u001b[2J"}}"#,
        ];
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
        Writer::new(dir.path(), limits).write(lines.join("\n").as_bytes(), NOW, NOW).unwrap();
        dir
    }

    fn ask(name: &str, change: impl FnOnce(&mut Options)) -> Printout {
        let dir = filled();
        let mut options = Options {
            data_dir: dir.path().to_owned(),
            name: name.to_owned(),
            ..Options::default()
        };
        change(&mut options);
        run(&options, NOW)
    }

    #[test]
    fn a_table_for_people() {
        let printout = ask("cpu.load", |_| ());
        let expected = "\
TIME                  NAME      host  value
2023-11-14T22:13:10Z  cpu.load  a       1.5
2023-11-14T21:56:40Z  cpu.load  b     100.0
";
        assert_eq!(printout, Printout { out: expected.into(), ..Printout::default() });
    }

    #[test]
    fn columns_of_a_table_can_be_told_apart_and_say_something() {
        let series = |tags: &str, fields: &str| Series {
            name: "a".to_owned(),
            tags: serde_json::from_str(tags).unwrap(),
            rows: vec![Row { time: UnixNanos(0), fields: serde_json::from_str(fields).unwrap() }],
        };
        let table = |series: &[Series]| table::write(series);
        assert_eq!(
            table(&[series(r#"{"host":"h","NAME":"n","bare":""}"#, r#"{"host":1,"x":""}"#)]),
            "TIME                  NAME  tag.NAME  host  field.host\n\
             1970-01-01T00:00:00Z  a     n         h              1\n"
        );
        let some = table(&[series(r#"{"os":""}"#, r#"{"v":1}"#), series(r#"{"os":"x"}"#, "{}")]);
        assert!(
            some.starts_with("TIME                  NAME  os  v\n"),
            "one says something: {some}"
        );
        let thrice = table(&[series(r#"{"field.x":"t","x":"t"}"#, r#"{"x":1}"#)]);
        assert!(thrice.contains("field.x  x  field.field.x"), "{thrice}");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn a_table_of_several_names_cannot_command_the_terminal() {
        let expected = "\
TIME                    NAME      host  log                   ok    value
2023-11-14T22:13:10.5Z  build           a \"b\",\\n\\u{1b}[2J  true
2023-11-14T22:13:10Z    cpu.load  a                                   1.5
2023-11-14T21:56:40Z    cpu.load  b                                 100.0
";
        let expected: Vec<_> =
            expected.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()).collect();
        let out = ask("*", |_| ()).out;
        let lines: Vec<_> = out.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines, expected);
        assert!(!out.contains('\x1b'));
    }

    #[test]
    fn json_is_what_the_admin_listener_answers() {
        let printout = ask("cpu.load", |options| {
            options.format = Format::Json;
            options.since = Some("1m".into());
        });
        let expected = r#"{"series":[{"name":"cpu.load","tags":{"host":"a"},"rows":[{"time":"2023-11-14T22:13:10Z","fields":{"value":1.5}}]}],"truncated":false}"#;
        assert_eq!(printout.out, format!("{expected}\n"));
    }

    #[test]
    fn csv_with_a_header() {
        let printout = ask("*", |options| options.format = Format::Csv);
        let expected = "time,name,host,log,ok,value\r\n\
            2023-11-14T22:13:10.5Z,build,,\"a \"\"b\"\",\n\u{1b}[2J\",true,\r\n\
            2023-11-14T22:13:10Z,cpu.load,a,,,1.5\r\n\
            2023-11-14T21:56:40Z,cpu.load,b,,,100.0\r\n";
        assert_eq!(printout.out, expected);
    }

    #[test]
    fn nothing_found_says_why_and_ends_with_1() {
        let check = |name: &str, since: Option<&str>, words: &str| {
            let printout = ask(name, |options| options.since = since.map(Into::into));
            assert_eq!((printout.out.as_str(), printout.status), ("", 1), "{name}");
            assert_eq!(printout.err, format!("{words}\n"));
        };
        check("cpu.laod", None, "there is no series `cpu.laod`; did you mean `cpu.load`?");
        check("x", None, "there is no series `x`; `pointsman query '*'` shows all");
        check("cpu.load", Some("1s"), "`cpu.load` has no points in that time");
        let json = ask("x", |options| options.format = Format::Json);
        assert_eq!((json.out.as_str(), json.status), ("{\"series\":[],\"truncated\":false}\n", 1));
    }

    #[test]
    fn a_question_that_makes_no_sense_ends_with_2() {
        let since = ask("x", |options| options.since = Some("yesterday".into()));
        assert_eq!(since.status, 2);
        assert!(
            since.err.starts_with("error: --since: `yesterday` is not a time"),
            "{}",
            since.err
        );
        assert_eq!(ask("{a,b", |_| ()).status, 2);
    }

    #[test]
    fn no_store_says_where_it_was_looked_for() {
        let printout = ask("x", |options| options.data_dir = options.data_dir.join("elsewhere"));
        assert_eq!(printout.status, 1);
        assert!(printout.err.contains("elsewhere"), "{}", printout.err);
    }
}
