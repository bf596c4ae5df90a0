//! The HTTP API of InfluxDB 1.x and 2.x, as far as senders use it: the two write paths, and
//! what they ask before: `/ping`, `/health`, and to create their database.
//!
//! Where points go is the routing table's to say, so `db`, `rp`, `org` and `bucket` are taken
//! and change nothing, and so are users, passwords and tokens where there are no principals. Good
//! lines of a body are kept, by either path; of the bad ones the answer tells the numbers and what
//! is wrong with them.

use super::answer::{Refusal, Taken, Web, Words, reply};
use super::credentials::Sender;
use super::taking::take;
use super::{body, query};
use crate::ingest::bodies::Whole;
use crate::ingest::intake::Intake;
use crate::net::Peer;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use protocols::influxdb::{Precision, Report, parse_body};
use serde_json::{Value, json};

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/write", post(write))
        .route("/api/v2/write", post(write))
        .route("/query", get(create_database).post(create_database))
        .route("/ping", get(ping))
        .route("/health", get(health))
}

/// Says which server this is like; clients ask for it, and some refuse to go on without.
pub(super) async fn signed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-influxdb-version", HeaderValue::from_static(VERSION));
    headers.insert("x-influxdb-build", HeaderValue::from_static(BUILD));
    response
}

async fn write(State(web): State<Web>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let taken = take_lines(request, &web, peer.as_ref()).await;
    reply(taken, &web, b"", peer.as_ref()).await
}

async fn take_lines(request: Request, web: &Web, peer: Option<&Peer>) -> Result<Taken, Refusal> {
    let precision = precision(request.uri())?;
    let parse = |body: &[u8], intake: &mut Intake| {
        let options = web.grammar.read_options(web.times(), precision);
        let mut report = Report::default();
        let Intake { router, batch, .. } = intake;
        parse_body(body, &options, batch, |refused| {
            web.refuse_of(router, refused.reason.label(), 1, refused.line, peer.into());
            report.add(&refused);
        });
        Ok(report.answer(intake.batch.len()))
    };
    take(request, web, Words::default(), parse).await
}

/// A unit that nobody knows refuses the request: with another, its points would lie in 1970.
fn precision(uri: &Uri) -> Result<Precision, Refusal> {
    let word = query::value(uri.query().unwrap_or(""), "precision").unwrap_or("");
    Precision::named(word).ok_or_else(|| {
        let text = format!("invalid precision \"{word}\" (use ns, us, ms, s, m or h)");
        Refusal::new(400, "invalid_precision", text)
    })
}

/// Senders create their database before they write to it. There is none to create, and none
/// to choose; anything else that can be asked here wants an answer that we do not have.
async fn create_database(State(web): State<Web>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    match statements(request, &web).await {
        Ok(text) if creates_database(&text) => {
            Json(json!({ "results": [{ "statement_id": 0 }] })).into_response()
        }
        Ok(text) => {
            let why = "nothing but CREATE DATABASE is taken here, and that changes nothing";
            Refusal::new(400, "unknown_query", why).answer(&web, text.as_bytes(), peer.as_ref())
        }
        Err(refusal) => refusal.answer(&web, b"", peer.as_ref()),
    }
}

/// What stands under `q`, in the query string or in a form. Whoever may not write is not listened
/// to: a form takes memory that bodies need.
async fn statements(request: Request, web: &Web) -> Result<String, Refusal> {
    let admitted = Sender::of(&request, web)?.admitted(web).await?;
    let by_query = request.uri().query().unwrap_or("").to_owned();
    let by_form = match *request.method() {
        Method::POST => body::read(request, admitted.gate.body_max(), web).await?,
        _ => Whole::default(),
    };
    admitted.check(&by_form)?;
    let texts = [by_query.as_str(), str::from_utf8(&by_form).unwrap_or("")];
    Ok(texts.into_iter().find_map(|text| query::text(text, "q")).unwrap_or_default())
}

fn creates_database(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace().map(str::to_ascii_uppercase);
    words.next().as_deref() == Some("CREATE") && words.next().as_deref() == Some("DATABASE")
}

async fn ping(uri: Uri) -> Response {
    match query::value(uri.query().unwrap_or(""), "verbose") {
        None | Some("" | "0" | "false") => StatusCode::NO_CONTENT.into_response(),
        Some(_) => Json(json!({ "version": VERSION })).into_response(),
    }
}

async fn health() -> Json<Value> {
    Json(json!({
        "name": "influxdb",
        "message": "ready for writes",
        "status": "pass",
        "checks": [],
        "version": VERSION,
    }))
}

/// The last that has both write paths.
const VERSION: &str = "1.8.10";

const BUILD: &str = concat!("pointsman ", env!("CARGO_PKG_VERSION"));
