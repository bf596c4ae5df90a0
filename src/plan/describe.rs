//! A plan in words, as `check` prints it.

use super::backends::word;
use super::principals::has_routes_of_tasks;
use super::{Backend, Plan};
use crate::plural::counted;
use crate::route::{Config, Match, OneOrMany, Rewrite};
use crate::{access, backend, ingest};
use std::fmt::{self, Write as _};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = [
            vec!["data directory".to_owned(), self.data_dir.display().to_string()],
            vec!["admin".to_owned(), self.admin.url()],
        ];
        f.write_str(&columns("", &ends))?;
        let listeners = self.listeners.iter().map(|(name, config)| listener(name, config));
        section(f, "listeners", &listeners.collect::<Vec<_>>())?;
        f.write_str("\nprincipals\n")?;
        if self.principals.is_empty() {
            f.write_str("  none: whoever reaches a listener may write anything\n")?;
        }
        for (name, config) in &self.principals {
            f.write_str(&principal(self, name, config))?;
        }
        let backends = self.backends.iter().map(|(name, backend)| {
            vec![name.clone(), backend.kind.kind().to_owned(), peer(backend)]
        });
        section(f, "backends", &backends.collect::<Vec<_>>())?;
        f.write_str("\nroutes, tried in this order\n")?;
        if self.all_routes().is_empty() {
            f.write_str(NONE)?;
        }
        for config in self.error_routes() {
            write!(f, "  -  {}\n{}", config.name_at(0), route(&config))?;
        }
        for (i, config) in self.routes.iter().enumerate() {
            write!(f, "  {}  {}\n{}", i + 1, config.name_at(i), route(config))?;
        }
        Ok(())
    }
}

fn listener(name: &str, config: &ingest::Config) -> Vec<String> {
    let mut binds = [config.bind.clone(), config.places()].concat().join(", ");
    if let Some(tls) = &config.tls {
        let _ = write!(binds, " ({})", tls.in_words());
    }
    vec![name.to_owned(), config.protocol.name().to_owned(), binds]
}

fn section(f: &mut fmt::Formatter<'_>, title: &str, rows: &[Vec<String>]) -> fmt::Result {
    let rows = if rows.is_empty() { NONE.to_owned() } else { columns("  ", rows) };
    write!(f, "\n{title}\n{rows}")
}

/// Rows with aligned columns.
fn columns(indent: &str, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let mut out = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(line, "{cell:width$}  ", width = width(column).unwrap_or(0));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// How a principal is known, what it may write, in which shape and how much; no secrets.
fn principal(plan: &Plan, name: &str, config: &access::Config) -> String {
    let listeners = plan.listeners.iter().map(|(name, it)| (&**name, it));
    let by_routes = has_routes_of_tasks(name, config, listeners);
    let nothing = match (config.hawk.root_url.is_some(), by_routes) {
        (false, false) => "nothing",
        (true, false) => "what it is vouched for",
        (false, true) => "the series of finished tasks' routes, and those under them",
        (true, true) => {
            "what it is vouched for; the series of finished tasks' routes, and those under them"
        }
    };
    let line = |label: &str, parts: Vec<String>, none: &str| match parts.as_slice() {
        [] if none.is_empty() => String::new(),
        [] => format!("     {label}{none}\n"),
        parts => format!("     {label}{}\n", parts.join("; ")),
    };
    [
        format!("  {name}\n"),
        line("known by   ", known_by(plan, name, config), "nothing"),
        line("may        ", config.scopes.clone(), nothing),
        line("as         ", shape(config), ""),
        line("at most    ", at_most(&config.quota), ""),
    ]
    .concat()
}

fn known_by(plan: &Plan, name: &str, config: &access::Config) -> Vec<String> {
    let own = plan.listeners.iter().filter(|(_, it)| it.principal.as_deref() == Some(name));
    let listeners = config.listeners.iter().chain(own.map(|(own, _)| own));
    let tokens = config.tokens.len();
    let known = [
        list("listeners", listeners),
        (tokens > 0).then(|| counted(tokens as u64, "bearer token")),
        list("users", config.basic.iter().map(|user| &user.username)),
        list("Hawk keys", config.hawk.credentials.iter().map(|one| &one.id)),
        config.hawk.root_url.as_ref().map(|url| format!("what {url} vouches for")),
        list("certificates of", &config.mtls),
        list("processes of", &config.unix),
        list("networks", &config.networks),
    ];
    known.into_iter().flatten().collect()
}

fn shape(config: &access::Config) -> Vec<String> {
    let tags = &config.tags;
    let shape = [
        (!config.prefix.is_empty()).then(|| format!("{}… before the name", config.prefix)),
        list("without tag", &tags.drop),
        list("tag", tags.set.iter().map(|(key, value)| format!("{key} = {value}"))),
        list("reserved tags", &tags.reserved),
    ];
    shape.into_iter().flatten().collect()
}

fn at_most(quota: &access::Quota) -> Vec<String> {
    let many = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
    let much = [
        quota.points_per_second.map(|count| counted(count, "point") + " a second"),
        many(quota.burst, "at once"),
        many(quota.series, "series"),
        many(quota.new_series_per_hour, "new series an hour"),
        quota.body.map(|size| format!("bodies of {}", counted(size.0, "byte"))),
    ];
    much.into_iter().flatten().collect()
}

/// What it is, and all of it; nothing of nothing.
fn list<T: ToString>(label: &str, items: impl IntoIterator<Item = T>) -> Option<String> {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    (!items.is_empty()).then(|| format!("{label} {}", items.join(", ")))
}

/// Whom a backend talks to.
fn peer(backend: &Backend) -> String {
    match &backend.kind {
        backend::Config::Influxdb(config) => {
            let mut text = format!("{}, api {}", backend.kind.place(), word(config.api));
            let places = [
                ("database", &config.database),
                ("retention policy", &config.retention_policy),
                ("org", &config.org),
                ("bucket", &config.bucket),
            ];
            for (label, value) in places {
                if let Some(value) = value {
                    let _ = write!(text, ", {label} {value}");
                }
            }
            text
        }
        backend::Config::Stdout(_) | backend::Config::Blackhole(_) => String::new(),
        backend::Config::Statsd(_) | backend::Config::Store(_) => backend.kind.place(),
    }
}

/// What a route asks of a point, in words.
pub fn conditions(matching: &Match) -> String {
    let mut parts = Vec::new();
    let mut add = |label: &str, values: &Option<OneOrMany>| {
        if let Some(values) = values {
            parts.push(format!("{label} {}", any_of(values)));
        }
    };
    add("name", &matching.name);
    add("kind", &matching.kind);
    add("protocol", &matching.protocol);
    add("listener", &matching.listener);
    add("principal", &matching.principal);
    parts.extend(
        matching.tags.iter().map(|(key, values)| format!("tag {key} = {}", any_of(values))),
    );
    if parts.is_empty() { "everything".to_owned() } else { parts.join(" and ") }
}

fn any_of(values: &OneOrMany) -> String {
    values.iter().collect::<Vec<_>>().join(" or ")
}

/// What a route takes, where it sends that, and how it changes it.
fn route(config: &Config) -> String {
    let to = match config.to.as_slice() {
        [] => "nowhere: dropped and counted".to_owned(),
        to => to.join(", "),
    };
    let end = if config.last { " (final)" } else { "" };
    let mut lines = format!("     if  {}\n     to  {to}{end}\n", conditions(&config.matching));
    if let Some(rewrite) = &config.rewrite {
        let _ = writeln!(lines, "     as  {}", changes(rewrite));
    }
    lines
}

fn changes(rewrite: &Rewrite) -> String {
    let tags = &rewrite.tags;
    let mut parts = Vec::new();
    parts.extend(rewrite.name.iter().map(|name| format!("name {name}")));
    parts.extend(tags.drop.iter().map(|key| format!("without tag {key}")));
    parts.extend(tags.rename.iter().map(|(old, new)| format!("tag {old} as {new}")));
    parts.extend(tags.add.iter().map(|(key, value)| format!("tag {key} = {value}")));
    if parts.is_empty() { "it came".to_owned() } else { parts.join(", ") }
}

const NONE: &str = "  none\n";
