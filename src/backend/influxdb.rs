//! InfluxDB 1.x, 2.x and 3.x over HTTP, as line protocol.
//!
//! Writes are sent with `reqwest`, since the crate `influxdb` drops the error's body and
//! `Retry-After`; that crate creates the database. What an answer means is decided in
//! [`answer`] alone. Credentials travel in a header, never in a URL, which logs and proxies keep.

pub mod answer;
mod request;

use super::{Outcome, Payload, Ship, Shipping};
use crate::units::Secret;
use answer::Answer;
use protocols::influxdb as line;
use request::Request;
use reqwest::StatusCode;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What is particular to this kind of backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Scheme, host and port (and a path prefix, if a proxy wants one); never credentials.
    pub url: String,
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
    #[serde(default = "yes")]
    pub gzip: bool,
    /// v1: whether to create the database when the gateway starts.
    #[serde(default)]
    pub create_database: bool,
    /// How numbers are written.
    #[serde(default)]
    pub integers: Integers,
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

/// Ships payloads to one InfluxDB.
#[derive(Debug)]
pub struct Shipper {
    client: reqwest::Client,
    request: Request,
    /// The database still to be created; `None` once it is there or was never asked for.
    create: Option<String>,
}

impl Shipper {
    /// A shipper; connects when the first payload comes.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting cannot be used.
    pub fn new(config: &Config) -> Result<Self, String> {
        // The first caller wins and the others are told so, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = Request::new(config)?;
        let client = reqwest::Client::builder()
            .default_headers(request.credentials()?)
            .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(POOL_IDLE)
            .build()
            .map_err(|error| format!("HTTP client: {error}"))?;
        let create = config.create_database.then(|| config.database.clone()).flatten();
        Ok(Self { client, request, create })
    }

    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        if let Some(database) = &self.create {
            match self.create_database(database).await {
                Ok(()) => self.create = None,
                Err(detail) => return Outcome::not_now(detail),
            }
        }
        let body = self.request.body(payload).await;
        let sent =
            self.client.post(self.request.url.clone()).headers(self.request.headers()).body(body);
        match sent.send().await {
            Ok(response) => self.judge(response).await,
            Err(error) => Outcome::not_now(causes(&error.without_url())),
        }
    }

    async fn judge(&self, response: reqwest::Response) -> Outcome {
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

    async fn create_database(&self, database: &str) -> Result<(), String> {
        let quoted = database.replace('\\', "\\\\").replace('"', "\\\"");
        let query = influxdb::ReadQuery::new(format!("CREATE DATABASE \"{quoted}\""));
        let client = influxdb::Client::new(self.request.base.as_str(), database)
            .with_http_client(self.client.clone());
        match client.query(query).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("create database `{database}`: {error}")),
        }
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
    let read = async {
        while body.len() < ANSWER_BYTES_MAX
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
    };
    // What has come by then is enough.
    let _ = tokio::time::timeout(wait, read).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// An error with its causes: "error sending request: connection refused".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
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

const fn yes() -> bool {
    true
}
