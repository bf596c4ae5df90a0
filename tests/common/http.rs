//! A small HTTP client for the tests, over `reqwest`: every answer is a [`Reply`], no status is an
//! error, and no proxy of the machine is asked.

use std::sync::Once;
use std::time::Duration;

use reqwest::{Client, Method, Url};
use serde_json::Value;

/// A client of one server.
pub struct Http {
    base: Url,
    client: Client,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Http {
    /// A client whose paths are below `base`, such as `http://127.0.0.1:8086`.
    pub fn new(base: &str) -> Http {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // It fails only when the code under test has installed the same one first.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        // No connection is kept: one to a server that was killed since would fail a later request.
        let builder = Client::builder().no_proxy().pool_max_idle_per_host(0);
        let client = builder.timeout(REQUEST_TIMEOUT).build().unwrap();
        Http { base: base.parse().unwrap(), client }
    }

    /// The same by a client of one's own.
    pub fn by(client: Client, base: &str) -> Http {
        Http { base: base.parse().unwrap(), client }
    }

    /// The server's `host:port`.
    pub fn address(&self) -> String {
        self.base.authority().to_owned()
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Vec::new()).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.send(Method::POST, path, &[], body.into()).await.unwrap()
    }

    /// Any request; the error is that there was no answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> reqwest::Result<Reply> {
        let mut request = self.client.request(method, self.base.join(path).unwrap()).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let headers = response.headers().iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        Ok(Reply { status, headers: headers.collect(), body: response.text().await? })
    }

    /// A path with a query string whose values are escaped.
    pub fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
        let url = Url::parse_with_params("http://host/", pairs).unwrap();
        format!("{path}?{}", url.query().unwrap_or_default())
    }
}

impl Reply {
    /// The body as JSON; panics with the body when it is not.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The first header of this name, which is written in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Panics with the whole answer unless the status is a success.
    pub fn expect_success(self) -> Reply {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
