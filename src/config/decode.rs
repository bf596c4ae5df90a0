//! A tree of values becomes typed sections, and every mistake in it is found in one go.
//!
//! serde stops at the first mistake. So each section is decoded again without the key that was
//! wrong, until it decodes or nothing is left to take away.

use super::fields::fields_of;
use super::report::is_secret;
use super::source::as_toml;
use super::tables::{A_LIST, Named};
use super::{SECTIONS, join};
use crate::access::EMPTY_SECRET;
use crate::backend::KINDS;
use crate::mistake::{Mistake, did_you_mean};
use crate::units::Span;
use crate::{access, admin, backend, errors, ingest, lane, route};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What could be understood. A section that is there and could not be understood is `None`,
/// so that nobody complains that its name does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections {
    /// `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// `grace`.
    pub grace: Option<Span>,
    /// `errors`.
    pub errors: Option<errors::Config>,
    /// `[admin]`.
    pub admin: admin::Config,
    /// `[listeners.…]`.
    pub listeners: BTreeMap<String, Option<ingest::Config>>,
    /// `[principals.…]`.
    pub principals: BTreeMap<String, Option<access::Config>>,
    /// `[backends.…]`.
    pub backends: BTreeMap<String, Option<Backend>>,
    /// `[[routes]]`, in order.
    pub routes: Vec<Option<route::Config>>,
}

/// One backend's section, which two rooms share.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// The keys that every backend has.
    pub lane: lane::Config,
    /// The keys of its kind.
    pub kind: backend::Config,
}

/// Decodes all sections. `foreign` tells whether a value came from the environment or a file
/// of its own: it is never shown then, and a number may stand as a text.
pub fn decode(
    mut tree: Value,
    foreign: &dyn Fn(&str) -> bool,
    mistakes: &mut Vec<Mistake>,
) -> Sections {
    take_out_nulls("", &mut tree, mistakes);
    let mut decoder = Decoder { foreign, mistakes };
    let mut sections = Sections::default();
    for (key, value) in decoder.table("", tree) {
        match key.as_str() {
            "data_dir" => sections.data_dir = decoder.section(&key, value, &[]),
            "grace" => sections.grace = decoder.section(&key, value, &[]),
            "errors" => sections.errors = decoder.section(&key, value, &[]),
            "admin" => sections.admin = decoder.section(&key, value, &[]).unwrap_or_default(),
            "listeners" => sections.listeners = decoder.listeners(value),
            "principals" => sections.principals = decoder.principals(value),
            "backends" => sections.backends = decoder.backends(value),
            "routes" => sections.routes = decoder.routes(value),
            _ => decoder.mistakes.push(unknown(&key, &key, &SECTIONS)),
        }
    }
    sections
}

struct Decoder<'a> {
    foreign: &'a dyn Fn(&str) -> bool,
    mistakes: &'a mut Vec<Mistake>,
}

impl Decoder<'_> {
    fn listeners(&mut self, tree: Value) -> BTreeMap<String, Option<ingest::Config>> {
        let tables = self.table("listeners", tree).into_iter();
        tables
            .map(|(name, value)| {
                let key = join("listeners", &name);
                let needs = match value.get("protocol").and_then(Value::as_str) {
                    Some("file") => FILES_NEED,
                    Some("pulse") => PULSE_NEEDS,
                    _ => LISTENER_NEEDS,
                };
                self.require(&key, &value, needs);
                (name, self.section(&key, value, &[]))
            })
            .collect()
    }

    fn principals(&mut self, tree: Value) -> BTreeMap<String, Option<access::Config>> {
        let is_empty = tree.as_object().is_some_and(Map::is_empty);
        let tables = self.table("principals", tree);
        if is_empty {
            let mistake = Mistake::new("principals", "there are none, so nobody could write");
            self.mistakes.push(mistake.hint("without `principals` anyone may"));
        }
        let decode = |(name, value): (String, Value)| {
            let section = self.section(&join("principals", &name), value, &[]);
            (name, section)
        };
        tables.into_iter().map(decode).collect()
    }

    fn backends(&mut self, tree: Value) -> BTreeMap<String, Option<Backend>> {
        let tables = self.table("backends", tree).into_iter();
        tables
            .map(|(name, value)| {
                let key = join("backends", &name);
                let table = self.table(&key, value);
                (name, self.backend(&key, table))
            })
            .collect()
    }

    fn routes(&mut self, tree: Value) -> Vec<Option<route::Config>> {
        let Value::Array(routes) = tree else {
            self.mistakes.push(
                Mistake::new("routes", "expected a list of tables").hint("write `[[routes]]`"),
            );
            return Vec::new();
        };
        let decode = |(i, value)| {
            let key = format!("routes[{i}]");
            self.require(&key, &value, ROUTE_NEEDS);
            self.section(&key, value, &[])
        };
        routes.into_iter().enumerate().map(decode).collect()
    }

    /// Splits the table between the lane and the kind, and decodes both.
    fn backend(&mut self, key: &str, mut table: Map<String, Value>) -> Option<Backend> {
        let kind = self.kind(key, table.remove("kind"));
        let lane_keys = fields_of::<lane::Config>();
        let (shared, own): (Map<_, _>, Map<_, _>) =
            table.into_iter().partition(|(name, _)| lane_keys.contains(&name.as_str()));
        let lane = self.section(key, Value::Object(shared), &[]);
        let own = Value::Object(own);
        let kind = match kind? {
            "statsd" => {
                self.require(key, &own, STATSD_NEEDS);
                self.section(key, own, lane_keys).map(backend::Config::Statsd)
            }
            "influxdb" => {
                self.require(key, &own, INFLUXDB_NEEDS);
                self.section(key, own, lane_keys).map(backend::Config::Influxdb)
            }
            "store" => self.section(key, own, lane_keys).map(backend::Config::Store),
            "stdout" => self.section(key, own, lane_keys).map(backend::Config::Stdout),
            _ => self.section(key, own, lane_keys).map(backend::Config::Blackhole),
        };
        Some(Backend { lane: lane?, kind: kind? })
    }

    fn kind(&mut self, key: &str, value: Option<Value>) -> Option<&'static str> {
        let known = KINDS.join(", ");
        let at = join(key, "kind");
        let Some(value) = value else {
            let message = "the backend has no kind";
            self.mistakes.push(Mistake::new(at, message).hint(format!("one of {known}")));
            return None;
        };
        let word = value.as_str().unwrap_or_default();
        if let Some(kind) = KINDS.into_iter().find(|kind| *kind == word) {
            return Some(kind);
        }
        let message = match (self.foreign)(&at) {
            true => "there is no such kind of backend".to_owned(),
            false => format!("there is no kind of backend `{word}`"),
        };
        let hint = did_you_mean(word, KINDS).unwrap_or_else(|| format!("one of {known}"));
        self.mistakes.push(Mistake::new(at, message).hint(hint));
        None
    }

    /// Reports keys that a section cannot do without, all of them: serde would name one.
    fn require(&mut self, section: &str, value: &Value, needed: &[(&str, &str)]) {
        let Value::Object(table) = value else { return };
        for (name, example) in needed.iter().filter(|(name, _)| !table.contains_key(*name)) {
            let key = join(section, name);
            if !self.is_known(&key) {
                let mistake = Mistake::new(key, format!("`{name}` is missing"));
                self.mistakes.push(mistake.hint(format!("for example `{name} = {example}`")));
            }
        }
    }

    fn table(&mut self, key: &str, value: Value) -> Map<String, Value> {
        match value {
            Value::Object(table) => table,
            _ => {
                self.mistakes.push(Mistake::new(key, "expected a table"));
                Map::new()
            }
        }
    }

    /// Decodes one section. `also` are keys that may stand beside those of `T`.
    fn section<T: DeserializeOwned>(
        &mut self,
        section: &str,
        mut value: Value,
        also: &[&str],
    ) -> Option<T> {
        loop {
            let error = match serde_path_to_error::deserialize(Named(&value)) {
                Ok(decoded) => return Some(decoded),
                Err(error) => error,
            };
            let path: Vec<Segment> = error.path().iter().cloned().collect();
            let message = error.inner().to_string();
            let key = path.iter().fold(section.to_owned(), |key, segment| match segment {
                Segment::Seq { index } => format!("{key}[{index}]"),
                segment => join(&key, &segment.to_string()),
            });
            if let Some(name) = message.strip_prefix("missing field `") {
                self.missing(&join(&key, name.split('`').next().unwrap_or(name)));
                return None;
            }
            if (self.foreign)(&key) && reread(&mut value, &path) {
                continue;
            }
            self.mistakes.push(self.mistake(&key, &message, also));
            if !take_out(&mut value, &path) {
                return None;
            }
        }
    }

    /// A key is missing; if it was there and taken out because it was wrong, that is known.
    fn missing(&mut self, key: &str) {
        if !self.is_known(key) {
            let name = key.rsplit('.').next().unwrap_or(key);
            self.mistakes.push(Mistake::new(key, format!("`{name}` is missing")));
        }
    }

    /// Whether there is a mistake about this key, or an item of its list, already.
    fn is_known(&self, key: &str) -> bool {
        self.mistakes.iter().any(|mistake| {
            let rest = mistake.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        })
    }

    /// What serde says, in our words, and without the value where it must not be shown.
    fn mistake(&self, key: &str, message: &str, also: &[&str]) -> Mistake {
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let (word, known) = words.split_first().unwrap_or((&"", &[]));
        if message.starts_with("unknown field") {
            return unknown(key, word, &[known, also].concat());
        }
        if let Some(hint) = message.strip_prefix(A_LIST) {
            return Mistake::new(key, A_LIST).hint(hint.trim_start_matches("; "));
        }
        let hide = is_secret(key) || (self.foreign)(key);
        if message.starts_with("unknown variant") {
            let shown = if hide { "this".to_owned() } else { format!("`{word}`") };
            let mistake = Mistake::new(key, format!("{shown} is not one of {}", known.join(", ")));
            return match did_you_mean(word, known.iter().copied()).filter(|_| !hide) {
                Some(hint) => mistake.hint(hint),
                None => mistake,
            };
        }
        match message.rsplit_once(", expected ") {
            Some((found, expected)) => {
                let found = found.split_once(": ").map_or(found, |(_, found)| found);
                let found = if hide { "something else" } else { found };
                let (expected, found) = (in_our_words(expected), in_our_words(found));
                let mistake = Mistake::new(key, format!("expected {expected}, found {found}"));
                match expected.as_str() {
                    "a list" if found.starts_with('"') => {
                        mistake.hint(format!("write it in brackets: [{found}]"))
                    }
                    "a list" if (self.foreign)(key) => {
                        mistake.hint("write it as in TOML: [\"one\", \"two\"]")
                    }
                    _ => mistake,
                }
            }
            // Which shows nothing of it.
            None if message == EMPTY_SECRET => {
                Mistake::new(key, EMPTY_SECRET).hint("was a variable not set?")
            }
            None if hide => Mistake::new(key, "the value does not fit (it is not shown)"),
            None => match message.split_once("; ") {
                Some((what, hint)) => Mistake::new(key, what).hint(hint),
                None => Mistake::new(key, message),
            },
        }
    }
}

fn unknown(key: &str, word: &str, known: &[&str]) -> Mistake {
    let mistake = Mistake::new(key, format!("unknown key `{word}`"));
    if let Some(hint) = did_you_mean(word, known.iter().copied()) {
        return mistake.hint(hint);
    }
    match kinds_with(word) {
        kinds if kinds.is_empty() || !key.starts_with("backends.") => match known {
            [] => mistake,
            known => mistake.hint(format!("known here: {}", known.join(", "))),
        },
        kinds => mistake.hint(format!("it is a key of kind = {}", kinds.join(" or "))),
    }
}

/// The kinds of backend that have a key of their own of this name.
fn kinds_with(word: &str) -> Vec<String> {
    let kinds = [
        ("statsd", fields_of::<backend::statsd::Config>()),
        ("influxdb", fields_of::<backend::influxdb::Config>()),
        ("store", fields_of::<backend::store::Config>()),
    ];
    let has = kinds.into_iter().filter(|(_, fields)| fields.contains(&word));
    has.map(|(kind, _)| format!("\"{kind}\"")).collect()
}

/// The types that serde names, as users call them.
fn in_our_words(what: &str) -> String {
    match what {
        "a sequence" | "sequence" => "a list".to_owned(),
        "a map" | "map" => "a table".to_owned(),
        "a string" | "string or map" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "u32" | "u64" => "a whole number that is not negative".to_owned(),
        "f64" => "a number".to_owned(),
        _ if what.starts_with("struct ") => "a table".to_owned(),
        _ => what.replace("string ", "").replace("integer ", "").replace("boolean ", ""),
    }
}

/// In YAML and JSON a key may stand without a value. That it was forgotten is likelier than
/// that the default is meant.
fn take_out_nulls(key: &str, value: &mut Value, mistakes: &mut Vec<Mistake>) {
    match value {
        Value::Object(table) => table.retain(|name, value| {
            let key = join(key, name);
            if value.is_null() {
                mistakes.push(Mistake::new(key, format!("`{name}` has no value")));
                return false;
            }
            take_out_nulls(&key, value, mistakes);
            true
        }),
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                take_out_nulls(&format!("{key}[{i}]"), item, mistakes);
            }
        }
        _ => {}
    }
}

/// Reads a text again as the number or truth value that it spells. False if it spells none.
fn reread(value: &mut Value, path: &[Segment]) -> bool {
    let Some(value) = path.iter().try_fold(value, step) else { return false };
    let read = value.as_str().and_then(as_toml).filter(|read| !read.is_string());
    read.map(|read| *value = read).is_some()
}

/// Takes the entry out that `path` leads to: the nearest table's, as the items of a list could
/// not be told by their numbers any more. False if there is none.
fn take_out(value: &mut Value, path: &[Segment]) -> bool {
    let last_name = path.iter().rposition(|segment| matches!(segment, Segment::Map { .. }));
    let Some((above, Some(Segment::Map { key }))) =
        last_name.and_then(|at| Some((path.get(..at)?, path.get(at))))
    else {
        return false;
    };
    let table = above.iter().try_fold(value, step).and_then(Value::as_object_mut);
    table.and_then(|table| table.remove(key)).is_some()
}

fn step<'a>(value: &'a mut Value, segment: &Segment) -> Option<&'a mut Value> {
    match segment {
        Segment::Seq { index } => value.get_mut(index),
        Segment::Map { key } => value.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Keys without a default, and an example of each. A test holds them against serde.
const LISTENER_NEEDS: &[(&str, &str)] =
    &[("protocol", "\"statsd\""), ("bind", "[\"udp://127.0.0.1:8125\"]")];
/// What is read is not bound.
const FILES_NEED: &[(&str, &str)] = &[("protocol", "\"file\"")];
const PULSE_NEEDS: &[(&str, &str)] = &[
    (
        "broker",
        "{ url = \"amqps://pulse.example.com\", username = \"pointsman\", password_file = \"/run/secrets/pulse\" }",
    ),
    ("tasks", "{ root_url = \"https://tc.example.com\" }"),
];
const STATSD_NEEDS: &[(&str, &str)] = &[("address", "\"udp://127.0.0.1:8125\"")];
const INFLUXDB_NEEDS: &[(&str, &str)] = &[("url", "\"http://127.0.0.1:8086\"")];
const ROUTE_NEEDS: &[(&str, &str)] = &[("to", "[\"local\"]")];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(tree: Value) -> (Sections, Vec<String>) {
        run_with(tree, &|_| false)
    }

    fn run_with(tree: Value, foreign: &dyn Fn(&str) -> bool) -> (Sections, Vec<String>) {
        let mut mistakes = Vec::new();
        let sections = decode(tree, foreign, &mut mistakes);
        let shown = mistakes.into_iter().map(|mistake| {
            let hint = mistake.hint.map_or(String::new(), |hint| format!(" ({hint})"));
            format!("{}: {}{hint}", mistake.key, mistake.message)
        });
        (sections, shown.collect())
    }

    #[track_caller]
    fn check(tree: Value, expected: &[&str]) {
        assert_eq!(run(tree).1, expected);
    }

    #[test]
    fn a_section_that_is_right() {
        let (sections, mistakes) = run(json!({
            "data_dir": "/var/lib/p",
            "listeners": { "s": { "protocol": "statsd", "bind": ["udp://h:1"], "limits": { "tags": 3 } } },
            "backends": { "x": { "kind": "statsd", "address": "udp://h:2", "flush": "2s", "spool": false } },
            "routes": [{ "to": ["x"], "match": { "name": ["a", "b"], "tags": { "Env": "prod" } } }],
        }));
        assert_eq!(mistakes, [""; 0]);
        assert_eq!(sections.listeners["s"].as_ref().unwrap().limits.tags, 3);
        let backend = sections.backends["x"].as_ref().unwrap();
        assert_eq!(backend.lane.flush, Some(crate::units::Span::secs(2)));
        assert_eq!(backend.kind.kind(), "statsd");
        let route = sections.routes[0].as_ref().unwrap();
        assert!(route.matching.tags.contains_key("Env"));
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        check(
            json!({
                "listners": {},
                "listeners": { "s": { "bind": [1, "x"], "ack": 5, "limits": { "lin": "1B", "idle": "1 parsec" } } },
                "backends": {
                    "a": { "kind": "influxdb", "tokn": "S3CR3T", "flsh": "1s", "gzip": "no" },
                    "b": { "kind": "influx", "tokn": 1 },
                    "c": { "address": "x" },
                    "d": { "kind": "blackhole", "database": "x", "when_full": "drop_newst" },
                },
                "routes": [{ "match": { "nam": "x", "tags": { "a": 1 } } }, 7],
                "admin": "127.0.0.1:1",
            }),
            &[
                "admin: expected a table, found \"127.0.0.1:1\"",
                "backends.a.url: `url` is missing (for example `url = \"http://127.0.0.1:8086\"`)",
                "backends.a.flsh: unknown key `flsh` (did you mean `flush`?)",
                "backends.a.gzip: expected true, false or \"auto\", found \"no\"",
                "backends.a.tokn: unknown key `tokn` (did you mean `token`?)",
                "backends.b.kind: there is no kind of backend `influx` (did you mean `influxdb`?)",
                "backends.c.kind: the backend has no kind (one of statsd, influxdb, store, stdout, blackhole)",
                "backends.d.when_full: `drop_newst` is not one of drop_oldest, drop_newest, refuse (did you mean `drop_newest`?)",
                "backends.d.database: unknown key `database` (it is a key of kind = \"influxdb\")",
                "listeners.s.protocol: `protocol` is missing (for example `protocol = \"statsd\"`)",
                "listeners.s.ack: expected a text, found `5`",
                "listeners.s.bind[0]: expected a text, found `1`",
                "listeners.s.limits.idle: `1 parsec` is not a duration (write for example \"500ms\", \"10s\", \"5m\", \"1h\")",
                "listeners.s.limits.lin: unknown key `lin` (did you mean `line`?)",
                "listners: unknown key `listners` (did you mean `listeners`?)",
                "routes[0].to: `to` is missing (for example `to = [\"local\"]`)",
                "routes[0].match.nam: unknown key `nam` (did you mean `name`?)",
                "routes[0].match.tags.a: expected a text or a list of texts",
                "routes[1]: expected a table, found `7`",
            ],
        );
    }

    #[test]
    fn values_from_elsewhere_are_never_shown() {
        let tree = json!({
            "listeners": { "s": { "protocol": "S3CR3T", "bind": "S3CR3T", "limits": { "line": "S3CR3T" } } },
            "backends": { "b": { "kind": "S3CR3T" }, "c": { "kind": "influxdb", "url": "x", "token": 5318008 } },
        });
        let (_, mistakes) = run_with(tree, &|_| true);
        assert_eq!(
            mistakes,
            [
                "backends.b.kind: there is no such kind of backend (one of statsd, influxdb, store, stdout, blackhole)",
                "backends.c.token: expected a text, found something else",
                "listeners.s.bind: expected a list, found something else \
                 (write it as in TOML: [\"one\", \"two\"])",
                "listeners.s.limits.line: the value does not fit (it is not shown)",
                "listeners.s.protocol: this is not one of statsd, opentsdb, http, influxdb, file, pulse",
            ]
        );
    }

    #[test]
    fn the_key_decides_whether_an_override_is_a_number() {
        let tree = json!({
            "backends": { "b": { "kind": "influxdb", "url": "u", "database": "007", "gzip": "false", "max_series": "10", "concurrency": "many" } },
        });
        let (sections, mistakes) = run_with(tree, &|_| true);
        assert_eq!(
            mistakes,
            [
                "backends.b.concurrency: expected a whole number that is not negative, found something else"
            ]
        );
        let backend = sections.backends["b"].as_ref().unwrap();
        assert_eq!(backend.lane.max_series, Some(10));
        let backend::Config::Influxdb(influxdb) = &backend.kind else { panic!() };
        assert_eq!(
            (influxdb.database.as_deref(), influxdb.gzip),
            (Some("007"), backend::influxdb::Gzip::Off)
        );
    }

    /// Though serde would take its items for the values of the keys, one by one.
    #[test]
    fn a_list_is_no_table() {
        let keys = |keys: &str| {
            format!("expected a table, found a list (name the keys of a table, which are {keys})")
        };
        let (_, mistakes) = run(json!({
            "errors": ["b", "n"],
            "admin": [],
            "listeners": { "s": { "protocol": "statsd", "errors": ["b"] }, "t": ["statsd"] },
            "principals": {
                "p": { "tags": [], "basic": [["u", "S3CR3T"]], "unix": [[1]], "quota": [1] },
            },
            "backends": { "x": [], "y": { "kind": "stdout", "dead_letters": [] } },
            "routes": [[]],
        }));
        for (key, known) in [
            ("errors", "backend, name"),
            ("listeners.s.errors", "backend, name"),
            ("principals.p.basic[0]", "username, password, password_file"),
            ("principals.p.tags", "set, drop, reserved"),
        ] {
            let expected = format!("{key}: {}", keys(known));
            assert!(mistakes.contains(&expected), "{expected}: {mistakes:#?}");
        }
        for key in ["admin", "listeners.t", "principals.p.quota", "backends.x", "routes[0]"] {
            let says = format!("{key}: expected a table");
            assert!(mistakes.iter().any(|mistake| mistake.starts_with(&says)), "{mistakes:#?}");
        }
        assert!(!mistakes.concat().contains("S3CR3T"), "{mistakes:#?}");
        // From a variable, say.
        let (_, mistakes) = run_with(json!({ "errors": ["b", "n"] }), &|_| true);
        assert_eq!(mistakes, [format!("errors: {}", keys("backend, name"))]);
    }

    #[test]
    fn a_key_without_a_value_is_a_mistake() {
        check(
            json!({ "data_dir": null, "routes": [{ "name": null, "to": [] }] }),
            &["data_dir: `data_dir` has no value", "routes[0].name: `name` has no value"],
        );
    }

    #[test]
    fn needs_are_what_serde_needs() {
        fn needs<T: DeserializeOwned>(known: &[(&str, &str)]) {
            let mut table = json!({});
            for (name, example) in known {
                let error = serde_json::from_value::<T>(table.clone()).err().unwrap().to_string();
                assert!(error.contains(&format!("missing field `{name}`")), "{error}");
                table[name] = as_toml(example).unwrap();
            }
            assert!(serde_json::from_value::<T>(table).is_ok());
        }
        // Sockets are asked for later, of those that are no files.
        needs::<ingest::Config>(&LISTENER_NEEDS[..1]);
        needs::<backend::statsd::Config>(STATSD_NEEDS);
        needs::<backend::influxdb::Config>(INFLUXDB_NEEDS);
        needs::<route::Config>(ROUTE_NEEDS);
        needs::<lane::Config>(&[]);
        needs::<admin::Config>(&[]);
        needs::<backend::store::Config>(&[]);
    }
}
