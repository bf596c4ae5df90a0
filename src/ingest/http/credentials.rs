//! Who sends a request: what it shows, or else what its connection proves.
//!
//! Credentials stand in the header `Authorization`; senders of InfluxDB 1.x may write `u` and `p`
//! into the query instead. Wrong ones are 401, whatever the connection proves, and so are none where
//! it proves nothing. Where there are no principals nobody is asked.

use super::answer::{Refusal, Web};
use super::query;
use crate::access::{Access, Credential, Gate, Unreadable};
use crate::ingest::intake::proof;
use crate::net::Peer;
use crate::origin::Protocol;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;

/// The gate that the points of a request have to pass.
pub(super) fn gate(request: &Request, web: &Web) -> Result<Gate, Refusal> {
    let table = web.router.table();
    let access = &table.access;
    if access.is_open() {
        return Ok(Gate::Open);
    }
    match shown(request, web.config.protocol) {
        Ok(Some(credential)) => access.by_credential(&credential).ok_or_else(|| wrong(access)),
        Ok(None) => by_connection(request, access, web),
        Err(Unreadable) => Err(wrong(access)),
    }
}

fn by_connection(request: &Request, access: &Access, web: &Web) -> Result<Gate, Refusal> {
    let proof = request.extensions().get::<Peer>().map(proof).unwrap_or_default();
    match access.by_connection(&web.listener, &proof) {
        Gate::Shut => {
            Err(Refusal::new(401, "unauthenticated", MISSING).challenging(access.challenges()))
        }
        gate => Ok(gate),
    }
}

fn wrong(access: &Access) -> Refusal {
    Refusal::new(401, "bad_credentials", WRONG).challenging(access.challenges())
}

/// The credentials of a request, if it has any.
fn shown(request: &Request, protocol: Protocol) -> Result<Option<Credential>, Unreadable> {
    let mut values = request.headers().get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return match protocol {
            Protocol::Influxdb => in_query(request.uri().query().unwrap_or("")),
            _ => Ok(None),
        };
    };
    match values.next() {
        None => Credential::parse(value.as_bytes()).map(Some),
        Some(_) => Err(Unreadable),
    }
}

/// Agents write both, and leave them empty when they have none.
fn in_query(text: &str) -> Result<Option<Credential>, Unreadable> {
    let part = |key: &str| match query::value(text, key) {
        None | Some("") => Ok(String::new()),
        Some(_) => query::text(text, key).ok_or(Unreadable),
    };
    let (username, password) = (part("u")?, part("p")?);
    let has_any = !username.is_empty() || !password.is_empty();
    Ok(has_any.then_some(Credential::Basic { username, password }))
}

const MISSING: &str = "who writes here has to say who he is; nothing of the request was kept";
const WRONG: &str = "nobody has these credentials; nothing of the request was kept";
