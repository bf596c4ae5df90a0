//! Artifacts of tasks, from the queue of a Taskcluster.
//!
//! ```text
//! GET <root_url>/api/queue/v1/task/<task>/runs/<run>/artifacts/<name>
//!   ├─► 200                ─► its bytes
//!   ├─► 303, Location      ─► from there, at most five times
//!   ├─► 403, 404, 410      ─► not to be had; try the next name
//!   ├─► 424                ─► the task has left an error in its place
//!   └─► 5xx, 429, nothing  ─► again, five times, after a delay that doubles; after 401 as well, if the
//!                             request was signed: a key may be about to change, or a clock to be set
//! ```
//!
//! Only the request for the artifact is signed, if there are credentials, and none that an answer leads
//! to, not even one to the Taskcluster itself: neither a task nor whoever keeps its files may choose what
//! is read in the gateway's name. (Where the Taskcluster leads to another of its own services, it puts a
//! signature into the address, and beside that a second one would be refused.)
//!
//! Usually the queue decides where an artifact is kept. For a mere link (`reference`) the task does, and
//! a task must not make this host fetch what only this host can reach. So links, and artifacts of which
//! the queue does not say what they are, are followed only where the configuration allows it. From https,
//! redirects are followed only to https.

use super::answer::{Failure, away, broken, is_reference, refused};
use super::config::Tasks;
use super::content::{self, Claims, Problem};
use super::reason::Reason;
use super::retry::Retry;
use crate::access::{SigningKey, Target};
use crate::clock::Clock;
use crate::tls;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use protocols::pulse::TaskId;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderValue, LOCATION};
use reqwest::{Response, StatusCode, Url};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

/// Where artifacts are fetched.
#[derive(Debug)]
pub(super) struct Artifacts {
    root: Url,
    client: reqwest::Client,
    tls: tls::Client,
    key: Option<SigningKey>,
    names: Vec<String>,
    references: bool,
    retry: Retry,
    bytes_max: usize,
    patience: Duration,
    clock: Clock,
    turns: Semaphore,
}

/// What an artifact has in it.
#[derive(Debug)]
pub(super) struct Artifact<'a> {
    /// The name that it was found by.
    pub(super) name: &'a str,
    /// Unpacked.
    pub(super) content: Vec<u8>,
    /// Its place among the artifacts that may be in memory at a time.
    _turn: SemaphorePermit<'a>,
}

impl Artifacts {
    /// By a configuration that was judged: `bytes_max` for an artifact, `patience` for an attempt.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn new(
        tasks: &Tasks,
        bytes_max: usize,
        patience: Duration,
        clock: Clock,
    ) -> Result<Self, String> {
        let root = Url::parse(&tasks.root_url).map_err(|_| "root_url: this is not a URL")?;
        let settings = tasks.tls.clone().unwrap_or_default();
        let (tls, _) = tls::Client::load(&settings).map_err(|problem| problem.to_string())?;
        let client = reqwest::Client::builder()
            .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(tls.config(&["h2", "http/1.1"]))
            .build()
            .map_err(|error| {
                tls::client::explain(&error, tls::client::Told::ByGateway)
                    .unwrap_or_else(|| error.to_string())
            })?;
        let credentials = tasks.client_id.as_ref().zip(tasks.access_token.as_ref());
        Ok(Self {
            root,
            client,
            tls,
            key: credentials.map(|(id, token)| SigningKey::new(id, token)),
            names: tasks.artifacts.clone(),
            references: tasks.references,
            retry: tasks.retry,
            bytes_max,
            patience,
            clock,
            turns: Semaphore::new(TURNS),
        })
    }

    /// What looks for new certificates.
    pub(super) const fn tls(&self) -> &tls::Client {
        &self.tls
    }

    /// The first artifact of that run that is there.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be taken.
    pub(super) async fn find(&self, task: &TaskId, run: u16) -> Result<Artifact<'_>, Problem> {
        let mut worst = Problem(Reason::Missing, "there is none of these names".to_owned());
        for name in &self.names {
            match self.fetch(task, run, name).await {
                Ok(artifact) => return Ok(artifact),
                // Perhaps it is there by another name.
                Err(problem) if rank(problem.0) > 0 => {
                    if rank(problem.0) > rank(worst.0) {
                        worst = problem;
                    }
                }
                Err(problem) => return Err(problem),
            }
        }
        Err(worst)
    }

    async fn fetch<'a>(
        &'a self,
        task: &TaskId,
        run: u16,
        name: &'a str,
    ) -> Result<Artifact<'a>, Problem> {
        let path = utf8_percent_encode(name, PATH);
        let path = format!("/api/queue/v1/task/{task}/runs/{run}/artifacts/{path}");
        let mut url = self.root.clone();
        url.set_path(&format!("{}{path}", self.root.path().trim_end_matches('/')));
        let mut failures = 0;
        loop {
            // The semaphore is never closed. Others may have the turn while this one sleeps.
            let turn = self.turns.acquire().await;
            let turn = turn.map_err(|error| away(error.to_string()))?;
            let attempt = timeout(self.patience, self.attempt(url.clone())).await;
            let attempt = attempt.unwrap_or_else(|_| {
                Err(Failure::Passing(away("it does not answer in time".to_owned()), None))
            });
            let (problem, after) = match attempt {
                Ok(content) => return Ok(Artifact { name, content, _turn: turn }),
                Err(Failure::Final(problem)) => return Err(problem),
                Err(Failure::Passing(problem, after)) => (problem, after),
            };
            drop(turn);
            if failures == RETRIES {
                return Err(problem);
            }
            sleep(self.retry.delay(failures, after, rand::random())).await;
            failures += 1;
        }
    }

    /// Asks once, and goes where the answers lead.
    async fn attempt(&self, mut url: Url) -> Result<Vec<u8>, Failure> {
        let mut claims = Claims::default();
        for hop in 0..=REDIRECTS {
            let is_first = hop == 0;
            let is_ours = url.origin() == self.root.origin();
            let key = self.key.as_ref().filter(|_| is_first);
            let answer = self.get(&url, key).await?;
            if is_ours {
                // Other servers are not trusted to say what the artifact should be.
                claims = claims.or(Claims::of(answer.headers()));
            }
            match answer.status() {
                StatusCode::OK => return self.take(answer, &claims).await,
                status if status.is_redirection() => {
                    let to = leads_to(&url, &answer)?;
                    // The queue says so of every artifact; the service of objects, where it may lead,
                    // of none.
                    if is_ours && !self.references && is_reference(answer, is_first).await {
                        return Err(Failure::Final(Problem(Reason::Reference, LINK.to_owned())));
                    }
                    url = to;
                }
                _ => return Err(refused(answer, is_ours, key.is_some()).await),
            }
        }
        let text = format!("it leads on and on, more than {REDIRECTS} times");
        Err(Failure::Final(Problem(Reason::Redirect, text)))
    }

    async fn get(&self, url: &Url, key: Option<&SigningKey>) -> Result<Response, Failure> {
        let request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "gzip");
        let request = match key.and_then(|key| self.signature(key, url)) {
            Some(signature) => request.header(AUTHORIZATION, signature),
            None => request,
        };
        request.send().await.map_err(broken)
    }

    fn signature(&self, key: &SigningKey, url: &Url) -> Option<HeaderValue> {
        let query = url.query().map_or(String::new(), |query| format!("?{query}"));
        let target = Target {
            method: "GET".to_owned(),
            resource: format!("{}{query}", url.path()),
            host: url.host_str()?.to_owned(),
            port: url.port_or_known_default()?,
        };
        let nonce = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 9]>());
        let header = key.sign(&target, self.clock.now(), &nonce);
        let mut header = HeaderValue::from_str(&header).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    async fn take(&self, mut answer: Response, claims: &Claims) -> Result<Vec<u8>, Failure> {
        let max = self.bytes_max;
        let too_large =
            || Failure::Final(Problem(Reason::TooLarge, format!("it has more than {max} bytes")));
        let encoding = answer.headers().get(CONTENT_ENCODING);
        let encoding = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if answer.content_length().is_some_and(|length| length > max as u64) {
            return Err(too_large());
        }
        let mut packed = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            if packed.len() + chunk.len() > max {
                return Err(too_large());
            }
            packed.extend_from_slice(&chunk);
        }
        let claims = claims.clone();
        // Unpacking, and hashing, may take a while.
        let opening = tokio::task::spawn_blocking(move || {
            content::open(packed, encoding.as_deref(), &claims, max)
        });
        match opening.await {
            Ok(opened) => opened.map_err(Failure::Final),
            Err(error) => Err(Failure::Passing(away(error.to_string()), None)),
        }
    }
}

/// Where an answer leads, if we may go there.
fn leads_to(from: &Url, answer: &Response) -> Result<Url, Failure> {
    let wrong = |text: &str| Failure::Final(Problem(Reason::Redirect, text.to_owned()));
    let location = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    let location = location.ok_or_else(|| wrong("it leads nowhere"))?;
    let to = from.join(location).map_err(|_| wrong("it leads to what is no URL"))?;
    if !may_lead(from, &to) {
        return Err(wrong("it leads to where nothing is fetched: from https only to https"));
    }
    Ok(to)
}

/// What travelled encrypted does not go on in the clear, and nothing leads to a file.
fn may_lead(from: &Url, to: &Url) -> bool {
    let is_safe = match to.scheme() {
        "https" => true,
        "http" => from.scheme() == "http",
        _ => false,
    };
    is_safe && to.has_host()
}

/// How telling a reason is, of those after which another name is tried; 0 for all others.
const fn rank(reason: Reason) -> u8 {
    match reason {
        Reason::Missing => 1,
        Reason::Expired => 2,
        Reason::Forbidden => 3,
        _ => 0,
    }
}

/// What stands in a path as it is: letters, digits, these, and the slash between folders.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// How often a request is repeated.
const RETRIES: u32 = 5;
const REDIRECTS: u32 = 5;
const LINK: &str = "it is only a link, or may be one; `references = true` follows such";
/// How many artifacts are in memory at a time, packed and unpacked.
const TURNS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::response::Response;
    use protocols::UnixNanos;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use tokio::net::TcpListener;

    const TASK: &str = "fN1SbArXTPSVFNUvaOlinQ";

    type Answers = BTreeMap<&'static str, Vec<(u16, Vec<(&'static str, String)>, &'static str)>>;

    /// A queue that answers for these names, one time after the other; what it was asked.
    async fn queue(answers: Answers) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answers) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Mutex::new(answers)));
        let log = Arc::clone(&asked);
        let answer = move |request: Request| {
            let path = request.uri().path();
            let signed = if request.headers().contains_key(AUTHORIZATION) { " signed" } else { "" };
            log.lock().unwrap().push(format!("{path}{signed}"));
            let name = path.split_once("/artifacts/").map_or(path, |(_, name)| name);
            let mut answers = answers.lock().unwrap();
            let (status, headers, body) = match answers.get_mut(name) {
                Some(left) if left.len() > 1 => left.remove(0),
                Some(left) => left[0].clone(),
                None => (404, Vec::new(), ""),
            };
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            std::future::ready(response.body(Body::from(body)).unwrap())
        };
        let app = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        (url, asked)
    }

    /// What is found of a task's artifacts `a`, `b`, and in how many requests.
    async fn found(answers: Answers, more: Value) -> (Result<(String, Vec<u8>), Reason>, usize) {
        let (found, asked) = found_by(answers, more).await;
        (found, asked.len())
    }

    /// The same, and by which requests.
    async fn found_by(
        answers: Answers,
        more: Value,
    ) -> (Result<(String, Vec<u8>), Reason>, Vec<String>) {
        let (root_url, asked) = queue(answers).await;
        let mut section = json!({
            "root_url": root_url, "artifacts": ["a", "b"], "retry": { "first": "1ms", "max": "2ms" },
        });
        section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tasks = serde_json::from_value(section).unwrap();
        let clock = Clock::starting_at(UnixNanos::from_secs(1_700_000_000));
        let patience = Duration::from_secs(20);
        let artifacts = Artifacts::new(&tasks, 100, patience, clock).unwrap();
        let found = artifacts.find(&TaskId::parse(TASK).unwrap(), 3).await;
        let found = found.map(|artifact| (artifact.name.to_owned(), artifact.content));
        let path = format!("/api/queue/v1/task/{TASK}/runs/3/artifacts/");
        let asked = asked.lock().unwrap().clone();
        assert!(asked[0].starts_with(&path), "{asked:?}");
        (found.map_err(|problem| problem.0), asked)
    }

    fn plain(status: u16, body: &'static str) -> (u16, Vec<(&'static str, String)>, &'static str) {
        (status, Vec::new(), body)
    }

    #[tokio::test]
    async fn names_are_tried_in_order() {
        let check = async |a: u16, b: u16, expected: Result<(&str, &str), Reason>, requests| {
            let answers = BTreeMap::from([("a", vec![plain(a, "A")]), ("b", vec![plain(b, "B")])]);
            let (found, asked) = found(answers, json!({})).await;
            let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
            assert_eq!((found, asked), (expected, requests), "{a} {b}");
        };
        check(200, 200, Ok(("a", "A")), 1).await;
        check(404, 200, Ok(("b", "B")), 2).await;
        check(403, 200, Ok(("b", "B")), 2).await;
        check(404, 404, Err(Reason::Missing), 2).await;
        check(410, 404, Err(Reason::Expired), 2).await;
        check(404, 401, Err(Reason::Forbidden), 2).await;
        check(424, 200, Err(Reason::Error), 1).await;
        check(418, 200, Err(Reason::Answer), 1).await;
        check(500, 200, Err(Reason::Unavailable), 6).await;
        check(429, 200, Err(Reason::Unavailable), 6).await;
    }

    #[tokio::test]
    async fn what_is_away_for_a_while_is_asked_again() {
        let mut answers: Vec<_> = [503, 502, 500, 408, 429].map(|status| plain(status, "")).into();
        answers.push(plain(200, "at last"));
        let (found, asked) = found(BTreeMap::from([("a", answers)]), json!({})).await;
        assert_eq!((found.unwrap().1, asked), (b"at last".to_vec(), 6));
    }

    /// So that a change of the key loses nothing.
    #[tokio::test]
    async fn a_signature_that_is_refused_is_tried_again() {
        let answers =
            || BTreeMap::from([("a", vec![plain(401, ""), plain(401, ""), plain(200, "A")])]);
        let signed = json!({ "client_id": "c", "access_token": "no-secret" });
        let (found_signed, asked) = found(answers(), signed).await;
        assert_eq!((found_signed.unwrap().1, asked), (b"A".to_vec(), 3));
        let (found_bare, asked) = found(answers(), json!({})).await;
        assert_eq!((found_bare, asked), (Err(Reason::Forbidden), 2));
    }

    #[tokio::test]
    async fn redirects_are_followed_within_reason() {
        let to = |place: &str, kind: &str| {
            let headers = vec![
                ("location", place.to_owned()),
                ("x-taskcluster-artifact-storage-type", kind.to_owned()),
            ];
            vec![(303, headers, "")]
        };
        let check = async |lead: Vec<_>, more: Value, expected: Result<&str, Reason>| {
            let answers = BTreeMap::from([("a", lead), ("/kept", vec![plain(200, "kept")])]);
            let found = found(answers, more).await.0;
            let found = found.map(|(_, content)| String::from_utf8(content).unwrap());
            assert_eq!(found, expected.map(str::to_owned));
        };
        check(to("/kept", "s3"), json!({}), Ok("kept")).await;
        check(to("/kept", "object"), json!({}), Ok("kept")).await;
        check(to("/kept", "reference"), json!({}), Err(Reason::Reference)).await;
        check(to("/kept", "reference"), json!({ "references": true }), Ok("kept")).await;
        let told = (303, vec![("location", "/kept".to_owned())], r#"{"storageType":"reference"}"#);
        check(vec![told], json!({}), Err(Reason::Reference)).await;
        let long: &str =
            format!(r#"{{"url":"/kept?{}","storageType":"reference"}}"#, "x".repeat(9000)).leak();
        for untold in [long, "See Other", r#"{"url":"/kept"}"#] {
            let led = || vec![(303, vec![("location", "/kept".to_owned())], untold)];
            check(led(), json!({}), Err(Reason::Reference)).await;
            check(led(), json!({ "references": true }), Ok("kept")).await;
        }
        check(to("file:///etc/passwd", "s3"), json!({}), Err(Reason::Redirect)).await;
        check(vec![plain(303, "")], json!({}), Err(Reason::Redirect)).await;
        check(to("a", "s3"), json!({}), Err(Reason::Redirect)).await;
    }

    /// The queue leads to the service that keeps objects, and that to where they are.
    #[tokio::test]
    async fn the_service_of_objects_does_not_say_that_it_leads_to_none() {
        let object = "/api/object/v1/download/a";
        let kind = ("x-taskcluster-artifact-storage-type", "object".to_owned());
        let answers = BTreeMap::from([
            ("a", vec![(303, vec![("location", format!("{object}?bewit=x")), kind], "")]),
            (object, vec![(303, vec![("location", "/kept".to_owned())], "See Other")]),
            ("/kept", vec![plain(200, "kept")]),
        ]);
        assert_eq!(found(answers, json!({})).await.0.unwrap().1, b"kept");
    }

    /// Or a task would have a link to what the gateway may read, and it may not.
    #[tokio::test]
    async fn nothing_is_signed_but_the_request_for_the_artifact() {
        for kind in ["s3", "reference"] {
            let headers = vec![
                ("location", "/api/secrets/v1/secret/x".to_owned()),
                ("x-taskcluster-artifact-storage-type", kind.to_owned()),
            ];
            let kept = vec![plain(200, "kept")];
            let answers = BTreeMap::from([
                ("a", vec![(303, headers, "")]),
                ("/api/secrets/v1/secret/x", kept),
            ]);
            let more = json!({ "references": true, "client_id": "c", "access_token": "t" });
            let (found, asked) = found_by(answers, more).await;
            assert_eq!(found.unwrap().1, b"kept");
            let signed: Vec<_> = asked.iter().map(|path| path.ends_with(" signed")).collect();
            assert_eq!(signed, [true, false], "{asked:?}");
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_read() {
        let long: &str = "x".repeat(101).leak();
        let answers = BTreeMap::from([("a", vec![plain(200, long)])]);
        assert_eq!(found(answers, json!({})).await.0, Err(Reason::TooLarge));
    }

    #[test]
    fn nothing_leads_out_of_encryption() {
        let leads =
            |from: &str, to: &str| may_lead(&Url::parse(from).unwrap(), &Url::parse(to).unwrap());
        assert!(leads("https://a/", "https://b/") && leads("http://a/", "http://b/"));
        assert!(leads("http://a/", "https://b/"));
        assert!(!leads("https://a/", "http://b/"));
        assert!(!leads("http://a/", "file:///b") && !leads("http://a/", "ftp://b/"));
    }

    #[test]
    fn names_become_paths() {
        for (name, path) in [
            ("statistics/influx-points.csv", "statistics/influx-points.csv"),
            ("public/a b?c#d%2F.csv", "public/a%20b%3Fc%23d%252F.csv"),
            ("\u{e9}", "%C3%A9"),
        ] {
            assert_eq!(utf8_percent_encode(name, PATH).to_string(), path);
        }
    }
}
