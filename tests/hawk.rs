//! Signed requests: by keys of our own, and by those that only a Taskcluster knows. The stand-in
//! for its auth service, and the clients, are of another implementation of Hawk than ours.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::{Answer, Case, FakeHttp, Received, Reply};
use hawk::{Credentials, DigestAlgorithm, Header, Key, PayloadHasher, RequestBuilder};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_taskcluster_vouches_for_who_signs() {
    let service = auth_service().await;
    let case = Case::start(&principal(&service.url(), "")).await;
    let host = case.gateway.addr("api", "tcp").to_string();
    let signed = Signed::new("tester", "no-secret", &host);

    let header = signed.header("POST", "/v1/points");
    assert_eq!(put(&case, "/v1/points", &header, &[], "ci.a").await.status, 204);
    assert_eq!(put(&case, "/v1/points", &header, &[], "ci.b").await.status, 204);
    assert_eq!(service.received().len(), 1, "it is not asked twice");
    let asked: Value = serde_json::from_str(&service.received()[0].body).unwrap();
    let port: u16 = host.rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(
        asked,
        json!({ "method": "post", "resource": "/v1/points", "host": "127.0.0.1", "port": port,
                "authorization": header, "sourceIp": "127.0.0.1" })
    );
    assert_eq!(service.received()[0].target, "/api/auth/v1/authenticate-hawk");

    for (what, path, header) in [
        ("replayed for another path", "/v1/points?details", header.clone()),
        ("replayed for another path", "/api/put", header.clone()),
        ("another method", "/v1/points", signed.header("PUT", "/v1/points")),
        (
            "expired",
            "/v1/points",
            signed.at(Duration::from_secs(3600)).header("POST", "/v1/points"),
        ),
        (
            "another key",
            "/v1/points",
            Signed::new("tester", "x", &host).header("POST", "/v1/points"),
        ),
        ("nobody", "/v1/points", Signed::new("x", "no-secret", &host).header("POST", "/v1/points")),
        ("garbled", "/v1/points", "Hawk id=\"tester\"".to_owned()),
    ] {
        let reply = put(&case, path, &header, &[], "ci.a").await;
        assert_eq!(reply.status, 401, "{what} {reply:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Hawk"), "{what}");
    }

    let limited = Signed::new("limited", "l-secret", &host).header("POST", "/v1/points");
    assert_eq!(put(&case, "/v1/points", &limited, &[], "ci.a").await.status, 204);
    let reply = put(&case, "/v1/points", &limited, &[], "ci.ab").await;
    assert_eq!(reply.status, 403, "{reply:?}");
    assert!(reply.body.contains("stats:put-points:ci.ab"), "{reply:?}");
    let names: Vec<_> =
        case.raw().iter().map(|row| row.split(' ').next().unwrap().to_owned()).collect();
    assert!(names.iter().all(|name| name.starts_with("task/ci.")), "{names:?}");
}

#[tokio::test]
async fn a_principal_may_have_less_than_is_vouched_for() {
    let service = auth_service().await;
    let limits = "scopes = [\"stats:put-points:ci.*\"]\n";
    let case = Case::start(&principal(&service.url(), limits)).await;
    let host = case.gateway.addr("api", "tcp").to_string();
    let header = Signed::new("tester", "no-secret", &host).header("POST", "/v1/points");
    assert_eq!(put(&case, "/v1/points", &header, &[], "ci.a").await.status, 204);
    assert_eq!(put(&case, "/v1/points", &header, &[], "other").await.status, 403);
}

#[tokio::test]
async fn a_service_that_is_away_makes_nobody_anybody() {
    for service in [
        FakeHttp::judging(|_| Answer::status(500)).await,
        FakeHttp::judging(|_| Answer::status(200).body("{\"status\":\"what\"}")).await,
        FakeHttp::judging(|_| Answer::reset()).await,
        FakeHttp::judging(|_| Answer::status(200).endless_body()).await,
    ] {
        let config = [&principal(&service.url(), ""), "listeners = [\"api\"]\n"].concat();
        let case = Case::start(&config).await;
        let host = case.gateway.addr("api", "tcp").to_string();
        let header = Signed::new("tester", "no-secret", &host).header("POST", "/v1/points");
        let reply = put(&case, "/v1/points", &header, &[], "ci.a").await;
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        case.books("api", 0, json!({ "auth_service_away": 1 })).await;
    }
}

#[tokio::test]
async fn what_a_proxy_says_is_believed_where_that_is_said() {
    let service = auth_service().await;
    let outside = Signed::new("tester", "no-secret", "stats.example.com:443");
    let forwarded = [("X-Forwarded-Host", "stats.example.com"), ("X-Forwarded-Proto", "https")];
    for (more, status) in [(", trust_forwarded = true", 204), ("", 401)] {
        let principal = principal(&service.url(), "").replace("\" }", &format!("\"{more} }}"));
        let case = Case::start(&principal).await;
        let header = outside.header("POST", "/v1/points");
        let reply = put(&case, "/v1/points", &header, &forwarded, "ci.a").await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[tokio::test]
async fn keys_of_our_own_need_nobody_else() {
    let local = "[principals.ci]\nhawk = { credentials = [{ id = \"ci\", key = \"no-secret\" }] }\n\
                 listeners = [\"api\"]\nscopes = [\"stats:put-points:ci.*\"]\n";
    let case = Case::start(local).await;
    let host = case.gateway.addr("api", "tcp").to_string();
    let signed = Signed::new("ci", "no-secret", &host);
    let good = signed.header("POST", "/v1/points");
    let status =
        async |header: &str, name: &str| put(&case, "/v1/points", header, &[], name).await.status;
    assert_eq!(status(&good, "ci.a").await, 204);
    assert_eq!(status(&good, "other").await, 403);
    for (what, header) in [
        ("another key", Signed::new("ci", "x", &host).header("POST", "/v1/points")),
        ("another id", Signed::new("x", "no-secret", &host).header("POST", "/v1/points")),
        ("another host", Signed::new("ci", "no-secret", "h:1").header("POST", "/v1/points")),
        ("another path", signed.header("POST", "/v1/points?details")),
        ("another method", signed.header("PUT", "/v1/points")),
        ("expired", signed.at(Duration::from_secs(120)).header("POST", "/v1/points")),
    ] {
        assert_eq!(status(&header, "ci.a").await, 401, "{what}");
    }
    let to = |scopes: Value| signed.limited_to(scopes).header("POST", "/v1/points");
    let one = to(json!(["stats:put-points:ci.a"]));
    assert_eq!((status(&one, "ci.a").await, status(&one, "ci.b").await), (204, 403));
    assert_eq!(status(&to(json!([])), "ci.a").await, 403);
    assert_eq!(status(&to(json!(["stats:put-points:*"])), "ci.a").await, 401, "more than he has");
}

#[tokio::test]
async fn a_payload_that_was_signed_is_the_one() {
    let service = auth_service().await;
    let local = "[principals.own]\nhawk = { credentials = [{ id = \"own\", key = \"no-secret\" }] }\n\
                 scopes = [\"stats:put-points:*\"]\n";
    let case = Case::start(&[&principal(&service.url(), ""), local].concat()).await;
    let host = case.gateway.addr("api", "tcp").to_string();
    for id in ["tester", "own"] {
        let signed = Signed::new(id, "no-secret", &host).with_payload(&body("ci.a"));
        let header = signed.header("POST", "/v1/points");
        assert_eq!(put(&case, "/v1/points", &header, &[], "ci.a").await.status, 204, "{id}");
        let reply = put(&case, "/v1/points", &header, &[], "ci.b").await;
        assert_eq!(reply.status, 401, "{id} {reply:?}");
        assert!(reply.body.contains("not the one that was signed"), "{reply:?}");
    }
}

fn principal(root_url: &str, more: &str) -> String {
    format!(
        "[principals.tasks]\nhawk = {{ root_url = \"{root_url}\" }}\nprefix = \"task/\"\n{more}"
    )
}

fn body(name: &str) -> String {
    json!([{ "name": name, "value": 1 }]).to_string()
}

async fn put(
    case: &Case,
    path: &str,
    authorization: &str,
    headers: &[(&str, &str)],
    name: &str,
) -> Reply {
    let own = [("Authorization", authorization), ("Content-Type", "application/json")];
    let headers = [&own, headers].concat();
    let http = case.gateway.http("api");
    http.send(Method::POST, path, &headers, body(name).into()).await.unwrap()
}

/// Whoever signs, for one server.
#[derive(Clone)]
struct Signed {
    id: &'static str,
    key: &'static str,
    host: String,
    port: u16,
    age: Duration,
    ext: Option<String>,
    hash: Option<Vec<u8>>,
}

impl Signed {
    fn new(id: &'static str, key: &'static str, address: &str) -> Signed {
        let (host, port) = address.rsplit_once(':').unwrap();
        let (host, port) = (host.to_owned(), port.parse().unwrap());
        Signed { id, key, host, port, age: Duration::ZERO, ext: None, hash: None }
    }

    fn at(&self, age: Duration) -> Signed {
        Signed { age, ..self.clone() }
    }

    fn limited_to(&self, scopes: Value) -> Signed {
        let ext = BASE64_STANDARD.encode(json!({ "authorizedScopes": scopes }).to_string());
        Signed { ext: Some(ext), ..self.clone() }
    }

    fn with_payload(&self, payload: &str) -> Signed {
        let hash = PayloadHasher::hash("application/json", DigestAlgorithm::Sha256, payload);
        Signed { hash: Some(hash.unwrap()), ..self.clone() }
    }

    fn header(&self, method: &str, path: &str) -> String {
        let request = RequestBuilder::new(method, &self.host, self.port, path);
        let request = request.ext(self.ext.as_deref()).hash(self.hash.as_deref()).request();
        let key = Key::new(self.key, DigestAlgorithm::Sha256).unwrap();
        let credentials = Credentials { id: self.id.to_owned(), key };
        let header = request.make_header_full(&credentials, SystemTime::now() - self.age, "n0nce");
        format!("Hawk {}", header.unwrap())
    }
}

/// Knows two clients, and answers as the auth service does.
async fn auth_service() -> FakeHttp {
    FakeHttp::judging(|received| Answer::status(200).body(&judge(received).to_string())).await
}

fn judge(received: &Received) -> Value {
    let clients = BTreeMap::from([
        ("tester", ("no-secret", json!(["stats:put-points:*", "queue:x"]))),
        ("limited", ("l-secret", json!(["stats:put-points:ci.a"]))),
    ]);
    let asked: Value = serde_json::from_str(&received.body).unwrap();
    let text = |key: &str| asked[key].as_str().unwrap().to_owned();
    let failed = json!({ "status": "auth-failed", "message": "Unauthorized: no such thing" });
    let authorization = text("authorization");
    let header: Header = authorization.strip_prefix("Hawk ").unwrap().parse().unwrap();
    let id = header.id.clone().unwrap();
    let Some((key, scopes)) = clients.get(id.as_str()) else { return failed };
    let (method, host, resource) = (text("method").to_uppercase(), text("host"), text("resource"));
    let port = asked["port"].as_u64().unwrap().try_into().unwrap();
    let request = RequestBuilder::new(&method, &host, port, &resource).request();
    let key = Key::new(key, DigestAlgorithm::Sha256).unwrap();
    if !request.validate_header(&header, &key, Duration::from_secs(900)) {
        return failed;
    }
    let mut said = json!({
        "status": "auth-success",
        "scopes": scopes,
        "scheme": "hawk",
        "clientId": id,
        "expires": "2199-01-01T00:00:00.000Z",
    });
    if let Some(hash) = header.hash {
        said["hash"] = BASE64_STANDARD.encode(hash).into();
    }
    said
}
