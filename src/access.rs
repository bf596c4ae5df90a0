//! Who may write what: the gate that every point passes, whatever brought it.
//!
//! ```text
//! what a connection proves ─┐
//!                           ├─► Access: which principal? ─► Gate: may it? ─► Shape ─► routes
//! credentials of a request ─┘
//! ```
//!
//! A *principal* has scopes, which name the series that it may write, and a shape that its points are
//! given whatever they say. The credentials of a request take precedence over what its connection proves,
//! and wrong ones are refused even where the connection alone would do. Without principals the gate is
//! open and nothing is asked.
//!
//! Pure, with no sockets and no clock, except for [`AuthService`], which asks a Taskcluster. Secrets are
//! kept only as hashes, or as keys where something is signed with them. The routing table holds the
//! access in force, so that both change in one swap; where the gate stands is up to
//! [`crate::route::crossing`].

mod auth_service;
mod config;
mod credential;
mod denial;
mod gate;
mod hashed;
mod hawk;
mod network;
mod proof;
mod quota;
mod scope;
mod shape;
mod turns;

pub use self::hawk::{Hawk, HawkCredentials, Signed, SigningKey, Target, is_payload};
pub use auth_service::{AuthService, Unvouched};
pub use config::{Basic, Config, Tags};
pub use credential::{Credential, Unreadable};
pub use denial::{Denial, Refused, Reserved};
pub use gate::{Gate, Principal};
pub use hashed::{EMPTY_SECRET, Hashed};
pub use network::Network;
pub use proof::{Proof, UnixPeer};
pub use quota::{Meters, Quota};
pub use scope::{Scopes, Trouble, check as check_scope, is_fit};
pub use shape::{Shape, Shaped, is_alike};

use protocols::UnixNanos;
use ring::hmac::Key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who may write, and how they are known. By default anyone may, and nobody is asked.
#[derive(Debug, Default)]
pub struct Access {
    principals: Vec<Arc<Principal>>,
    listeners: BTreeMap<String, Arc<Principal>>,
    tokens: Vec<(Hashed, Arc<Principal>)>,
    basic: Vec<(String, Hashed, Arc<Principal>)>,
    names: BTreeMap<String, Arc<Principal>>,
    /// Those with more conditions first.
    unix: Vec<(UnixPeer, Arc<Principal>)>,
    /// The smallest first.
    networks: Vec<(Network, Arc<Principal>)>,
    keys: BTreeMap<String, (Key, Arc<Principal>)>,
    service: Option<Arc<AuthService>>,
    trusts_forwarded: bool,
}

/// Whose a signed request is.
#[derive(Debug)]
pub enum Signer {
    /// That of the principal whose gate this is.
    Known(Gate),
    /// Only the service can say.
    Elsewhere(Arc<AuthService>),
    /// Nobody's.
    Nobody,
}

impl Access {
    /// Of principals that were judged, by name; `own` are the listeners that name one of them.
    /// What they have used of their quotas is in `meters`.
    pub fn new<'a>(
        principals: &BTreeMap<String, Config>,
        own: impl Iterator<Item = (&'a str, &'a str)>,
        meters: &Meters,
    ) -> Self {
        let mut access = Self::default();
        for (name, config) in principals {
            access.add(Arc::new(Principal::new(name, config, meters.of(name))), config);
        }
        for (listener, name) in own {
            if let Some(principal) = access.find(name).cloned() {
                access.listeners.insert(listener.to_owned(), principal);
            }
        }
        access.unix.sort_by_key(|(peer, _)| std::cmp::Reverse(peer.conditions()));
        access.networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix()));
        access
    }

    fn add(&mut self, principal: Arc<Principal>, config: &Config) {
        let same = || Arc::clone(&principal);
        self.listeners.extend(config.listeners.iter().map(|name| (name.clone(), same())));
        self.tokens.extend(config.tokens.iter().map(|token| (*token, same())));
        let basic = config.basic.iter();
        let basic = basic.filter_map(|one| Some((one.username.clone(), one.password?, same())));
        self.basic.extend(basic);
        self.names.extend(config.mtls.iter().map(|name| (name.clone(), same())));
        self.unix.extend(config.unix.iter().map(|peer| (*peer, same())));
        self.networks.extend(config.networks.iter().map(|network| (*network, same())));
        for HawkCredentials { id, key, .. } in &config.hawk.credentials {
            let key = key.as_ref().map(hawk::key);
            self.keys.extend(key.map(|key| (id.clone(), (key, same()))));
        }
        let service = AuthService::new(same(), &config.hawk).map(Arc::new);
        self.service = service.or_else(|| self.service.take());
        self.trusts_forwarded |= config.hawk.trust_forwarded;
        self.principals.push(principal);
    }

    /// Whether there are no principals, and anyone may write anything.
    pub const fn is_open(&self) -> bool {
        self.principals.is_empty()
    }

    /// The principal of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<Principal>> {
        self.principals.iter().find(|principal| *principal.name == *name)
    }

    /// Whether anybody is known by a bearer token.
    pub const fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether it matters which address a datagram comes from.
    pub const fn asks_for_addresses(&self) -> bool {
        !self.networks.is_empty()
    }

    /// The gate for what comes by that listener without credentials. The most specific proof counts:
    /// the sender's certificate, else the user of a process on this host, else the smallest network that
    /// contains the address, else the listener.
    pub fn by_connection(&self, listener: &str, proof: &Proof) -> Gate {
        if self.is_open() {
            return Gate::Open;
        }
        let certificate = || proof.names.iter().find_map(|name| self.names.get(name));
        let user = || proof.user.and_then(|user| first(&self.unix, |peer| peer.is(user)));
        let network = || {
            let address = proof.address?;
            first(&self.networks, |network| network.contains(address))
        };
        let sender = certificate().or_else(user).or_else(network);
        let principal = sender.or_else(|| self.listeners.get(listener));
        principal.map_or(Gate::Shut, |principal| Gate::of(Arc::clone(principal)))
    }

    /// The gate for what comes by that listener and has proved that it may write these series. Where
    /// there are principals, the listener's has to allow them as well, unless it has no scopes of its own.
    pub fn by_series(&self, listener: &str, series: Scopes) -> Gate {
        let series = Arc::new(series);
        match self.by_connection(listener, &Proof::default()) {
            Gate::Open | Gate::Only(_) => Gate::Only(series),
            Gate::Of(principal, _) => Gate::within(principal, series),
            Gate::Shut => Gate::Shut,
        }
    }

    /// Whose this request is, which was signed for the target.
    pub fn by_signature(&self, signed: &Signed, target: &Target, now: UnixNanos) -> Signer {
        let Some((key, principal)) = self.keys.get(&signed.id) else {
            return self.service.clone().map_or(Signer::Nobody, Signer::Elsewhere);
        };
        if !signed.is_by(key, target, now) {
            return Signer::Nobody;
        }
        let principal = Arc::clone(principal);
        match signed.limits(&principal.all_scopes) {
            Ok(None) => Signer::Known(Gate::of(principal)),
            Ok(Some(limits)) => {
                Signer::Known(Gate::limited(principal, Arc::new(Scopes::new(limits))))
            }
            Err(Unreadable) => Signer::Nobody,
        }
    }

    /// Whether what a proxy says of a request is believed.
    pub const fn trusts_forwarded(&self) -> bool {
        self.trusts_forwarded
    }

    /// The gate for whoever has these credentials; `None` if nobody has. Signatures are for
    /// [`by_signature`](Self::by_signature).
    pub fn by_credential(&self, credential: &Credential) -> Option<Gate> {
        let principal = match credential {
            Credential::Bearer(token) => {
                let hash = Hashed::of(token.as_bytes());
                find_alike(self.tokens.iter().map(|(token, who)| (*token, true, who)), hash)
            }
            Credential::Basic { username, password } => {
                let hash = Hashed::of(password.as_bytes());
                let basic = self.basic.iter();
                find_alike(basic.map(|(name, hash, who)| (*hash, name == username, who)), hash)
            }
            Credential::Hawk(_) => None,
        };
        principal.map(|principal| Gate::of(Arc::clone(principal)))
    }

    /// What a sender without credentials is told to come with.
    pub fn challenges(&self) -> Vec<&'static str> {
        let hawk = (!self.keys.is_empty() || self.service.is_some()).then_some(HAWK);
        let basic = (!self.basic.is_empty()).then_some(BASIC);
        let others = basic.is_some() || hawk.is_some();
        let bearer = (!self.tokens.is_empty() || !others).then_some(BEARER);
        bearer.into_iter().chain(basic).chain(hawk).collect()
    }
}

fn first<T>(all: &[(T, Arc<Principal>)], is: impl Fn(&T) -> bool) -> Option<&Arc<Principal>> {
    all.iter().find(|(one, _)| is(one)).map(|(_, principal)| principal)
}

/// Looks at all of them even when it has found the one, so that the time it takes reveals nothing.
fn find_alike<'a>(
    all: impl Iterator<Item = (Hashed, bool, &'a Arc<Principal>)>,
    hash: Hashed,
) -> Option<&'a Arc<Principal>> {
    all.fold(None, |found, (one, may, who)| if one.is(&hash) & may { Some(who) } else { found })
}

const BEARER: &str = "Bearer realm=\"pointsman\"";
const HAWK: &str = "Hawk";
const BASIC: &str = "Basic realm=\"pointsman\", charset=\"UTF-8\"";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn access() -> Access {
        let principals = serde_json::from_value(json!({
            "edge": { "listeners": ["statsd"], "scopes": ["stats:put-points:*"] },
            "own": { "scopes": ["stats:put-points:*"] },
            "ci": { "tokens": ["tok-1", "tok-2"], "scopes": ["stats:put-points:*"] },
            "ops": { "tokens": ["tok-3"], "basic": [{ "username": "o", "password": "tok-1" }] },
            "wide": { "networks": ["10.0.0.0/8", "fd00::/8"] },
            "near": { "networks": ["10.1.0.0/16"], "unix": [{ "uid": 7 }] },
            "worker": { "mtls": ["worker.example.com"] },
            "group": { "unix": [{ "uid": 7, "gid": 8 }] },
        }));
        Access::new(&principals.unwrap(), [("api", "own")].into_iter(), &Meters::default())
    }

    fn named(gate: &Gate) -> Option<&str> {
        gate.principal().map(|principal| &*principal.name)
    }

    #[test]
    fn without_principals_anyone_may_write() {
        let access = Access::default();
        assert!(access.is_open());
        assert!(matches!(access.by_connection("any", &Proof::default()), Gate::Open));
    }

    #[test]
    fn a_connection_is_known_by_what_says_most() {
        let access = access();
        let check = |listener: &str, address: Option<&str>, user: Option<(u32, u32)>, expected| {
            let address = address.map(|address| address.parse().unwrap());
            let proof = Proof { address, user, ..Proof::default() };
            let gate = access.by_connection(listener, &proof);
            assert_eq!(named(&gate), expected, "{listener} {address:?} {user:?}");
            assert!(!matches!(gate, Gate::Open));
        };
        check("statsd", None, None, Some("edge"));
        check("api", None, None, Some("own"));
        check("other", None, None, None);
        check("statsd", Some("10.2.0.1"), None, Some("wide"));
        check("statsd", Some("10.1.0.1"), None, Some("near"));
        check("statsd", Some("fd12::1"), None, Some("wide"));
        check("statsd", Some("192.0.2.1"), None, Some("edge"));
        check("statsd", None, Some((7, 9)), Some("near"));
        check("statsd", None, Some((7, 8)), Some("group"));
        check("statsd", None, Some((6, 8)), Some("edge"));
        for (names, expected) in
            [(&["other", "worker.example.com"][..], "worker"), (&["other"], "near"), (&[], "near")]
        {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let address = Some("10.1.0.1".parse().unwrap());
            let gate = access.by_connection("statsd", &Proof { address, names, user: None });
            assert_eq!(named(&gate), Some(expected));
        }
    }

    #[test]
    fn a_proof_of_series_is_good_for_them_alone() {
        let check = |access: &Access, listener: &str, name: &str, expected| {
            let gate = access.by_series(listener, Scopes::under_any(["build"]));
            let mut batch = protocols::Batch::new();
            batch.begin(name).finish(protocols::Measure::Gauge(1.0), None, "");
            assert_eq!(gate.check(&batch.point(0).unwrap()), expected, "{listener} {name}");
        };
        let open = Access::default();
        check(&open, "tasks", "build", Ok(()));
        check(&open, "tasks", "build.times", Ok(()));
        check(&open, "tasks", "other", Err(Denial::Scope));
        check(&open, "tasks", "build.\u{e9}", Err(Denial::Name));
        let principals = serde_json::from_value(json!({
            "some": { "listeners": ["tasks"], "scopes": ["stats:put-points:build.*"] },
            "any": { "listeners": ["other"] },
        }));
        let access = Access::new(&principals.unwrap(), [].into_iter(), &Meters::default());
        check(&access, "tasks", "build.times", Ok(()));
        check(&access, "tasks", "build", Err(Denial::Scope));
        check(&access, "other", "build", Ok(()));
        check(&access, "other", "x", Err(Denial::Scope));
        check(&access, "third", "build", Err(Denial::NoPrincipal));
    }

    #[test]
    fn credentials_are_known_or_not() {
        let access = access();
        let bearer = |token: &str| Credential::Bearer(token.to_owned());
        let basic = |username: &str, password: &str| Credential::Basic {
            username: username.to_owned(),
            password: password.to_owned(),
        };
        for (credential, expected) in [
            (bearer("tok-1"), Some("ci")),
            (bearer("tok-2"), Some("ci")),
            (bearer("tok-3"), Some("ops")),
            (bearer("tok-4"), None),
            (bearer(""), None),
            (basic("o", "tok-1"), Some("ops")),
            (basic("o", "tok-2"), None),
            (basic("p", "tok-1"), None),
            (basic("", ""), None),
        ] {
            let gate = access.by_credential(&credential);
            assert_eq!(gate.as_ref().and_then(named), expected, "{credential:?}");
        }
    }

    #[test]
    fn senders_are_told_what_would_do() {
        assert_eq!(access().challenges(), [BEARER, BASIC]);
        assert_eq!(Access::default().challenges(), [BEARER]);
    }
}
