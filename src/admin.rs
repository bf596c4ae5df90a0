//! The admin listener: metrics, health, the ledger, reload, store queries and the page.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | Prometheus text |
//! | `GET /-/healthy` | 200 while the process answers at all |
//! | `GET /-/ready` | 200 when listeners and state are up, else 503; a dead backend fails neither |
//! | `POST /-/reload` | 200, or 422 with the reason |
//! | `GET /v1/ledger` | the books; see [`ledger`] |
//! | `GET /v1/query?name=&since=&until=&limit=` | the embedded store |
//! | `GET /v1/dead-letters?backend=&reason=&limit=&after=` | what backends have refused, the newest first |
//! | `GET /v1/dead-letters/{id}`, `GET /v1/dead-letters/{backend}/{id}` | a letter with its records |
//! | `POST /v1/dead-letters/replay`, `POST /v1/dead-letters/purge` | with `{backend?, reason?, ids?, before?}`; see [`dead_letters`] |
//! | `GET /v1/latest?series=&rows=` | the series that received points last |
//! | `GET /v1/listeners` | each listener's bound addresses |
//! | `GET /v1/routes` | the routing table in force |
//! | `GET /v1/explain?listener=&line=` | what a line would become |
//! | `GET /` | the page |
//!
//! Everything else is 404 or 405, and every refusal is `{"error":{"code":…,"message":"…"}}`.
//!
//! **Who may ask.** There are no credentials: whoever reaches the address may read, may reload a
//! configuration file that only the host's owner can change, and may replay and purge dead letters.
//! By default that is the own host. A browser on it also carries out what foreign pages say, so a
//! POST with an `Origin` header, which browsers always send and scripts never do, is refused. A
//! page that rebinds its own DNS name to this address can therefore not reload either; it can read
//! what this listener shows, and where that matters a proxy in front has to check the `Host`.

pub mod answer;
pub mod dead_letters;
pub mod ledger;
mod page;
mod store;

use crate::books::Books;
use crate::clock::Clock;
use crate::lane::DeadLetters;
use crate::telemetry::{self, Telemetry};
use crate::tls::ServerSettings;
use answer::{Json, Refusal};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State as Extract};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// The `[admin]` section.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `host:port`.
    pub bind: String,
    /// It speaks TLS.
    pub tls: Option<ServerSettings>,
}

impl Config {
    /// Where a browser or a command finds it.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.bind)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { bind: "127.0.0.1:9102".to_owned(), tls: None }
    }
}

/// What the gateway lends to the admin listener.
#[derive(Clone)]
pub struct State {
    /// The books, shared with every worker.
    pub books: Arc<Books>,
    /// Renders them as metrics.
    pub telemetry: Arc<Telemetry>,
    /// Where the embedded store lies, if there is one.
    pub data_dir: PathBuf,
    /// For "10 minutes ago".
    pub clock: Clock,
    /// Whether listeners and state are up, or what is missing. Never asks a backend.
    pub ready: Ready,
    /// Reads the configuration anew; what was applied, or why nothing changed.
    pub reload: Reload,
    /// The addresses that each listener is bound to, as `udp://127.0.0.1:8125`.
    pub listeners: Listeners,
    /// The routing table in force.
    pub routes: Routes,
    /// What backends have refused.
    pub letters: Arc<DeadLetters>,
    /// Sends dead letters through the routing table again.
    pub replay: dead_letters::Replay,
    /// What a line (second) at a listener (first) would become, or why that cannot be said.
    pub explain: Explain,
}

/// See [`State::ready`].
pub type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// See [`State::reload`].
pub type Reload = Arc<dyn Fn() -> Reloading + Send + Sync>;

/// A reload under way.
pub type Reloading = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// See [`State::listeners`].
pub type Listeners = Arc<dyn Fn() -> BTreeMap<String, Vec<String>> + Send + Sync>;

/// See [`State::routes`].
pub type Routes = Arc<dyn Fn() -> Vec<RouteView> + Send + Sync>;

/// See [`State::explain`].
pub type Explain = Arc<dyn Fn(&str, &str) -> Explained + Send + Sync>;

/// An explanation in JSON, or why there is none.
pub type Explained = Result<serde_json::Value, String>;

/// One route, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteView {
    /// As metrics call it.
    pub name: String,
    /// Which points it takes, in words.
    #[serde(rename = "match")]
    pub matching: String,
    /// The backends that receive them.
    pub to: Vec<String>,
    /// Whether later routes are spared the points that matched.
    #[serde(rename = "final")]
    pub last: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// Everything that the admin listener answers.
pub fn router(state: State) -> Router {
    Router::new()
        .route("/", get(page::show))
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(async || "healthy\n"))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(reload))
        .route("/v1/ledger", get(ledger))
        .route("/v1/query", get(store::query))
        .route("/v1/latest", get(store::latest))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/replay", post(dead_letters::replay))
        .route("/v1/dead-letters/purge", post(dead_letters::purge))
        .route("/v1/dead-letters/{id}", get(dead_letters::show))
        .route("/v1/dead-letters/{backend}/{id}", get(dead_letters::show_of))
        .route("/v1/listeners", get(listeners))
        .route("/v1/routes", get(routes))
        .route("/v1/explain", get(explain))
        .method_not_allowed_fallback(answer::wrong_method)
        .fallback(answer::not_found)
        .layer(middleware::from_fn(guard))
        .with_state(state)
}

async fn metrics(Extract(state): Extract<State>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)], state.telemetry.render())
}

async fn ready(Extract(state): Extract<State>) -> Result<&'static str, Refusal> {
    (state.ready)().map(|()| "ready\n").map_err(Refusal::not_ready)
}

async fn reload(Extract(state): Extract<State>) -> Result<Json<serde_json::Value>, Refusal> {
    let applied = (state.reload)().await.map_err(Refusal::not_applied)?;
    Ok(Json(serde_json::json!({ "applied": applied })))
}

async fn ledger(Extract(state): Extract<State>) -> Json<ledger::Ledger> {
    Json(ledger::Ledger::of(&state.books, state.clock.now()))
}

async fn listeners(Extract(state): Extract<State>) -> Json<BTreeMap<String, Vec<String>>> {
    Json((state.listeners)())
}

async fn routes(Extract(state): Extract<State>) -> Json<Vec<RouteView>> {
    Json((state.routes)())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    listener: String,
    line: String,
}

async fn explain(
    Extract(state): Extract<State>,
    asked: Result<Query<Line>, QueryRejection>,
) -> Result<Json<serde_json::Value>, Refusal> {
    let Query(asked) = asked?;
    (state.explain)(&asked.listener, &asked.line).map(Json).map_err(Refusal::bad_request)
}

/// Refuses what a foreign page makes a browser do, and tells browsers how to treat answers.
async fn guard(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = if !reads && request.headers().contains_key(header::ORIGIN) {
        Refusal::from_a_page().into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

const HEADERS: [(header::HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

#[cfg(test)]
mod tests;
