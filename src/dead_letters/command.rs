//! `pointsman dead-letters list|show|replay|purge`: asks a running gateway.
//!
//! The gateway is found by `--admin`, or by what the configuration says of `[admin]`. Only `list`
//! also works without one: it then reads the files in the data directory, and says so. The exit
//! status is 0 when what was asked for was done, 1 when letters stayed, when there is no such
//! letter or nobody answers, 2 when the question makes no sense.

pub use super::arguments::Arguments;

use super::{Asked, Content, List, Replayed, View};
use crate::escape::escaped;
use crate::lane::{Selection, Sum, list_files};
use crate::plural::counted;
use crate::printout::Printout;
use crate::tls::client::Told;
use crate::{client, tls};
use clap::ValueEnum;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` of the admin listener, or its URL.
    pub admin: String,
    /// The roots to trust over https, if not the system's.
    pub ca: Option<PathBuf>,
    /// Where the files are, if they may answer in the gateway's place.
    pub data_dir: Option<PathBuf>,
    /// What standard output carries.
    pub format: Format,
    /// What to do.
    pub task: Task,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Task {
    /// Show those of a backend and a reason, so many before an id.
    List(Asked, Option<usize>, Option<i64>),
    /// Show one with its records.
    Show(i64),
    /// Send them through the routing table.
    Replay(Asked),
    /// Drop them.
    Purge(Asked),
}

/// How letters look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// As the admin listener answers.
    Json,
}

/// Runs the command; blocks.
pub fn run(options: &Options) -> Printout {
    match &options.task {
        Task::List(which, limit, after) => list(options, which, *limit, *after),
        Task::Show(id) => told(options, &ask(options, &format!("/{id}"), None), show),
        Task::Replay(which) => told(options, &post(options, "/replay", which), replayed),
        Task::Purge(which) => told(options, &post(options, "/purge", which), purged),
    }
}

/// What the gateway has answered.
enum Answer {
    /// What was asked for.
    Done(String),
    /// A sentence of the gateway's, and the exit status.
    Refused(String, u8),
    /// Nobody is there; why.
    Nobody(String),
}

fn list(options: &Options, which: &Asked, limit: Option<usize>, after: Option<i64>) -> Printout {
    let mut query = Vec::new();
    query.extend(which.backend.iter().map(|backend| ("backend", backend.clone())));
    query.extend(which.reason.iter().map(|reason| ("reason", reason.clone())));
    query.extend(limit.map(|limit| ("limit", limit.to_string())));
    query.extend(after.map(|after| ("after", after.to_string())));
    let query = query.iter().map(|(key, value)| format!("{key}={}", encoded(value)));
    let query: Vec<_> = query.collect();
    let answer = ask(options, &format!("?{}", query.join("&")), None);
    let Answer::Nobody(why) = answer else { return told(options, &answer, listed) };
    let Some(data_dir) = &options.data_dir else {
        return told(options, &Answer::Nobody(why), listed);
    };
    let dir = data_dir.display();
    if !data_dir.is_dir() {
        let problem = format!("{why}, and there is no data directory `{dir}`");
        return Printout::failed(1, &format!("{problem}; are `--admin` and `--data-dir` right?"));
    }
    let which = Selection {
        backend: which.backend.clone(),
        reason: which.reason.clone(),
        ..Selection::default()
    };
    let page = list_files(data_dir, &which, after, limit.unwrap_or(OFFLINE));
    let text = serde_json::to_string(&List::from(page)).unwrap_or_default() + "\n";
    let mut printout = told(options, &Answer::Done(text), listed);
    printout.err.insert_str(0, &format!("{why}: this is what lies in {dir}\n"));
    printout
}

/// Prints an answer as it is, or as `show` writes it, which also knows the exit status.
fn told(options: &Options, answer: &Answer, show: fn(&str) -> Option<(String, u8)>) -> Printout {
    let text = match answer {
        Answer::Done(text) => text,
        Answer::Refused(problem, status) => return Printout::failed(*status, problem),
        Answer::Nobody(why) => {
            let hint = "this needs a running gateway: is it started, and is `--admin` right?";
            return Printout::failed(1, &format!("{why}; {hint}"));
        }
    };
    match show(text) {
        Some((_, status)) if options.format == Format::Json => {
            Printout { out: text.clone(), err: String::new(), status }
        }
        Some((out, status)) => Printout { out, err: String::new(), status },
        None => Printout::failed(1, "the answer is not that of a gateway of this version"),
    }
}

fn listed(text: &str) -> Option<(String, u8)> {
    let list: List = serde_json::from_str(text).ok()?;
    let mut out = String::new();
    for problem in &list.unreadable {
        let _ = writeln!(out, "missing here: {}", escaped(problem));
    }
    let status = u8::from(!list.unreadable.is_empty());
    if list.letters.is_empty() {
        out.push_str("there are no dead letters\n");
        return Some((out, status));
    }
    let title = ["ID", "REFUSED", "BACKEND", "REASON", "POINTS", "WORDS"].map(str::to_owned);
    let row = |letter: &View| {
        let View { id, refused, backend, reason, points, words, .. } = letter;
        let (id, points) = (id.to_string(), points.to_string());
        [id, short(refused), escaped(backend), escaped(reason), points, escaped(words)]
    };
    let rows: Vec<_> = std::iter::once(title).chain(list.letters.iter().map(row)).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let width = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            // Writing to a String does not fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        out.extend([line.trim_end(), "\n"]);
    }
    let Sum { letters, points } = list.sum;
    let _ = writeln!(out, "{}, {}", counted(letters, "letter"), counted(points, "point"));
    if let Some(next) = list.next {
        let _ = writeln!(out, "older ones: --after {next}");
    }
    Some((out, status))
}

fn show(text: &str) -> Option<(String, u8)> {
    let (view, content): (View, Content) =
        (serde_json::from_str(text).ok()?, serde_json::from_str(text).ok()?);
    let View { id, backend, kind, reason, words, refused, born, points, among, bytes, routes } =
        view;
    let routes = if routes.is_empty() { "not known".to_owned() } else { routes.join(", ") };
    let mut out = format!(
        "letter   {id}\nbackend  {backend} ({kind})\nreason   {reason}\nwords    {}\n\
         refused  {refused}\nborn     {born}\npoints   {points} refused of {among}, in {}\nroutes   {}\n",
        escaped(&words),
        counted(bytes, "byte"),
        escaped(&routes),
    );
    out.push_str("\nrecords\n");
    for line in content.records.unwrap_or_default().lines() {
        let _ = writeln!(out, "  {}", escaped(line));
    }
    out.push_str("\npoints\n");
    for point in content.decoded {
        let _ = writeln!(out, "  {}", escaped(point.get()));
    }
    if let Some(problem) = content.problem {
        let _ = writeln!(out, "  none: {problem}");
    }
    Some((out, 0))
}

fn replayed(text: &str) -> Option<(String, u8)> {
    let Replayed { replayed, unmatched, kept, problems } = serde_json::from_str(text).ok()?;
    let mut out = format!("replayed {}, kept {kept}", counted(replayed, "point"));
    if unmatched > 0 {
        let _ = write!(out, "; no route takes {unmatched}");
    }
    out.push('\n');
    for problem in problems {
        let _ = writeln!(out, "{}", escaped(&problem));
    }
    Some((out, u8::from(kept > 0)))
}

fn purged(text: &str) -> Option<(String, u8)> {
    let Sum { letters, points } = serde_json::from_str(text).ok()?;
    Some((format!("purged {}, {}\n", counted(letters, "letter"), counted(points, "point")), 0))
}

fn post(options: &Options, path: &str, which: &Asked) -> Answer {
    ask(options, path, Some(serde_json::to_string(which).unwrap_or_default()))
}

fn ask(options: &Options, path: &str, body: Option<String>) -> Answer {
    let admin = &options.admin;
    let base = match admin.contains("://") {
        true => admin.trim_end_matches('/').to_owned(),
        false => format!("http://{admin}"),
    };
    let url = format!("{base}/v1/dead-letters{path}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(exchange(&url, options.ca.as_deref(), body)));
    match answer {
        Ok((200, text)) => Answer::Done(text),
        Ok((status, text)) => Answer::Refused(message(&text), if status == 400 { 2 } else { 1 }),
        Err(why) if why.is_empty() => Answer::Nobody(format!("no gateway answers at {admin}")),
        Err(why) => Answer::Nobody(format!("no gateway answers at {admin}: {why}")),
    }
}

/// The status and the body; an error is what there is to say about TLS, if anything.
async fn exchange(
    url: &str,
    ca: Option<&Path>,
    body: Option<String>,
) -> Result<(u16, String), String> {
    // The admin listener is near; no proxy leads to it.
    let builder = client::http(url, ca)?.no_proxy().connect_timeout(CONNECT);
    let words =
        |error: reqwest::Error| tls::client::explain(&error, Told::ByCommand).unwrap_or_default();
    let client = builder.build().map_err(words)?;
    let request = match body {
        Some(body) => client.post(url).header("content-type", "application/json").body(body),
        None => client.get(url),
    };
    let answer = request.send().await.map_err(words)?;
    Ok((answer.status().as_u16(), answer.text().await.map_err(words)?))
}

/// The sentence in a refusal.
fn message(text: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    json.pointer("/error/message").and_then(|message| message.as_str()).unwrap_or(text).to_owned()
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// To the second.
fn short(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(whole, _)| format!("{whole}Z"))
}

/// How many letters a list shows without a gateway, if it is not said.
const OFFLINE: usize = 100;
const CONNECT: Duration = Duration::from_secs(5);
