//! Who sends a request: what it shows, or else what its connection proves.
//!
//! Credentials stand in the header `Authorization`; senders of InfluxDB 1.x may write `u` and `p`
//! into the query instead, and agents write all of it empty when they have none. Wrong ones are
//! 401, whatever the connection proves, and so are none where it proves nothing. Where there are no
//! principals nobody is asked. Counts as rejected `unauthenticated`, `bad_credentials`, and
//! `auth_service_away` and `auth_service_busy`, which are 503.

use super::answer::{Refusal, Web};
use super::{query, target};
use crate::access::{
    Access, AuthService, Credential, Gate, Signed, Signer, Target, Unreadable, Unvouched,
    is_payload,
};
use crate::ingest::intake::{certified, proof};
use crate::net::{Peer, PeerCertificate};
use crate::origin::Protocol;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use std::net::IpAddr;
use std::sync::Arc;

/// Whose a request is, as far as that can be told without waiting.
pub(super) enum Sender {
    Known(Admitted),
    Elsewhere(Box<Question>),
}

/// For whom somebody else has to be asked.
pub(super) struct Question {
    service: Arc<AuthService>,
    signed: Signed,
    target: Target,
    from: Option<IpAddr>,
    media_type: String,
    challenges: Vec<&'static str>,
}

/// A request whose sender is known.
pub(super) struct Admitted {
    /// What its points have to pass.
    pub(super) gate: Gate,
    /// The hash of its payload and its media type, where that was signed.
    payload: Option<(String, String)>,
    challenges: Vec<&'static str>,
}

impl Sender {
    /// Looks at what the request shows, and at where it comes from.
    pub(super) fn of(request: &Request, web: &Web) -> Result<Self, Refusal> {
        let table = web.router.table();
        let access = &table.access;
        if access.is_open() {
            return Ok(Self::Known(Admitted::by(Gate::Open)));
        }
        match shown(request, web.config.protocol).map_err(|Unreadable| wrong(access))? {
            Some(Credential::Hawk(signed)) => by_signature(request, signed, access, web),
            Some(other) => {
                let gate = access.by_credential(&other).ok_or_else(|| wrong(access))?;
                Ok(Self::Known(Admitted::by(gate)))
            }
            None => by_connection(request, access, web).map(Admitted::by).map(Self::Known),
        }
    }

    /// Waits until it is known.
    pub(super) async fn admitted(self, web: &Web) -> Result<Admitted, Refusal> {
        match self {
            Self::Known(admitted) => Ok(admitted),
            Self::Elsewhere(question) => question.ask(web).await,
        }
    }
}

impl Question {
    async fn ask(self, web: &Web) -> Result<Admitted, Refusal> {
        let Self { service, signed, target, from, media_type, challenges } = self;
        match service.ask(&signed, &target, from, web.clock.now()).await {
            Ok(vouched) => Ok(Admitted {
                gate: service.gate(&vouched),
                payload: vouched.hash.map(|hash| (hash, media_type)),
                challenges,
            }),
            Err(Unvouched::Denied) => {
                Err(Refusal::new(401, "bad_credentials", WRONG).challenging(challenges))
            }
            Err(Unvouched::Busy) => Err(Refusal::new(503, "auth_service_busy", BUSY)),
            Err(Unvouched::Away(why)) => {
                web.warn_of_auth_service(&why);
                Err(Refusal::new(503, "auth_service_away", AWAY))
            }
        }
    }
}

impl Admitted {
    const fn by(gate: Gate) -> Self {
        Self { gate, payload: None, challenges: Vec::new() }
    }

    /// The body has to be the one that was signed, if one was.
    pub(super) fn check(&self, body: &[u8]) -> Result<(), Refusal> {
        match &self.payload {
            Some((hash, media_type)) if !is_payload(hash, media_type, body) => {
                let text = "the payload is not the one that was signed; nothing of it was kept";
                Err(Refusal::new(401, "bad_credentials", text).challenging(self.challenges.clone()))
            }
            _ => Ok(()),
        }
    }
}

fn by_connection(request: &Request, access: &Access, web: &Web) -> Result<Gate, Refusal> {
    let certificate = request.extensions().get::<Arc<PeerCertificate>>();
    let peer = request.extensions().get::<Peer>();
    let proof = peer.map(|peer| certified(peer, certificate)).unwrap_or_default();
    match access.by_connection(&web.listener, &proof) {
        Gate::Shut => {
            let refusal = Refusal::new(401, UNAUTHENTICATED, MISSING);
            Err(refusal.challenging(access.challenges()))
        }
        gate => Ok(gate),
    }
}

fn by_signature(
    request: &Request,
    signed: Signed,
    access: &Access,
    web: &Web,
) -> Result<Sender, Refusal> {
    let peer = request.extensions().get::<Peer>();
    let is_tls = web.tls.is_some() && matches!(peer, Some(Peer::Net(_)));
    let target = target::of(request, is_tls, access.trusts_forwarded());
    let target = target.ok_or_else(|| wrong(access))?;
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let (media_type, challenges) = (kind.unwrap_or("").to_owned(), access.challenges());
    match access.by_signature(&signed, &target, web.clock.now()) {
        Signer::Known(gate) => {
            let payload = signed.hash().map(|hash| (hash.to_owned(), media_type));
            Ok(Sender::Known(Admitted { gate, payload, challenges }))
        }
        Signer::Elsewhere(service) => {
            let from = peer.and_then(|peer| proof(peer).address);
            let question = Question { service, signed, target, from, media_type, challenges };
            Ok(Sender::Elsewhere(Box::new(question)))
        }
        Signer::Nobody => Err(wrong(access)),
    }
}

fn wrong(access: &Access) -> Refusal {
    Refusal::new(401, "bad_credentials", WRONG).challenging(access.challenges())
}

/// The credentials of a request, if it has any.
fn shown(request: &Request, protocol: Protocol) -> Result<Option<Credential>, Unreadable> {
    let header = in_header(request)?;
    if protocol != Protocol::Influxdb {
        return Ok(header);
    }
    match header.filter(|credential| !credential.are_empty()) {
        None => in_query(request.uri().query().unwrap_or("")),
        shown => Ok(shown),
    }
}

fn in_header(request: &Request) -> Result<Option<Credential>, Unreadable> {
    let mut values = request.headers().get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => Credential::parse(value.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(Unreadable),
    }
}

fn in_query(text: &str) -> Result<Option<Credential>, Unreadable> {
    let part = |key: &str| match query::value(text, key) {
        None | Some("") => Ok(String::new()),
        Some(_) => query::text(text, key).ok_or(Unreadable),
    };
    let (username, password) = (part("u")?, part("p")?);
    let has_any = !username.is_empty() || !password.is_empty();
    Ok(has_any.then_some(Credential::Basic { username, password }))
}

/// Why a request is refused whose sender has to be known, and is not.
pub const UNAUTHENTICATED: &str = "unauthenticated";

const MISSING: &str = "who writes here has to say who he is; nothing of the request was kept";
const WRONG: &str = "nobody has these credentials; nothing of the request was kept";
const BUSY: &str = "too many ask for themselves now whose credentials are not known yet; nothing of the request was \
     kept";
const AWAY: &str =
    "who knows these credentials cannot be asked now; nothing of the request was kept";
