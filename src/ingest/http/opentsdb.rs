//! OpenTSDB's HTTP API, as far as senders use it: `/api/put` and what they ask before.
//!
//! Every path may carry the version segment, `/api/v1/put`. Nothing can be queried here, so
//! lists of metrics and aggregators are empty. `/api/metadata/put` is taken and forgotten:
//! senders that post it expect 204 and otherwise try for ever.

use super::answer::{Refusal, Taken, Web, Words, count, reply, respond};
use super::taking::take;
use super::{ack, query};
use crate::ingest::intake::Intake;
use crate::net::Peer;
use crate::route::Fate;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use protocols::Answer;
use protocols::opentsdb::{AnswerMode, answer, body_error, parse_body_with};
use serde_json::{Map, Value, json};

/// Only putting, for the listener of our own API.
pub(super) fn put_routes() -> Router<Web> {
    versions(|api| Router::new().route(&format!("{api}/put"), post(put)))
}

/// All that the OpenTSDB port answers.
pub(super) fn routes() -> Router<Web> {
    versions(|api| {
        let at = |path: &str| format!("{api}/{path}");
        Router::new()
            .route(&at("put"), post(put))
            .route(&at("metadata/put"), post(async || StatusCode::NO_CONTENT))
            .route(&at("version"), get(version).post(version))
            .route(&at("suggest"), get(suggest).post(suggest))
            .route(&at("aggregators"), get(async || Json(json!([]))))
            .route(&at("stats"), get(stats))
            .route(&at("dropcaches"), get(async || Json(caches_dropped())))
    })
    .route("/version", get(version))
}

fn versions(routes: impl Fn(&str) -> Router<Web>) -> Router<Web> {
    routes("/api").merge(routes("/api/v1"))
}

async fn put(State(web): State<Web>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let taken = take_put(request, &web, peer.as_ref()).await;
    reply(taken, &web, b"", peer.as_ref()).await
}

async fn take_put(request: Request, web: &Web, peer: Option<&Peer>) -> Result<Taken, Refusal> {
    let flags = Flags::of(request.uri());
    let parse = |body: &[u8], intake: &mut Intake| Ok(parse_put(body, &flags, intake, peer));
    let words = Words::new(move |text, answer, fate| flags.words(text, answer, fate));
    take(request, web, words, parse).await
}

fn parse_put(body: &[u8], flags: &Flags, intake: &mut Intake, peer: Option<&Peer>) -> Answer {
    let options = intake.context.grammar.put_options(intake.context.times());
    let (recall, batch) = intake.recall(options.times);
    let parsed = parse_body_with(recall, body, &options, batch);
    let refusals = match parsed {
        Ok(refusals) => refusals,
        Err(error) => {
            intake.forget();
            let example = body.get(..body.len().min(EXAMPLE_BYTES)).unwrap_or(&[]);
            intake.refuse(error.reason().label(), 1, example, peer.into());
            return body_error(error);
        }
    };
    count(&refusals, intake, peer);
    flags.with_timeouts(answer(intake.len(), &refusals, flags.mode))
}

/// What the query asks for.
#[derive(Clone, Copy, Debug)]
struct Flags {
    mode: AnswerMode,
    sync: bool,
    timeouts: bool,
}

impl Flags {
    fn of(uri: &Uri) -> Self {
        let text = uri.query().unwrap_or("");
        let mode = if query::has(text, "details") {
            AnswerMode::Details
        } else if query::has(text, "summary") {
            AnswerMode::Summary
        } else {
            AnswerMode::Quiet
        };
        let wait = query::value(text, "sync_timeout").and_then(|wait| wait.parse().ok());
        Self { mode, sync: ack::syncs(uri), timeouts: wait.is_some_and(|wait: u64| wait > 0) }
    }

    /// A sender that gave a time-out is told how many points missed it: none.
    fn with_timeouts(&self, answer: Answer) -> Answer {
        if !self.timeouts || self.mode == AnswerMode::Quiet {
            return answer;
        }
        let body = in_counts(&answer, |counts| {
            counts.insert("timeouts".to_owned(), Value::from(0));
        });
        Answer { body, ..answer }
    }

    /// A sender that wants counts is told in counts what did not come so far. OpenTSDB answers 400
    /// when a `sync` takes too long, which its senders do not repeat.
    fn words(&self, text: &str, answer: &Answer, fate: &Fate) -> (Option<u16>, Option<String>) {
        let (late, lost) = match fate {
            Fate::Kept => (0, 0),
            Fate::Late(points) => (*points, 0),
            Fate::Lost(losses) => (0, losses.iter().map(|loss| loss.points).max().unwrap_or(0)),
        };
        let status = (self.sync && late > 0).then_some(400);
        let body = in_counts(answer, |counts| {
            let count = |key: &str| counts.get(key).and_then(Value::as_u64).unwrap_or(0);
            let (success, failed) = (count("success"), count("failed"));
            counts.insert("success".to_owned(), success.saturating_sub(late + lost).into());
            counts.insert("failed".to_owned(), (failed + lost).into());
            counts.insert("timeouts".to_owned(), late.into());
            if let Some(errors) = counts.get_mut("errors").and_then(Value::as_array_mut) {
                let sort = if late > 0 { "Timeout exception" } else { "Storage exception" };
                errors.push(json!({ "error": format!("{sort}: {text}") }));
            }
        });
        (status, body.filter(|_| self.mode != AnswerMode::Quiet))
    }
}

/// The body of an answer that has counts in it, with others.
fn in_counts(answer: &Answer, change: impl FnOnce(&mut Map<String, Value>)) -> Option<String> {
    let mut body = serde_json::from_str(answer.body.as_deref()?).unwrap_or(Value::Null);
    if let Some(counts) = body.as_object_mut() {
        change(counts);
    }
    Some(body.to_string())
}

async fn version() -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({
        "version": "2.4.0",
        "short_revision": version,
        "full_revision": format!("pointsman {version}"),
        "repo": "pointsman",
        "repo_status": "MINT",
        "branch": "",
        "host": "",
        "user": "",
        "timestamp": "0",
    }))
}

async fn suggest(State(web): State<Web>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let by_query = query::has(request.uri().query().unwrap_or(""), "type");
    if !by_query && request.method() != Method::POST {
        let text = "Missing parameter <code>type</code>";
        return Refusal::new(400, "missing_parameter", text).answer(&web, b"", peer.as_ref());
    }
    respond(Answer { status: 200, body: Some("[]".to_owned()) })
}

async fn stats(State(web): State<Web>) -> Json<Value> {
    let now = web.clock.now().secs();
    let one = |(metric, value): (&str, u64)| {
        json!({
            "metric": metric,
            "timestamp": now,
            "value": value.to_string(),
            "tags": { "listener": &*web.listener },
        })
    };
    Json(web.stats().map(one).into_iter().collect())
}

fn caches_dropped() -> Value {
    json!({ "status": "200", "message": "Caches dropped" })
}

/// More than a log line shows.
const EXAMPLE_BYTES: usize = 512;
