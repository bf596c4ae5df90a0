//! Our own API: `/v1/points` with JSON, `/v1/point/<series>` with a query string.
//!
//! A JSON body may call itself JSON, text, a form (what `curl -d` says by default) or nothing;
//! JSON lines have to say so, because one line of them is JSON as well.

use super::answer::{Refusal, Taken, Web, Words, count, reply};
use super::query;
use super::taking::take;
use crate::ingest::intake::Intake;
use crate::net::Peer;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::put;
use protocols::{Answer, json};

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/v1/points", put(points).post(points))
        .route("/v1/point/{*series}", put(point).post(point))
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Lines,
}

async fn points(State(web): State<Web>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let details = query::has(request.uri().query().unwrap_or(""), "details");
    let taken = take_points(request, details, &web, peer.as_ref()).await;
    reply(taken, &web, b"", peer.as_ref()).await
}

async fn take_points(
    request: Request,
    details: bool,
    web: &Web,
    peer: Option<&Peer>,
) -> Result<Taken, Refusal> {
    let form = form(request.headers())?;
    let parse = |body: &[u8], intake: &mut Intake| {
        let parsed = match form {
            Form::Json => {
                let limits = limits(web);
                let (recall, batch) = intake.recall(limits.times);
                json::parse_points_with(recall, body, limits, batch)
            }
            Form::Lines => Ok(json::parse_json_lines(body, limits(web), &mut intake.batch)),
        };
        let outcome = parsed.map_err(|error| {
            intake.forget();
            Refusal::new(400, error.reason().label(), error.to_string())
        })?;
        count(&outcome.refusals, intake, peer);
        Ok(outcome.answer(details))
    };
    take(request, web, Words::default(), parse).await
}

async fn point(State(web): State<Web>, request: Request) -> Response {
    let (peer, uri) = (request.extensions().get::<Peer>().copied(), request.uri().clone());
    let taken = take_point(request, &uri, &web, peer.as_ref()).await;
    reply(taken, &web, uri.path().as_bytes(), peer.as_ref()).await
}

/// The point stands in the address; a body has no meaning.
async fn take_point(
    request: Request,
    uri: &Uri,
    web: &Web,
    peer: Option<&Peer>,
) -> Result<Taken, Refusal> {
    let not_utf8 = || Refusal::new(400, "invalid_utf8", "the path or the query is not UTF-8");
    let text = uri.query().unwrap_or("");
    let series = uri.path().strip_prefix("/v1/point/").and_then(query::decode_path);
    let series = series.ok_or_else(not_utf8)?;
    let pairs = query::pairs(text).ok_or_else(not_utf8)?;
    let parse = |_: &[u8], intake: &mut Intake| {
        // `ack` says something about the request, not about the point.
        let words = pairs.iter().filter(|(key, _)| key != "ack");
        let words = words.map(|(key, value)| (key.as_str(), value.as_str()));
        Ok(match json::parse_query(&series, words, limits(web), &mut intake.batch) {
            Ok(()) => json::Outcome { accepted: 1, ..json::Outcome::default() }
                .answer(query::has(text, "details")),
            Err(error) => {
                intake.refuse(error.reason.label(), 1, uri.path().as_bytes(), peer.into());
                one_rejected(&error.message)
            }
        })
    };
    take(request, web, Words::default(), parse).await
}

fn one_rejected(error: &str) -> Answer {
    let rejected = [serde_json::json!({ "index": 0, "error": error })];
    let body = serde_json::json!({ "accepted": 0, "rejected": rejected });
    Answer { status: 400, body: Some(body.to_string()) }
}

fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Form::Json) };
    let text = value.to_str().unwrap_or("?").to_ascii_lowercase();
    match text.split(';').next().unwrap_or("").trim() {
        "" | "application/json" | "text/json" | "text/plain" => Ok(Form::Json),
        "application/x-www-form-urlencoded" => Ok(Form::Json),
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines" => Ok(Form::Lines),
        _ => Err(Refusal::new(
            415,
            "unsupported_type",
            "the content type is neither application/json nor application/x-ndjson",
        )),
    }
}

fn limits(web: &Web) -> json::Limits {
    web.grammar.json_limits(web.times())
}
