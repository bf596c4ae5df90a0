//! InfluxDB 1.x, 2.x and 3.x over HTTP, as line protocol.
//!
//! Writes are sent with `reqwest`, since the crate `influxdb` drops the error's body and
//! `Retry-After`; that crate writes the query that creates the database. What an answer means is
//! decided in [`answer`] alone. Credentials travel in a header, never in a URL, which logs and
//! proxies keep.
//!
//! With several URLs each payload goes to one of them: to which, [`pool`](super::pool) decides. An
//! endpoint that does not answer, or answers 502, 503 or 504, is set aside, and the same attempt
//! goes on to another. So a payload may reach two of them, as one that is retried may reach the
//! same one twice: at least once. Counts, by endpoint, health and delivered points; each attempt
//! that went on elsewhere is noticed as `failed_over`.

pub mod answer;
mod endpoints;
mod lookup;
mod request;

use super::{Outcome, Payload, Ship, Shipping, World};
use crate::http_client::{self, trouble};
use crate::tls::ClientSettings;
use crate::units::{Secret, Span};
use answer::Answer;
use bytes::Bytes;
use endpoints::{Endpoints, Try, is_away};
use influxdb::Query as _;
use lookup::Lookup;
use protocols::influxdb as line;
use request::{Request, Target};
use reqwest::StatusCode;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// What is particular to this kind of backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Scheme, host and port (and a path prefix, if a proxy wants one); never credentials. Or a
    /// list of such: replicas of one database, or the front ends of one cluster.
    #[serde(deserialize_with = "one_or_many")]
    pub url: Vec<String>,
    /// How long an endpoint that is set aside may wait until it is asked again.
    pub probe: Option<Span>,
    /// Which write API to speak.
    #[serde(default)]
    pub api: Api,
    /// v1 and v3: the database, forced here so that no client can choose another.
    pub database: Option<String>,
    /// v1: the retention policy.
    pub retention_policy: Option<String>,
    /// v2: the organisation.
    pub org: Option<String>,
    /// v2: the bucket.
    pub bucket: Option<String>,
    /// v1: user name, sent as basic authentication.
    pub username: Option<String>,
    /// v1: password; better `password_file`.
    pub password: Option<Secret>,
    /// A file that holds the password.
    pub password_file: Option<PathBuf>,
    /// v2 and v3: token; better `token_file`.
    pub token: Option<Secret>,
    /// A file that holds the token.
    pub token_file: Option<PathBuf>,
    /// Whether bodies are compressed.
    #[serde(default)]
    pub gzip: Gzip,
    /// v1: whether to create the database when the gateway starts.
    #[serde(default)]
    pub create_database: bool,
    /// How numbers are written.
    #[serde(default)]
    pub integers: Integers,
    /// Whom to trust and what to show, where a URL begins with `https://`.
    pub tls: Option<Box<ClientSettings>>,
    /// A proxy's URL, or `none`; without it, what the environment says.
    pub proxy: Option<String>,
}

/// Whether bodies are compressed: `true`, `false`, or `"auto"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gzip {
    /// Unless all endpoints are on this machine, where it costs both sides and saves nothing.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

impl<'de> Deserialize<'de> for Gzip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl de::Visitor<'_> for Either {
            type Value = Gzip;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Gzip, E> {
                Ok(if on { Gzip::On } else { Gzip::Off })
            }

            // What comes from the environment is text.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Gzip, E> {
                match text {
                    "auto" => Ok(Gzip::Auto),
                    "true" => Ok(Gzip::On),
                    "false" => Ok(Gzip::Off),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Which write API to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/write?db=`, InfluxDB 1.x and VictoriaMetrics.
    #[default]
    V1,
    /// `/api/v2/write?org=&bucket=`.
    V2,
    /// `/api/v3/write_lp?db=`.
    V3,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integers {
    /// As floats, so that `1` followed by `1.5` is never a type conflict.
    #[default]
    Float,
    /// As integers where the input said an integer.
    Keep,
}

impl Config {
    /// Whether any endpoint is reached over TLS.
    pub fn is_secure(&self) -> bool {
        let is_https =
            |url: &String| url.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("https:"));
        self.url.iter().any(is_https)
    }

    /// What writes the line protocol.
    pub fn encoder(&self) -> line::Encoder {
        line::Encoder::new(line::EncoderOptions {
            integers: match self.integers {
                Integers::Float => line::Integers::Float,
                Integers::Keep => line::Integers::Keep,
            },
            // 1.x refuses the suffix `u` unless it was built for it.
            unsigned: self.api != Api::V1,
        })
    }
}

/// Ships payloads to one InfluxDB, whichever of its endpoints that is. Clones share what they know
/// about these.
#[derive(Clone, Debug)]
pub struct Shipper {
    client: reqwest::Client,
    request: Request,
    endpoints: Arc<Endpoints>,
    /// By endpoint, the database still to be created; `None` once it is there or was never asked
    /// for.
    create: Vec<Option<String>>,
}

impl Shipper {
    /// A shipper; connects when the first payload comes.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting cannot be used.
    pub fn new(config: &Config, world: &World<'_>) -> Result<Self, String> {
        let targets = Target::all(config)?;
        let request = Request::new(config, &targets);
        let mut builder = client(&request, targets.len() > 1, Lookup::new(world.book))?;
        if config.is_secure() {
            let tls = world.client(&config.tls.clone().unwrap_or_default())?;
            builder = builder.tls_backend_preconfigured(tls.config(&PROTOCOLS));
        }
        let builder = through(builder, config.proxy.as_deref())?;
        let client = builder.build().map_err(|error| format!("HTTP client: {error}"))?;
        let database = config.create_database.then(|| config.database.clone()).flatten();
        let create = vec![database; targets.len()];
        let longest = config.probe.unwrap_or(PROBE).0;
        let endpoints = Endpoints::new(world, client.clone(), targets, longest);
        Ok(Self { client, request, endpoints, create })
    }

    /// Tries one endpoint after the other, until one of them answers or none is well.
    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        let body = self.request.body(payload).await;
        let endpoints = Arc::clone(&self.endpoints);
        let mut outcome = Outcome::not_now("there is no endpoint");
        let mut next = endpoints.choose();
        for _ in 0..endpoints.len() {
            let Some(at) = next else { break };
            let tried = timeout(at.patience(), self.try_at(&at, body.clone())).await;
            let answers;
            (outcome, answers) = tried.unwrap_or_else(|_| silent());
            match &outcome {
                Outcome::Retry { detail, .. } if !answers => at.failed(detail),
                outcome => {
                    at.answered(delivered(outcome, payload.points));
                    break;
                }
            }
            next = endpoints.another();
        }
        outcome
    }

    /// What became of the payload at one endpoint, and whether that one is there.
    async fn try_at(&mut self, at: &Try<'_>, body: Bytes) -> (Outcome, bool) {
        if let Err((detail, answers)) = self.create_database(at).await {
            return (Outcome::not_now(detail), answers);
        }
        let sent = self.client.post(at.target().write.clone()).headers(self.request.headers());
        match sent.body(body).send().await {
            Ok(response) => {
                let answers = !is_away(response.status());
                (judge(response).await, answers)
            }
            Err(error) => (Outcome::not_now(trouble(error)), false),
        }
    }

    /// Creates the database at an endpoint, where this was asked for and is not yet done. An
    /// error says whether the endpoint is there. The crate's client would read an answer to its
    /// end, however long.
    async fn create_database(&mut self, at: &Try<'_>) -> Result<(), (String, bool)> {
        let Some(wanted) = self.create.get_mut(at.at()) else { return Ok(()) };
        let Some(database) = wanted else { return Ok(()) };
        let told =
            |error: String, answers| (format!("create database `{database}`: {error}"), answers);
        let quoted = database.replace('\\', "\\\\").replace('"', "\\\"");
        let query = influxdb::ReadQuery::new(format!("CREATE DATABASE \"{quoted}\"")).build();
        let query = query.map_err(|error| told(error.to_string(), true))?;
        let sent = self.client.post(at.target().query(&query.get())).send().await;
        let response = sent.map_err(|error| told(trouble(error), false))?;
        let status = response.status();
        let answer = start_of(response, ANSWER_WAIT).await;
        if !status.is_success() || answer.contains("\"error\"") {
            let error = format!("{} {}", status.as_u16(), answer::words(&answer));
            return Err(told(error, !is_away(status)));
        }
        *wanted = None;
        Ok(())
    }
}

fn client(
    request: &Request,
    has_choice: bool,
    lookup: Lookup,
) -> Result<reqwest::ClientBuilder, String> {
    let mut builder = http_client::builder()
        .default_headers(request.credentials()?)
        .pool_idle_timeout(POOL_IDLE)
        .dns_resolver(Arc::new(lookup));
    if has_choice {
        builder = builder.connect_timeout(CONNECT_WAIT);
    }
    Ok(builder)
}

/// With the proxy that was said, with none, or with what the environment says: `HTTPS_PROXY`,
/// `HTTP_PROXY`, `ALL_PROXY`. Hosts in `NO_PROXY` are asked directly in any case.
fn through(
    builder: reqwest::ClientBuilder,
    proxy: Option<&str>,
) -> Result<reqwest::ClientBuilder, String> {
    match proxy {
        None => Ok(builder),
        Some("none") => Ok(builder.no_proxy()),
        Some(url) => {
            let proxy = reqwest::Proxy::all(url).map_err(|_| "proxy: this is not a URL")?;
            Ok(builder.proxy(proxy.no_proxy(reqwest::NoProxy::from_env())))
        }
    }
}

async fn judge(response: reqwest::Response) -> Outcome {
    let status = response.status();
    let header = response.headers().get(reqwest::header::RETRY_AFTER);
    let retry_after = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
    if status == StatusCode::NO_CONTENT {
        return Outcome::Delivered;
    }
    let wait = if status.is_success() { GLANCE } else { ANSWER_WAIT };
    let body = start_of(response, wait).await;
    let answer =
        Answer { status: status.as_u16(), retry_after: retry_after.as_deref(), body: &body };
    answer.outcome(SystemTime::now())
}

fn silent() -> (Outcome, bool) {
    (Outcome::not_now("no answer to a trial"), false)
}

/// How many of so many points an endpoint took.
const fn delivered(outcome: &Outcome, points: u32) -> u32 {
    match outcome {
        Outcome::Delivered => points,
        Outcome::Partial { rejected, .. } => points.saturating_sub(*rejected),
        Outcome::Rejected { .. } | Outcome::Divide { .. } | Outcome::Retry { .. } => 0,
    }
}

impl Ship for Shipper {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(self.attempt(payload))
    }

    /// A point of the same series and time is the same point.
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// As much of an answer's body as comes in time. The status decides, so a body that is cut
/// short, slow or without end changes nothing but the words that are told.
async fn start_of(mut response: reqwest::Response, wait: Duration) -> String {
    let mut body = Vec::new();
    // What has come by then is enough.
    let _ = timeout(wait, http_client::read(&mut response, &mut body, ANSWER_BYTES_MAX)).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// Below the keep-alive of common servers and proxies (60 s and more), so that a connection is
/// rarely closed by the peer just as it is used.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// What a success has to say is read only so that its connection can be used again.
const GLANCE: Duration = Duration::from_millis(100);

/// A refusal says which points it means, in a body that its server has at hand.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// 3.x lists each line that it refused; ample for all the lines of a payload of the usual size.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// With several endpoints, how long one may take to let us in: far beyond any round trip, and
/// short enough that the attempt can go on to another.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// What is offered to servers, the best first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Often enough that one which is back gets its share soon.
const PROBE: Span = Span::secs(10);

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a list of texts")]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    match OneOrMany::deserialize(deserializer)? {
        // So a list in an environment variable is read again as what it is.
        OneOrMany::One(text) if text.starts_with('[') => {
            Err(de::Error::custom("a list is written without quotes around it"))
        }
        OneOrMany::One(text) => Ok(vec![text]),
        OneOrMany::Many(texts) => Ok(texts),
    }
}
