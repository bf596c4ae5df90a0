//! What a write request looks like: URLs, credentials, body.

use super::{Api, Config, Gzip};
use crate::backend::Payload;
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use std::io::Write;
use std::net::IpAddr;

/// The parts of a request that are the same each time.
#[derive(Clone, Debug)]
pub(super) struct Request {
    authorization: Option<String>,
    gzip: bool,
}

/// Where the requests to one endpoint go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Where the server is, as metrics and logs name it; no slash at its end.
    pub(super) base: String,
    /// Where writes go: path and database are fixed here.
    pub(super) write: Url,
    /// v1: where statements are run.
    query: Url,
}

impl Target {
    /// The target of each URL.
    pub(super) fn all(config: &Config) -> Result<Vec<Self>, String> {
        config.url.iter().map(|url| Self::new(config, url)).collect()
    }

    fn new(config: &Config, url: &str) -> Result<Self, String> {
        let mut base = Url::parse(url).map_err(|error| format!("url: {error}"))?;
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        let mut query = base.clone();
        query.set_path(&format!("{path}/query"));
        let write = write_url(config, &base)?;
        Ok(Self { base: base.as_str().trim_end_matches('/').to_owned(), write, query })
    }

    /// Whether its address says that it is on this machine; other names are not looked up.
    fn is_here(&self) -> bool {
        let host = self.write.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        }
    }

    /// Where a statement is run.
    pub(super) fn query(&self, statement: &str) -> Url {
        let mut url = self.query.clone();
        url.query_pairs_mut().append_pair("q", statement);
        url
    }
}

impl Request {
    pub(super) fn new(config: &Config, targets: &[Target]) -> Self {
        let gzip = match config.gzip {
            Gzip::On => true,
            Gzip::Off => false,
            Gzip::Auto => !targets.iter().all(Target::is_here),
        };
        Self { authorization: authorization(config), gzip }
    }

    /// The header that every request carries, marked so that it is never printed.
    pub(super) fn credentials(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        if let Some(text) = &self.authorization {
            let mut value = HeaderValue::from_str(text)
                .map_err(|_| "the credentials hold a character that no header can".to_owned())?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers
    }

    /// Compressing a large payload takes milliseconds, which would hold up a receiving task.
    pub(super) async fn body(&self, payload: &Payload) -> Bytes {
        if !self.gzip {
            return payload.body.clone();
        }
        let plain = payload.body.clone();
        let packed = tokio::task::spawn_blocking(move || compress(&plain)).await;
        // Writing to memory does not fail, and the task is not cancelled; an empty body would be
        // refused by the server and so be seen.
        packed.unwrap_or_default()
    }
}

fn write_url(config: &Config, base: &Url) -> Result<Url, String> {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/');
    let needs = |key: &str, value: &Option<String>| {
        value.clone().ok_or_else(|| format!("api {:?} needs `{key}`", config.api))
    };
    match config.api {
        Api::V1 => {
            url.set_path(&format!("{prefix}/write"));
            url.query_pairs_mut().append_pair("db", &needs("database", &config.database)?);
            if let Some(policy) = &config.retention_policy {
                url.query_pairs_mut().append_pair("rp", policy);
            }
            url.query_pairs_mut().append_pair("precision", "ns");
        }
        Api::V2 => {
            url.set_path(&format!("{prefix}/api/v2/write"));
            url.query_pairs_mut()
                .append_pair("org", &needs("org", &config.org)?)
                .append_pair("bucket", &needs("bucket", &config.bucket)?)
                .append_pair("precision", "ns");
        }
        Api::V3 => {
            url.set_path(&format!("{prefix}/api/v3/write_lp"));
            url.query_pairs_mut()
                .append_pair("db", &needs("database", &config.database)?)
                .append_pair("precision", "nanosecond");
        }
    }
    Ok(url)
}

fn authorization(config: &Config) -> Option<String> {
    if let Some(token) = &config.token {
        let scheme = if config.api == Api::V3 { "Bearer" } else { "Token" };
        return Some(format!("{scheme} {}", token.expose()));
    }
    let username = config.username.as_deref()?;
    let password = config.password.as_ref().map_or("", |password| password.expose());
    Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}"))))
}

fn compress(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.map(Bytes::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: serde_json::Value) -> Config {
        serde_json::from_value(json).unwrap()
    }

    fn first(json: serde_json::Value) -> Target {
        Target::all(&config(json)).unwrap().remove(0)
    }

    #[test]
    fn the_database_is_forced_by_the_url() {
        let check = |json, expected: &str| {
            assert_eq!(first(json).write.as_str(), expected);
        };
        check(
            serde_json::json!({"url": "http://h:8086", "database": "a&b", "retention_policy": "week"}),
            "http://h:8086/write?db=a%26b&rp=week&precision=ns",
        );
        check(
            serde_json::json!({"url": "http://h:8086/", "api": "v2", "org": "o", "bucket": "b"}),
            "http://h:8086/api/v2/write?org=o&bucket=b&precision=ns",
        );
        check(
            serde_json::json!({"url": "https://h/prefix/", "api": "v3", "database": "d"}),
            "https://h/prefix/api/v3/write_lp?db=d&precision=nanosecond",
        );
    }

    #[test]
    fn statements_go_beside_the_writes() {
        for (url, base, query) in [
            ("http://h:8086", "http://h:8086", "http://h:8086/query?q=A+B"),
            ("http://h:8086/", "http://h:8086", "http://h:8086/query?q=A+B"),
            ("https://h/write/", "https://h/write", "https://h/write/query?q=A+B"),
        ] {
            let target = first(serde_json::json!({"url": url, "database": "d"}));
            assert_eq!((target.base.as_str(), target.query("A B").as_str()), (base, query));
        }
    }

    #[test]
    fn each_url_is_a_target() {
        let json = serde_json::json!({"url": ["http://a:1", "http://b:2/"], "database": "d"});
        let targets = Target::all(&config(json)).unwrap();
        let bases: Vec<_> = targets.iter().map(|target| target.base.as_str()).collect();
        assert_eq!(bases, ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn nothing_is_compressed_for_this_machine_unless_it_is_asked_for() {
        let local = "http://127.0.0.1:8086";
        for (url, gzip, expected) in [
            (serde_json::json!(local), serde_json::json!("auto"), false),
            (serde_json::json!("http://[::1]:8086"), serde_json::json!("auto"), false),
            (serde_json::json!("https://localhost/prefix"), serde_json::json!("auto"), false),
            (serde_json::json!("http://127.9.9.9"), serde_json::json!("auto"), false),
            (serde_json::json!("http://influxdb:8086"), serde_json::json!("auto"), true),
            (serde_json::json!("http://192.168.0.1"), serde_json::json!("auto"), true),
            (serde_json::json!([local, "http://b:1"]), serde_json::json!("auto"), true),
            (serde_json::json!(local), serde_json::json!(true), true),
            (serde_json::json!("http://influxdb"), serde_json::json!(false), false),
        ] {
            let json = serde_json::json!({ "url": url, "database": "d", "gzip": gzip });
            let config = config(json);
            let request = Request::new(&config, &Target::all(&config).unwrap());
            assert_eq!(request.gzip, expected, "{url} {gzip}");
        }
        let unsaid = config(serde_json::json!({ "url": local, "database": "d" }));
        assert_eq!(unsaid.gzip, Gzip::Auto);
    }

    #[test]
    fn credentials_are_a_header() {
        let check = |json, expected: Option<&str>| {
            assert_eq!(authorization(&config(json)).as_deref(), expected);
        };
        check(serde_json::json!({"url": "http://h", "database": "d"}), None);
        check(
            serde_json::json!({"url": "http://h", "username": "Aladdin", "password": "open sesame"}),
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        );
        check(serde_json::json!({"url": "http://h", "api": "v2", "token": "t"}), Some("Token t"));
        check(serde_json::json!({"url": "http://h", "api": "v3", "token": "t"}), Some("Bearer t"));
    }
}
