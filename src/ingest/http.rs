//! HTTP: our own points API, and the paths that OpenTSDB and InfluxDB are written to.
//!
//! ```text
//! connection ─► net::http (timeouts) ─► encoding known? ─► decompression ─► path, method ─► handler
//! ```
//!
//! Every refusal is `{"error":{"code":…,"message":…}}`, or has InfluxDB's shape where that is
//! spoken, and is counted: `not_found`, `wrong_method`, `unsupported_encoding`, `unsupported_type`,
//! `body_too_large`, `bad_encoding`, `broken_body`, `request_timeout`, `header_timeout`,
//! `not_http`, `overloaded`, `unauthenticated`, `bad_credentials`, `auth_service_away`,
//! `auth_service_busy`, `forbidden`, `quota_…`, `invalid_key`, `key_conflict`, `key_in_use`, those
//! of [`ack`], and the reasons of the parsers. An idle connection that is closed is noticed as
//! `idle_timeout`.

mod ack;
mod answer;
mod body;
mod credentials;
mod encoding;
mod influxdb;
mod opentsdb;
mod points;
mod query;
mod repeat;
mod taking;
mod target;
mod waiting;

pub use answer::FORBIDDEN;
pub use credentials::UNAUTHENTICATED;

use super::intake::Context;
use super::stream::{Connection, Presence};
use crate::net::http::{Ended, Timeouts};
use crate::net::{Intercept, Intercepted, Peer};
use crate::origin::Protocol;
use answer::{Refusal, Web};
use axum::http::{Method, Uri};
use axum::response::Response;
use axum::{Extension, Router, middleware};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tower_http::decompression::RequestDecompressionLayer;

/// What a listener `http` answers.
pub(super) fn points_app(context: &Context) -> Router {
    finish(points::routes().merge(opentsdb::put_routes()), context)
}

/// What a listener `opentsdb` answers.
pub(super) fn opentsdb_app(context: &Context) -> Router {
    finish(opentsdb::routes(), context)
}

/// What a listener `influxdb` answers.
pub(super) fn influxdb_app(context: &Context) -> Router {
    finish(influxdb::routes(), context).layer(middleware::map_response(influxdb::signed))
}

/// Serves one connection, of which `head` has been read already.
pub(super) async fn serve(connection: Connection, head: Vec<u8>, app: Router) {
    let Connection { stream, presence } = connection;
    let Presence { peer, context, .. } = &presence;
    let limits = context.config.limits;
    let timeouts = Timeouts {
        idle: context.config.idle(),
        header: limits.header.0,
        request: limits.request.0,
    };
    let app = match stream.peer_certificate() {
        // Handlers find whom it names among a request's extensions.
        Some(certificate) => app.layer(Extension(Arc::clone(certificate))),
        None => app,
    };
    let stream = Intercepted { stream, interceptor: Head { bytes: head, read: 0 } };
    let reason =
        match crate::net::http::serve(stream, *peer, app, timeouts, context.stop.clone()).await {
            Ended::Closed => return,
            Ended::Idle => return context.book.noticed.add("idle_timeout", 1),
            Ended::NotHttp => "not_http",
            Ended::SlowHeader => "header_timeout",
            Ended::SlowRequest => "request_timeout",
        };
    context.refuse(reason, 1, b"", peer.into());
}

fn finish(routes: Router<Web>, context: &Context) -> Router {
    let web: Web = Arc::new(context.clone());
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(RequestDecompressionLayer::new())
        .layer(middleware::from_fn_with_state(web.clone(), encoding::check))
        .layer(Extension(web.clone()))
        .with_state(web)
}

async fn not_found(web: Extension<Web>, peer: Option<Extension<Peer>>, uri: Uri) -> Response {
    let (path, peer) = (uri.path().as_bytes(), peer.as_deref());
    let text = match web.config.protocol {
        Protocol::Http => elsewhere(uri.path()),
        _ => "Endpoint not found".to_owned(),
    };
    Refusal::new(404, "not_found", text).answer(&web, path, peer)
}

/// Where points are taken by a listener `http`, for somebody who has tried another path; the other
/// protocols have words of their own.
fn elsewhere(path: &str) -> String {
    let text = format!(
        "there is nothing at {path}; points come to /v1/points, /v1/point/<series> or /api/put"
    );
    match path {
        "/write" | "/api/v2/write" | "/api/v3/write_lp" => {
            text + "; line protocol is taken by a listener with `protocol = \"influxdb\"`"
        }
        _ => text,
    }
}

async fn wrong_method(
    web: Extension<Web>,
    peer: Option<Extension<Peer>>,
    method: Method,
    uri: Uri,
) -> Response {
    let mut text = format!("the method {method} is not allowed for this path");
    if let Some(right) = right_way(uri.path()) {
        text = format!("{text}; {right}");
    }
    Refusal::new(405, "wrong_method", text).answer(&web, uri.path().as_bytes(), peer.as_deref())
}

/// How points come in at a path, for somebody who has opened it in a browser, say.
fn right_way(path: &str) -> Option<&'static str> {
    // As OpenTSDB, whose API may have a version in its paths.
    let is_put = path.starts_with("/api/") && path.ends_with("/put") && !path.contains("metadata");
    Some(match path {
        "/v1/points" => {
            "points come by PUT or POST, for example: curl -d '{\"name\":\"build/times\",\"compile\":12.5}' \
             http://gateway:8080/v1/points"
        }
        _ if path.starts_with("/v1/point/") => {
            "a point comes by PUT or POST, for example: curl -X PUT \
             'http://gateway:8080/v1/point/build/times?compile=12.5'"
        }
        _ if is_put => {
            "points come by POST, for example: curl -d '{\"metric\":\"sys.load\",\"timestamp\":1700000000,\
             \"value\":0.5,\"tags\":{\"host\":\"web01\"}}' http://gateway:4242/api/put"
        }
        "/write" | "/api/v2/write" => {
            "points come by POST, for example: curl -d 'cpu,host=web01 load=0.5' http://gateway:8086/write"
        }
        _ => return None,
    })
}

/// The first bytes of a stream, which were read to see what it speaks, and are read again.
struct Head {
    bytes: Vec<u8>,
    read: usize,
}

impl<S: AsyncRead> Intercept<S> for Head {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Task<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = self.bytes.get(self.read..).unwrap_or(&[]);
        if rest.is_empty() {
            return stream.poll_read(cx, into);
        }
        let len = rest.len().min(into.remaining());
        into.put_slice(rest.get(..len).unwrap_or(&[]));
        self.read += len;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
