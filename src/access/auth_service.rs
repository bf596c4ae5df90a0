//! Asks a Taskcluster who has signed a request, and what he may.
//!
//! Its keys never leave it, so it is told what was signed and how, and answers with scopes. An answer
//! holds for the very header and the very target that it was asked about, until it expires, and no
//! longer than the service itself would take the header: a quarter of an hour after its time. Bounds: [`ANSWERS_MAX`] answers, [`ASKING_MAX`] questions at
//! a time, [`PATIENCE`] for each.

use super::gate::{Gate, Principal};
use super::hawk::{Signed, Target};
use super::scope::Scopes;
use protocols::UnixNanos;
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A Taskcluster, and the principal that all it vouches for are.
pub struct AuthService {
    principal: Arc<Principal>,
    url: String,
    client: OnceLock<Option<reqwest::Client>>,
    answers: Mutex<HashMap<[u8; 32], Vouched>>,
    asking: Semaphore,
}

/// What the service says for somebody.
#[derive(Clone, Debug)]
pub struct Vouched {
    scopes: Arc<Scopes>,
    /// What the payload has to be.
    pub hash: Option<String>,
    until: UnixNanos,
}

/// Why there are no scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unvouched {
    /// The service does not know him, or not so.
    Denied,
    /// The service cannot be asked; for the log.
    Away(String),
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
enum Said {
    AuthSuccess { scopes: Vec<String>, expires: String, hash: Option<String> },
    AuthFailed {},
    NoAuth {},
}

impl AuthService {
    pub(super) fn new(principal: Arc<Principal>, root_url: &str) -> Self {
        let url = format!("{}/api/auth/v1/authenticate-hawk", root_url.trim_end_matches('/'));
        let (client, answers) = (OnceLock::new(), Mutex::default());
        Self { principal, url, client, answers, asking: Semaphore::new(ASKING_MAX) }
    }

    /// The gate for somebody that it has vouched for.
    pub fn gate(&self, vouched: &Vouched) -> Gate {
        Gate::within(Arc::clone(&self.principal), Arc::clone(&vouched.scopes))
    }

    /// What it says for whoever has signed a request that came from there.
    ///
    /// # Errors
    ///
    /// It does not vouch for him, or cannot be asked.
    pub async fn ask(
        &self,
        signed: &Signed,
        target: &Target,
        from: Option<IpAddr>,
        now: UnixNanos,
    ) -> Result<Vouched, Unvouched> {
        let question = fingerprint(signed, target);
        if let Some(vouched) = self.answers().get(&question).filter(|it| now < it.until) {
            return Ok(vouched.clone());
        }
        let Ok(_turn) = self.asking.try_acquire() else {
            return Err(Unvouched::Away(format!("{ASKING_MAX} questions are open already")));
        };
        let said = self.send(signed, target, from).await.map_err(Unvouched::Away)?;
        let Said::AuthSuccess { scopes, expires, hash } = said else {
            return Err(Unvouched::Denied);
        };
        let until = until(signed, &expires);
        let vouched = Vouched { scopes: Arc::new(Scopes::new(&scopes)), hash, until };
        self.remember(question, &vouched, now);
        Ok(vouched)
    }

    async fn send(
        &self,
        signed: &Signed,
        target: &Target,
        from: Option<IpAddr>,
    ) -> Result<Said, String> {
        let Target { method, resource, host, port } = target;
        let mut question = json!({
            "method": method.to_ascii_lowercase(),
            "resource": resource,
            "host": host,
            "port": port,
            "authorization": signed.header,
        });
        if let (Some(from), Some(question)) = (from, question.as_object_mut()) {
            question.insert("sourceIp".to_owned(), from.to_string().into());
        }
        let client = self.client.get_or_init(client).as_ref().ok_or("there is no HTTP client")?;
        let asked = client.post(&self.url).timeout(PATIENCE);
        let asked = asked.header("content-type", "application/json").body(question.to_string());
        let answer = asked.send().await.map_err(|error| error.without_url().to_string())?;
        if !answer.status().is_success() {
            return Err(format!("it answers {}", answer.status()));
        }
        let body = body(answer).await?;
        serde_json::from_slice(&body).map_err(|_| "it answers something else".to_owned())
    }

    /// Room is made by those that have expired; when they have not, by all.
    fn remember(&self, question: [u8; 32], vouched: &Vouched, now: UnixNanos) {
        let mut answers = self.answers();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, known| now < known.until);
        }
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(question, vouched.clone());
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<[u8; 32], Vouched>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AuthService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthService").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Each part says how long it is, so that none runs into the next.
fn fingerprint(signed: &Signed, target: &Target) -> [u8; 32] {
    let Target { method, resource, host, port } = target;
    let port = port.to_string();
    let mut all = Context::new(&SHA256);
    for part in [&signed.header, method, resource, host, &port] {
        all.update(&(part.len() as u64).to_le_bytes());
        all.update(part.as_bytes());
    }
    let mut print = [0; 32];
    print.iter_mut().zip(all.finish().as_ref()).for_each(|(to, from)| *to = *from);
    print
}

/// Of an answer whose end cannot be read, nothing is remembered.
fn until(signed: &Signed, expires: &str) -> UnixNanos {
    let expires = expires.parse::<jiff::Timestamp>().map_or(0, |time| time.as_nanosecond());
    let expires = i64::try_from(expires).unwrap_or(i64::MAX);
    UnixNanos(expires.min(signed.time().0.saturating_add(LATEST)))
}

async fn body(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| error.without_url().to_string())? {
        if body.len() + chunk.len() > BODY_MAX {
            return Err("its answer is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn client() -> Option<reqwest::Client> {
    // It fails only when there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none());
    builder.build().ok()
}

const ANSWERS_MAX: usize = 10_000;
const ASKING_MAX: usize = 64;
/// A client that is kept waiting for longer comes again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tens of thousands of scopes.
const BODY_MAX: usize = 4 << 20;
/// How old a header may be for the service, in nanoseconds.
const LATEST: i64 = 15 * 60 * 1_000_000_000;
