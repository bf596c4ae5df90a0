//! Asks a Taskcluster who has signed a request, and what he may.
//!
//! Its keys never leave it, so it is told what was signed and how, and answers with scopes. An answer
//! holds for exactly the header and the target that it was asked about, until it expires, and no longer
//! than the service itself accepts the header: a quarter of an hour after its time. Headers that are
//! further away from now than that are not asked about.
//!
//! Limits: [`ANSWERS_MAX`] answers, [`ASKING_MAX`] questions at a time, [`PATIENCE`] for each. One address
//! has [`Turns`] for only a few of the questions, unless all clients come by a proxy.

use super::gate::{Gate, Principal};
use super::hawk::{Hawk, Signed, Target};
use super::scope::Scopes;
use super::turns::Turns;
use crate::http_client::{self, trouble};
use protocols::UnixNanos;
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A Taskcluster, and the principal that all it vouches for are.
pub struct AuthService {
    principal: Arc<Principal>,
    url: String,
    client: OnceLock<Option<reqwest::Client>>,
    answers: Mutex<HashMap<[u8; 32], Vouched>>,
    asking: Turns,
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
    /// Too much is being asked already, by his address or by all.
    Busy,
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
    /// At the Taskcluster that this names, if it names one.
    pub(super) fn new(principal: Arc<Principal>, hawk: &Hawk) -> Option<Self> {
        let root_url = hawk.root_url.as_ref()?.trim_end_matches('/');
        let url = format!("{root_url}/api/auth/v1/authenticate-hawk");
        let (client, answers) = (OnceLock::new(), Mutex::default());
        let each = if hawk.trust_forwarded { ASKING_MAX } else { ASKING_EACH };
        Some(Self { principal, url, client, answers, asking: Turns::new(ASKING_MAX, each) })
    }

    /// The gate for somebody that it has vouched for.
    pub fn gate(&self, vouched: &Vouched) -> Gate {
        Gate::within(Arc::clone(&self.principal), Arc::clone(&vouched.scopes))
    }

    /// What it says for whoever has signed a request that came from there.
    ///
    /// # Errors
    ///
    /// It does not vouch for him, or cannot be asked, or not now.
    pub async fn ask(
        &self,
        signed: &Signed,
        target: &Target,
        from: Option<IpAddr>,
        now: UnixNanos,
    ) -> Result<Vouched, Unvouched> {
        if now.0.saturating_sub(signed.time().0).unsigned_abs() > LATEST.unsigned_abs() {
            return Err(Unvouched::Denied);
        }
        let question = fingerprint(signed, target);
        if let Some(vouched) = self.answers().get(&question).filter(|it| now < it.until) {
            return Ok(vouched.clone());
        }
        let _turn = self.asking.take(from).ok_or(Unvouched::Busy)?;
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
        let client = self
            .client
            .get_or_init(|| http_client::builder().build().ok())
            .as_ref()
            .ok_or("there is no HTTP client")?;
        let asked = client.post(&self.url).timeout(PATIENCE);
        let asked = asked.header("content-type", "application/json").body(question.to_string());
        let answer = asked.send().await.map_err(trouble)?;
        if !answer.status().is_success() {
            return Err(format!("it answers {}", answer.status()));
        }
        let body = body(answer).await?;
        serde_json::from_slice(&body).map_err(|_| "it answers something else".to_owned())
    }

    /// If there is no room, drops the answers that have expired, or all if none have.
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

/// When an answer expires. One whose end cannot be read is not remembered.
fn until(signed: &Signed, expires: &str) -> UnixNanos {
    let expires = expires.parse::<jiff::Timestamp>().map_or(0, |time| time.as_nanosecond());
    let expires = i64::try_from(expires).unwrap_or(i64::MAX);
    UnixNanos(expires.min(signed.time().0.saturating_add(LATEST)))
}

async fn body(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    http_client::read(&mut answer, &mut body, BODY_MAX).await.map_err(trouble)?;
    if body.len() > BODY_MAX { Err("its answer is too long".to_owned()) } else { Ok(body) }
}

const ANSWERS_MAX: usize = 10_000;
const ASKING_MAX: usize = 64;
/// Of them, for one address.
const ASKING_EACH: usize = 8;
/// A client that is kept waiting for longer comes again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tens of thousands of scopes.
const BODY_MAX: usize = 4 << 20;
/// How old a header may be for the service, in nanoseconds.
const LATEST: i64 = 15 * 60 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn service(trust_forwarded: bool) -> AuthService {
        // Nobody listens there.
        let root_url = Some("http://127.0.0.1:1".to_owned());
        let hawk = Hawk { root_url, trust_forwarded, ..Hawk::default() };
        let config = serde_json::from_str("{}").unwrap();
        AuthService::new(Arc::new(Principal::new("x", &config, Arc::default())), &hawk).unwrap()
    }

    fn signed(ts: i64) -> Signed {
        let header = format!("id=\"a\", ts=\"{ts}\", nonce=\"n\", mac=\"AAAA\"");
        Signed::parse(&header, &header).unwrap()
    }

    fn target() -> Target {
        let (method, resource) = ("POST".to_owned(), "/v1/points".to_owned());
        Target { method, resource, host: "h".to_owned(), port: 80 }
    }

    #[tokio::test]
    async fn what_no_service_takes_is_not_asked() {
        let service = service(false);
        let now = 1_700_000_000;
        for (ts, asked) in [(0, false), (901, false), (900, true), (-900, true), (-901, false)] {
            let ts = if ts == 0 { 0 } else { now + ts };
            let answer = service.ask(&signed(ts), &target(), None, UnixNanos::from_secs(now)).await;
            match answer.unwrap_err() {
                Unvouched::Denied => assert!(!asked, "{ts}"),
                Unvouched::Away(why) => assert!(asked && why.contains("refused"), "{ts} {why}"),
                Unvouched::Busy => panic!("{ts}"),
            }
        }
    }

    #[tokio::test]
    async fn a_stranger_leaves_turns_for_others() {
        let now = UnixNanos::from_secs(1_700_000_000);
        for (trust_forwarded, busy) in [(false, true), (true, false)] {
            let service = service(trust_forwarded);
            let from = |text: &str| Some(text.parse().unwrap());
            let turns: Vec<_> =
                (0..ASKING_EACH).map(|_| service.asking.take(from("192.0.2.1")).unwrap()).collect();
            let ask = async |address| {
                service.ask(&signed(now.secs()), &target(), from(address), now).await.unwrap_err()
            };
            assert_eq!(ask("192.0.2.1").await == Unvouched::Busy, busy);
            assert!(matches!(ask("192.0.2.2").await, Unvouched::Away(_)));
            drop(turns);
            assert!(matches!(ask("192.0.2.1").await, Unvouched::Away(_)));
        }
    }
}
