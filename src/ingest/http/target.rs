//! What of a request its sender has signed: method, path and query, host and port.
//!
//! Behind a proxy the client has seen another host and port than we do; what the proxy says of them
//! is believed only where that is configured.

use crate::access::Target;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// None of a request that names no host.
pub(super) fn of(request: &Request, is_tls: bool, trust_forwarded: bool) -> Option<Target> {
    let headers = request.headers();
    let forwarded = |name: &str| text(headers, name).filter(|_| trust_forwarded);
    let host: Authority =
        forwarded("x-forwarded-host").or_else(|| text(headers, HOST.as_str()))?.parse().ok()?;
    let port = match (forwarded("x-forwarded-port"), forwarded("x-forwarded-proto")) {
        (Some(port), _) => port.parse().ok()?,
        (None, Some(proto)) if proto.eq_ignore_ascii_case("https") => {
            host.port_u16().unwrap_or(443)
        }
        (None, _) => host.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
    };
    Some(Target {
        method: request.method().as_str().to_owned(),
        resource: request.uri().path_and_query()?.as_str().to_owned(),
        host: host.host().to_ascii_lowercase(),
        port,
    })
}

/// Of several that proxies have added, the first is the client's.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.split(',').next().unwrap_or(value).trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn a_target_is_what_the_client_saw() {
        let check = |headers: &[(&str, &str)], trust: bool, expected: Option<(&str, u16)>| {
            let request = Request::builder().method("PUT").uri("/v1/points?a=b%20c");
            let request =
                headers.iter().fold(request, |all, (name, value)| all.header(*name, *value));
            let request = request.body(Body::empty()).unwrap();
            let target = of(&request, false, trust);
            if let Some(target) = &target {
                assert_eq!((&*target.method, &*target.resource), ("PUT", "/v1/points?a=b%20c"));
            }
            let seen = target.as_ref().map(|target| (&*target.host, target.port));
            assert_eq!(seen, expected, "{headers:?} {trust}");
        };
        let host = ("host", "Gateway.example.com:8080");
        check(&[host], false, Some(("gateway.example.com", 8080)));
        check(&[("host", "h")], false, Some(("h", 80)));
        check(&[("host", "[::1]:81")], false, Some(("[::1]", 81)));
        let request = Request::builder().header("host", "h").body(Body::empty()).unwrap();
        assert_eq!(of(&request, true, false).unwrap().port, 443);
        check(&[], false, None);
        check(&[("host", "a b")], false, None);
        let outside = ("x-forwarded-host", "stats.example.com, inner");
        let (https, port) = (("x-forwarded-proto", "https"), ("x-forwarded-port", "8443"));
        check(&[host, outside, https, port], false, Some(("gateway.example.com", 8080)));
        check(&[host, outside, https, port], true, Some(("stats.example.com", 8443)));
        check(&[host, outside, https], true, Some(("stats.example.com", 443)));
        check(&[host, outside], true, Some(("stats.example.com", 80)));
        check(&[host, https, ("x-forwarded-port", "x")], true, None);
    }
}
