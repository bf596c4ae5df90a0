//! Reading: the rows of the series that a name or a pattern means.
//!
//! An answer is bounded in series, rows and bytes, and says when it was cut.

use super::{Error, schema};
use crate::pattern::Pattern;
use crate::when;
use protocols::UnixNanos;
use rusqlite::{Connection, params};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The store, opened for reading. Every method blocks.
#[derive(Debug)]
pub struct Store {
    /// `None` while the writer has yet to make the tables.
    db: Option<Connection>,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// A name; or a glob or `/regex/`, unless a series has just that name.
    pub name: String,
    /// No rows before this.
    pub since: Option<UnixNanos>,
    /// No rows after this.
    pub until: Option<UnixNanos>,
    /// How many rows of each series, the newest ones; 1000 if not said.
    pub limit: Option<u32>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// By name, then by tags.
    pub series: Vec<Series>,
    /// Whether there is more than an answer may hold.
    pub truncated: bool,
}

/// The rows of one name and one set of tags.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// As it was sent.
    pub name: String,
    /// A bare tag is `true`.
    pub tags: BTreeMap<String, String>,
    /// From old to new.
    pub rows: Vec<Row>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its own time; RFC 3339 in JSON.
    #[serde(serialize_with = "as_text")]
    pub time: UnixNanos,
    /// Its columns.
    pub fields: Map<String, Value>,
}

impl Store {
    /// Opens the store of a data directory.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if nothing was ever stored there, or why it cannot be read.
    pub fn open_read_only(data_dir: &Path) -> Result<Self, Error> {
        Ok(Self { db: schema::open_to_read(data_dir)? })
    }

    /// The rows that are asked for; series without any are left out.
    ///
    /// # Errors
    ///
    /// A pattern that cannot be understood, or why the file cannot be read.
    pub fn query(&self, question: &Question) -> Result<Answer, Error> {
        let Some(db) = &self.db else { return Ok(Answer::default()) };
        let mut answer = Answer::default();
        let mut left = Budget::new();
        for key in keys(db, &question.name)? {
            if answer.series.len() >= SERIES_MAX || left.is_spent() {
                answer.truncated = true;
                break;
            }
            let rows = rows(db, &key, question, &mut left)?;
            if !rows.is_empty() {
                answer.series.push(key.with(rows));
            }
        }
        answer.truncated |= left.is_spent() || left.cut;
        Ok(answer)
    }

    /// The series that received points last, newest first, each with its last rows.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read.
    pub fn latest(&self, series: u32, rows_each: u32) -> Result<Vec<Series>, Error> {
        let Some(db) = &self.db else { return Ok(Vec::new()) };
        let mut newest = db.prepare_cached(
            "SELECT series.id, name, tags
             FROM (SELECT series AS id, max(id) AS last
                   FROM (SELECT id, series FROM points ORDER BY id DESC LIMIT 10000)
                   GROUP BY series ORDER BY last DESC LIMIT ?1)
             JOIN series USING (id) ORDER BY last DESC",
        )?;
        let keys = newest.query_map([series], Key::read)?.collect::<Result<Vec<_>, _>>()?;
        let question = Question { limit: Some(rows_each), ..Question::default() };
        let mut left = Budget::new();
        keys.into_iter()
            .map(|key| rows(db, &key, &question, &mut left).map(|rows| key.with(rows)))
            .collect()
    }

    /// Names that someone who misspelt `name` may have meant, the likeliest first.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read.
    pub fn near(&self, name: &str) -> Result<Vec<String>, Error> {
        let Some(db) = &self.db else { return Ok(Vec::new()) };
        let mut names =
            db.prepare_cached("SELECT DISTINCT name FROM series ORDER BY name LIMIT ?1")?;
        let names = names.query_map([COMPARED_NAMES_MAX], |row| row.get::<_, String>(0))?;
        let mut near = BTreeSet::new();
        for candidate in names {
            let candidate = candidate?;
            near.extend(distance(name, &candidate).map(|distance| (distance, candidate)));
        }
        Ok(near.into_iter().take(NEAR_NAMES_MAX).map(|(_, name)| name).collect())
    }

    /// Whether the store knows a series that `name` means, in any time.
    ///
    /// # Errors
    ///
    /// As for [`query`](Self::query).
    pub fn knows(&self, name: &str) -> Result<bool, Error> {
        self.db.as_ref().map_or(Ok(false), |db| Ok(!keys(db, name)?.is_empty()))
    }
}

/// A series without its rows.
struct Key {
    id: i64,
    name: String,
    tags: String,
}

impl Key {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, name: row.get(1)?, tags: row.get(2)? })
    }

    fn with(self, rows: Vec<Row>) -> Series {
        let tags = serde_json::from_str(&self.tags).unwrap_or_default();
        Series { name: self.name, tags, rows }
    }
}

fn keys(db: &Connection, name: &str) -> Result<Vec<Key>, Error> {
    let mut exact =
        db.prepare_cached("SELECT id, name, tags FROM series WHERE name = ?1 ORDER BY tags")?;
    let found = exact.query_map([name], Key::read)?.collect::<Result<Vec<_>, _>>()?;
    if !found.is_empty() {
        return Ok(found);
    }
    match Pattern::compile(name).map_err(Error::Pattern)? {
        Pattern::Exact(_) => Ok(found),
        pattern => keys_like(db, &pattern),
    }
}

fn keys_like(db: &Connection, pattern: &Pattern) -> Result<Vec<Key>, Error> {
    let mut all = db.prepare_cached("SELECT id, name, tags FROM series ORDER BY name, tags")?;
    let mut all = all.query([])?;
    let mut found = Vec::new();
    while let Some(row) = all.next()? {
        if row.get_ref(1)?.as_str().is_ok_and(|name| pattern.matches(name)) {
            found.push(Key::read(row)?);
        }
    }
    Ok(found)
}

fn rows(
    db: &Connection,
    key: &Key,
    question: &Question,
    left: &mut Budget,
) -> Result<Vec<Row>, Error> {
    let mut newest = db.prepare_cached(
        "SELECT time, fields FROM points
         WHERE series = ?1 AND time BETWEEN ?2 AND ?3 ORDER BY time DESC LIMIT ?4",
    )?;
    let since = question.since.map_or(i64::MIN, |since| since.0);
    let until = question.until.map_or(i64::MAX, |until| until.0);
    // One more than wanted, to know whether there are more; whoever sets a limit knows.
    let limit = question.limit.map_or(DEFAULT_LIMIT + 1, u64::from);
    let mut newest = newest.query(params![key.id, since, until, limit.cast_signed()])?;
    let mut rows = Vec::new();
    while let Some(row) = newest.next()? {
        if question.limit.is_none() && rows.len() as u64 == DEFAULT_LIMIT {
            left.cut = true;
            break;
        }
        let fields = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        if !left.spend(fields.len()) {
            break;
        }
        let fields = serde_json::from_str(fields).unwrap_or_default();
        rows.push(Row { time: UnixNanos(row.get(0)?), fields });
    }
    rows.reverse();
    Ok(rows)
}

/// What an answer may still hold.
struct Budget {
    rows: usize,
    bytes: usize,
    /// Whether a series had more rows than the default limit.
    cut: bool,
}

impl Budget {
    const fn new() -> Self {
        Self { rows: ROWS_MAX, bytes: BYTES_MAX, cut: false }
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let enough = self.rows > 0 && self.bytes >= bytes;
        self.rows -= usize::from(self.rows > 0);
        self.bytes = if enough { self.bytes - bytes } else { 0 };
        enough
    }

    fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
}

/// How far a candidate is from what was typed; `None` if it is too far to be meant.
fn distance(typed: &str, candidate: &str) -> Option<usize> {
    let (typed, candidate) = (typed.to_lowercase(), candidate.to_lowercase());
    if candidate.contains(&typed) || typed.contains(&candidate) {
        return Some(0);
    }
    let most = 1.max(candidate.len() / 3);
    // Long names are not compared letter by letter for nothing.
    let comparable =
        typed.len().abs_diff(candidate.len()) <= most && candidate.len() <= NEAR_BYTES_MAX;
    let distance = comparable.then(|| strsim::damerau_levenshtein(&typed, &candidate));
    distance.filter(|distance| *distance <= most)
}

fn as_text<S: serde::Serializer>(time: &UnixNanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&when::show(*time))
}

/// Rows of a series when the question does not say.
const DEFAULT_LIMIT: u64 = 1_000;

/// Series in one answer.
const SERIES_MAX: usize = 1_000;

/// Rows in one answer, over all its series.
const ROWS_MAX: usize = 100_000;

/// Bytes of columns in one answer.
const BYTES_MAX: usize = 32 << 20;

/// Names that are looked at for one that is near.
const COMPARED_NAMES_MAX: u32 = 10_000;

/// The longest name that is compared, in bytes.
const NEAR_BYTES_MAX: usize = 256;

/// Names that are offered.
const NEAR_NAMES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Limits, Writer};
    use proptest::collection::btree_map;
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest};
    use protocols::jsonl::Encoder;
    use protocols::{Batch, Encode, FieldValue, Number};
    use serde_json::json;
    use std::time::Duration;

    const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_000);

    /// Four series, three of one family.
    fn filled() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let lines = [
            r#"{"name":"cpu.load","tags":{"host":"b"},"time":1000000000,"kind":"gauge","value":1.5}"#,
            r#"{"name":"cpu.load","tags":{"host":"a"},"time":1000000000,"kind":"sample","value":18446744073709551615}"#,
            r#"{"name":"cpu.load","tags":{"host":"a"},"time":3000000000,"kind":"sample","value":9007199254740993}"#,
            r#"{"name":"cpu.load","tags":{"host":"a"},"time":2000000000,"kind":"fields","fields":{"ok":true,"text":"a\nb","x":1.0}}"#,
            r#"{"name":"cpu.*","time":5,"kind":"gauge","value":1.0}"#,
            r#"{"name":"memory","time":5,"kind":"gauge","value":1.0}"#,
        ];
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
        Writer::new(dir.path(), limits).write(lines.join("\n").as_bytes(), NOW, NOW).unwrap();
        dir
    }

    fn ask(question: Question) -> Value {
        let dir = filled();
        let answer = Store::open_read_only(dir.path()).unwrap().query(&question).unwrap();
        serde_json::to_value(answer).unwrap()
    }

    fn named(name: &str) -> Question {
        Question { name: name.to_owned(), ..Question::default() }
    }

    #[test]
    fn rows_come_in_order_with_every_digit_and_type() {
        let answer = ask(named("cpu.load"));
        let expected = r#"{"series":[
            {"name":"cpu.load","tags":{"host":"a"},"rows":[
                {"time":"1970-01-01T00:00:01Z","fields":{"value":18446744073709551615}},
                {"time":"1970-01-01T00:00:02Z","fields":{"ok":true,"text":"a\nb","x":1.0}},
                {"time":"1970-01-01T00:00:03Z","fields":{"value":9007199254740993}}]},
            {"name":"cpu.load","tags":{"host":"b"},"rows":[
                {"time":"1970-01-01T00:00:01Z","fields":{"value":1.5}}]}],
            "truncated":false}"#;
        assert_eq!(answer, serde_json::from_str::<Value>(expected).unwrap());
    }

    #[test]
    fn both_ends_of_a_window_belong_to_it() {
        let window = |since, until, limit| {
            let [since, until] = [since, until].map(|secs: i64| Some(UnixNanos::from_secs(secs)));
            let answer = ask(Question { since, until, limit, ..named("cpu.load") });
            let series = answer["series"].as_array().unwrap().clone();
            series.iter().map(|series| series["rows"].as_array().unwrap().len()).collect::<Vec<_>>()
        };
        assert_eq!(window(2, 3, None), [2]);
        assert_eq!(window(1, 2, None), [2, 1]);
        assert_eq!(window(0, 9, Some(1)), [1, 1]);
        assert_eq!(window(4, 9, None), [] as [usize; 0]);
    }

    #[test]
    fn the_limit_keeps_the_newest() {
        let answer = ask(Question { limit: Some(1), ..named("cpu.load") });
        assert_eq!(answer["series"][0]["rows"][0]["time"], "1970-01-01T00:00:03Z");
    }

    #[test]
    fn a_pattern_means_many_unless_it_is_a_name() {
        let names = |name| {
            let answer = ask(named(name));
            let series = answer["series"].as_array().unwrap().clone();
            series.iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("c*"), ["cpu.*", "cpu.load", "cpu.load"]);
        assert_eq!(names("/^m/"), ["memory"]);
        assert_eq!(names("{memory,x}"), ["memory"]);
        assert_eq!(names("cpu.*"), ["cpu.*"]);
        assert_eq!(names("cpu"), [] as [&str; 0]);
    }

    #[test]
    fn the_latest_series_come_first() {
        let dir = filled();
        let latest = Store::open_read_only(dir.path()).unwrap().latest(2, 10).unwrap();
        let names: Vec<_> = latest.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["memory", "cpu.*"]);
    }

    #[test]
    fn near_names() {
        let dir = filled();
        let store = Store::open_read_only(dir.path()).unwrap();
        assert_eq!(store.near("memroy").unwrap(), ["memory"]);
        assert_eq!(store.near("cpu").unwrap(), ["cpu.*", "cpu.load"]);
        assert_eq!(store.near("temperature").unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn no_file_and_a_bad_file_are_errors_that_say_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Store::open_read_only(dir.path()), Err(Error::Missing(_))));
        std::fs::write(crate::store::path(dir.path()), "no database".repeat(999)).unwrap();
        let error = Store::open_read_only(dir.path()).unwrap_err();
        assert!(error.is_damage(), "{error}");
    }

    #[test]
    fn an_answer_that_is_too_large_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
        let body: String = (0..1_001)
            .map(|n| format!("{{\"name\":\"s{n}\",\"time\":1,\"kind\":\"gauge\",\"value\":1.0}}\n"))
            .collect();
        Writer::new(dir.path(), limits).write(body.as_bytes(), NOW, NOW).unwrap();
        let store = Store::open_read_only(dir.path()).unwrap();
        let answer = store.query(&named("*")).unwrap();
        assert_eq!((answer.series.len(), answer.truncated), (1_000, true));
        assert!(!store.query(&named("s1")).unwrap().truncated);
    }

    /// A column's value, and how JSON says it.
    fn value() -> impl Strategy<Value = (Owned, Value)> {
        prop_oneof![
            any::<i64>().prop_map(|n| (Owned::Number(Number::I64(n)), json!(n))),
            any::<u64>()
                .prop_filter("an unsigned number is one that is not signed", |n| *n
                    > i64::MAX as u64)
                .prop_map(|n| (Owned::Number(Number::U64(n)), json!(n))),
            any::<f64>()
                .prop_filter("JSON has no word for the others", |n| n.is_finite())
                .prop_map(|n| (Owned::Number(Number::F64(n)), json!(n))),
            any::<bool>().prop_map(|truth| (Owned::Bool(truth), json!(truth))),
            any::<String>().prop_map(|text| (Owned::Text(text.clone()), json!(text))),
        ]
    }

    #[derive(Clone, Debug)]
    enum Owned {
        Number(Number),
        Bool(bool),
        Text(String),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Whatever a point says, the store says the same, to the last bit.
        #[test]
        fn what_is_written_reads_back(
            name in "\\PC{1,20}",
            tags in btree_map("[a-z]{1,3}", "\\PC{1,9}", 0..4),
            fields in btree_map("\\PC{1,9}", value(), 1..5),
            time in any::<i64>(),
        ) {
            let mut batch = Batch::new();
            let mut point = batch.begin(&name);
            for (key, value) in &tags {
                point.tag(key, Some(value));
            }
            for (key, (value, _)) in &fields {
                let value = match value {
                    Owned::Number(number) => FieldValue::Number(*number),
                    Owned::Bool(truth) => FieldValue::Bool(*truth),
                    Owned::Text(text) => FieldValue::Text(text),
                };
                point.field(key, value);
            }
            point.finish_fields(Some(UnixNanos(time)));
            drop(point);
            let mut body = Vec::new();
            Encoder::new().encode(&batch.point(0).unwrap(), &mut body).unwrap();

            let dir = tempfile::tempdir().unwrap();
            let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
            Writer::new(dir.path(), limits).write(&body, NOW, NOW).unwrap();
            let answer = Store::open_read_only(dir.path()).unwrap().query(&named(&name)).unwrap();
            let fields = fields.into_iter().map(|(key, (_, value))| (key, value)).collect();
            let rows = vec![Row { time: UnixNanos(time), fields }];
            prop_assert_eq!(answer.series, vec![Series { name, tags, rows }]);
        }
    }

    #[test]
    fn the_default_limit_does_not_cut_silently() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
        let mut writer = Writer::new(dir.path(), limits);
        let asked = |rows: std::ops::Range<i64>, limit, writer: &mut Writer| {
            let lines = rows.map(|n| {
                format!("{{\"name\":\"a\",\"time\":{n},\"kind\":\"gauge\",\"value\":1.0}}\n")
            });
            writer.write(lines.collect::<String>().as_bytes(), NOW, NOW).unwrap();
            let store = Store::open_read_only(dir.path()).unwrap();
            let answer = store.query(&Question { limit, ..named("a") }).unwrap();
            let rows = &answer.series[0].rows;
            (rows.len(), rows[0].time.0, answer.truncated)
        };
        assert_eq!(asked(0..1_000, None, &mut writer), (1_000, 0, false));
        assert_eq!(asked(1_000..1_001, None, &mut writer), (1_000, 1, true));
        assert_eq!(asked(0..0, Some(5), &mut writer), (5, 996, false));
        assert_eq!(asked(0..0, Some(5_000), &mut writer), (1_001, 0, false));
    }

    #[test]
    fn a_reader_sees_what_a_writer_that_is_still_there_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
        let mut writer = Writer::new(dir.path(), limits);
        writer.write(br#"{"name":"a","kind":"gauge","value":1.0}"#, NOW, NOW).unwrap();
        let store = Store::open_read_only(dir.path()).unwrap();
        assert!(store.knows("a").unwrap());
        writer.write(br#"{"name":"b","kind":"gauge","value":1.0}"#, NOW, NOW).unwrap();
        assert!(store.knows("b").unwrap());
    }
}
