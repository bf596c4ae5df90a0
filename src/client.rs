//! A client of a gateway's `PUT /v1/points`, for the commands that send points there.
//!
//! A body goes with an `Idempotency-Key`, and is sent again under the same key, after a delay that
//! doubles or as long as `Retry-After` says, until it is known what became of it: a network that
//! breaks, a gateway that is full or away and an answer that was lost cost time and count no point
//! twice. What an answer means is decided in [`verdict`] alone. The token is read from a file, goes
//! into one header, and is shown by nothing.

mod place;
mod verdict;

pub use place::{Place, cause, http, shown};
pub use verdict::{Taken, Verdict};

use crate::units::Secret;
use crate::{http_client, small_file};
use bytes::Bytes;
use rand::random;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use verdict::Told;

/// One gateway.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    points: Url,
    /// What the points are from.
    about: HeaderMap,
}

impl Client {
    /// For the gateway at a place; `delivered` asks it to answer once every backend has the points.
    ///
    /// # Errors
    ///
    /// What is wrong with the address, the token or the roots.
    pub fn new(place: &Place, delivered: bool) -> Result<Self, String> {
        let (token, points) = (place.token()?, points(place.to(), delivered)?);
        let http = http(points.as_str(), place.ca.as_deref())?
            .default_headers(headers(token.as_ref())?)
            .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .build()
            .map_err(|error| format!("HTTP client: {error}"))?;
        Ok(Self { http, points, about: HeaderMap::new() })
    }

    /// The same, for points of a file, or of a task and its run; whoever owns these is told of what is
    /// refused. What says nothing, or no header can say, is left out.
    #[must_use]
    pub fn about(mut self, about: &[(&'static str, &str)]) -> Self {
        for (what, value) in about.iter().filter(|(_, value)| !value.is_empty()) {
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                self.about.insert(*what, value);
            }
        }
        self
    }

    /// The gateway's address, however it was written.
    pub fn address(&self) -> String {
        let mut address = self.points.clone();
        address.set_query(None);
        address.into()
    }

    /// The same for people, and without whatever may be a secret.
    pub fn shown(&self) -> String {
        shown(&self.address()).to_owned()
    }

    /// Sends JSON lines until it is known what became of them, or `deadline`. After each failure `rest` is
    /// told why, and waits.
    pub async fn put(
        &self,
        key: &str,
        lines: Bytes,
        deadline: Instant,
        rest: impl AsyncFn(&str, Pause),
    ) -> Verdict {
        let mut why = "no answer came in time".to_owned();
        for failures in 0.. {
            let Ok(verdict) = timeout_at(deadline, self.try_once(key, lines.clone())).await else {
                break;
            };
            let Verdict::Again { why: reason, after } = verdict else { return verdict };
            why = reason;
            let pause = Pause::new(failures, after, random());
            if Instant::now() + pause.whole() >= deadline {
                if let Some(after) = after {
                    why.push_str(&format!("; it asks to be left alone for {} s", after.as_secs()));
                }
                break;
            }
            rest(&why, pause).await;
        }
        Verdict::Again { why, after: None }
    }

    async fn try_once(&self, key: &str, lines: Bytes) -> Verdict {
        let request = self.http.put(self.points.clone()).headers(self.about.clone());
        let request = request.header("idempotency-key", key).body(lines).timeout(ANSWER_WAIT);
        match request.send().await {
            Ok(response) => match told(response).await {
                Ok(told) => told.verdict(),
                Err(error) => again(&error),
            },
            Err(error) => again(&error),
        }
    }
}

/// Reads the token that a gateway asks for; from a pipe as well, as in `--token-file <(pass
/// stats)`.
///
/// # Errors
///
/// Why it cannot be read, without a word of what is in the file.
fn token(file: &Path) -> Result<Secret, String> {
    let wrong = |what: &str| format!("the token file {} {what}", file.display());
    let bytes = small_file::read_once(file, TOKEN_FILE_BYTES_MAX).map_err(|what| wrong(&what))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is no text in UTF-8"))?;
    match text.trim() {
        "" => Err(wrong("is empty")),
        token if token.contains(char::is_whitespace) => Err(wrong("has more than one word in it")),
        token => Ok(Secret::new(token)),
    }
}

fn headers(token: Option<&Secret>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
            .map_err(|_| "the token holds a character that no header can".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Where the points of a gateway go, whose address may be written without a scheme.
fn points(to: &str, delivered: bool) -> Result<Url, String> {
    let text = if to.contains("://") { to.to_owned() } else { format!("http://{to}") };
    let url = Url::parse(&text);
    let mut url = url.map_err(|error| format!("`{}` is no address: {error}", shown(to)))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        let to = shown(to);
        return Err(format!("`{to}` is no address of a gateway; write http://host:8080"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong into an address; put the token into a file".into());
    }
    url.set_path(&format!("{}/v1/points", url.path().trim_end_matches('/')));
    url.set_query(Some(if delivered { "details&ack=delivered" } else { "details" }));
    Ok(url)
}

/// Nobody knows what became of a request without a whole answer.
fn again(error: &reqwest::Error) -> Verdict {
    Verdict::Again { why: cause(error), after: None }
}

async fn told(mut response: Response) -> reqwest::Result<Told> {
    let (status, headers) = (response.status().as_u16(), response.headers());
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let after = text(RETRY_AFTER.as_str()).and_then(|secs| secs.parse().ok());
    let replayed = text("idempotency-replayed") == Some("true");
    let conflict = text("idempotency-conflict") == Some("true");
    let mut body = Vec::new();
    http_client::read(&mut response, &mut body, BODY_MAX).await?;
    Ok(Told { status, after: after.map(Duration::from_secs), replayed, conflict, body })
}

/// How long to wait after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// As the gateway wishes, within reason.
    pub asked: Duration,
    /// Beyond that: twice as long after each failure, less by chance so that many senders do not return
    /// in one instant.
    pub own: Duration,
}

impl Pause {
    fn new(failures: u32, after: Option<Duration>, random: f64) -> Self {
        let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(20)).min(LONGEST_PAUSE);
        let own = doubled.mul_f64(random.clamp(0.1, 1.0));
        Self { asked: after.unwrap_or_default().min(LONGEST_WISH), own }
    }

    /// Both.
    pub const fn whole(self) -> Duration {
        self.asked.saturating_add(self.own)
    }
}

/// The header that says of which file the points are.
pub const FILE: &str = "pointsman-file";
/// Of which task.
pub const TASK: &str = "pointsman-task";
/// Of which run of it.
pub const RUN: &str = "pointsman-run";

const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Longer than a gateway lets a request wait for its points, unless it is told to.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// A thousand refusals are far shorter.
const BODY_MAX: usize = 4 << 20;

/// Far above any token.
const TOKEN_FILE_BYTES_MAX: usize = 64 << 10;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Whoever asks for more is asked earlier.
const LONGEST_WISH: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    #[test]
    fn addresses_are_completed() {
        for (to, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/points?details"),
            ("gateway:8080", "http://gateway:8080/v1/points?details"),
            ("https://h/prefix/", "https://h/prefix/v1/points?details"),
        ] {
            assert_eq!(points(to, false).unwrap().as_str(), expected);
        }
        let waits = points("h:1", true).unwrap();
        assert_eq!(waits.as_str(), "http://h:1/v1/points?details&ack=delivered");
        for (to, says) in [
            ("udp://h:8125", "write http://host:8080"),
            ("http://user:secret@h", "put the token into a file"),
            ("", "is no address"),
        ] {
            let error = points(to, false).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_is_one_word_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        for (text, expected) in [("abc\n", Some("abc")), (" \n", None), ("abc def", None)] {
            std::fs::write(&file, text).unwrap();
            let read = token(&file);
            assert_eq!(read.as_ref().ok().map(Secret::expose), expected);
            assert!(!format!("{read:?}").contains("abc"), "{read:?}");
        }
        assert!(token(&dir.path().join("none")).is_err());
        let shown = format!("{:?}", headers(Some(&Secret::new("abc"))).unwrap());
        assert!(!shown.contains("abc"), "{shown}");
    }

    #[test]
    fn pauses_double_and_heed_the_gateway() {
        let pause = |failures, after, random| Pause::new(failures, after, random).whole();
        assert_eq!(pause(0, None, 1.0), Duration::from_millis(100));
        assert_eq!(pause(3, None, 1.0), Duration::from_millis(800));
        assert_eq!(pause(900, None, 1.0), LONGEST_PAUSE);
        assert_eq!(pause(0, None, 0.0), Duration::from_millis(10));
        assert_eq!(pause(0, Some(Duration::from_secs(2)), 0.5), Duration::from_millis(2050));
        let absurd = pause(0, Some(Duration::from_secs(u64::MAX)), 1.0);
        assert_eq!(absurd, LONGEST_WISH + FIRST_PAUSE);
    }

    /// Answers one request with this, and closes.
    async fn answered(answer: &'static str, wait: Duration) -> Verdict {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap().to_string();
        let served = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let place = Place::at(&to);
        let client = Client::new(&place, false).unwrap();
        let deadline = Instant::now() + wait;
        let verdict = client
            .put("k", Bytes::from_static(b"{}\n"), deadline, async |_, pause| {
                sleep(pause.whole()).await
            })
            .await;
        served.await.unwrap();
        verdict
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_tells_nothing() {
        let half = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"accepted\":1,";
        let verdict = answered(half, Duration::from_millis(50)).await;
        assert!(matches!(verdict, Verdict::Again { .. }), "{verdict:?}");
    }

    #[tokio::test]
    async fn an_absurd_wish_is_survived() {
        let later = "HTTP/1.1 503 Later\r\ncontent-length: 0\r\n\
                     retry-after: 18446744073709551615\r\n\r\n";
        let verdict = answered(later, Duration::from_secs(5)).await;
        assert!(matches!(verdict, Verdict::Again { .. }), "{verdict:?}");
    }
}
