//! The gate before the routes: whether a point may pass, and in which shape.

use super::config::Config;
use super::denial::{Denial, Lacks, Refused};
use super::quota::{Meter, Quota};
use super::scope::{Scopes, is_fit};
use super::shape::Shape;
use crate::units::Size;
use protocols::{Batch, Point, UnixNanos};
use std::sync::Arc;

/// Somebody who may write something.
#[derive(Debug)]
pub struct Principal {
    /// What routes, logs and pages call it.
    pub name: Arc<str>,
    /// Of any sort, as they are written.
    pub(super) all_scopes: Vec<String>,
    scopes: Scopes,
    shape: Shape,
    quota: Option<Quota>,
    meter: Arc<Meter>,
}

impl Principal {
    pub(super) fn new(name: &str, config: &Config, meter: Arc<Meter>) -> Self {
        let (scopes, shape) = (Scopes::new(&config.scopes), Shape::new(config));
        let quota = Some(config.quota).filter(|quota| *quota != Quota::default());
        let all_scopes = config.scopes.clone();
        Self { name: name.into(), all_scopes, scopes, shape, quota, meter }
    }
}

/// What points have to pass, for one sender.
#[derive(Clone, Debug, Default)]
pub enum Gate {
    /// There are no principals; all pass as they are.
    #[default]
    Open,
    /// Nobody who is known sends them; none pass.
    Shut,
    /// Nobody is asked who he is, and has shown that he may write these.
    Only(Arc<Scopes>),
    /// What the principal may write passes, in the shape that it is given.
    Of(Arc<Principal>, Grant),
}

/// What credentials say about scopes.
#[derive(Clone, Debug, Default)]
pub enum Grant {
    /// Nothing.
    #[default]
    Own,
    /// Those of the principal, as far as they are among these.
    Within(Arc<Scopes>),
    /// These.
    Instead(Arc<Scopes>),
}

impl Gate {
    /// The gate of a principal.
    pub const fn of(principal: Arc<Principal>) -> Self {
        Self::Of(principal, Grant::Own)
    }

    /// The same for credentials that are good for no more than these scopes; for all of them where
    /// the principal itself has none. Scopes that are about no series (mistyped, it may be) are some.
    pub(super) fn within(principal: Arc<Principal>, scopes: Arc<Scopes>) -> Self {
        let grant = match principal.all_scopes.is_empty() {
            true => Grant::Instead(scopes),
            false => Grant::Within(scopes),
        };
        Self::Of(principal, grant)
    }

    /// The same, limited by whoever has the credentials.
    pub(super) const fn limited(principal: Arc<Principal>, scopes: Arc<Scopes>) -> Self {
        Self::Of(principal, Grant::Within(scopes))
    }

    /// Whose it is.
    pub const fn principal(&self) -> Option<&Arc<Principal>> {
        match self {
            Self::Of(principal, _) => Some(principal),
            Self::Open | Self::Shut | Self::Only(_) => None,
        }
    }

    /// Whether a point, as its client sent it, may pass.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check(&self, point: &Point<'_>) -> Result<(), Denial> {
        let (principal, grant) = match self {
            Self::Open => return Ok(()),
            Self::Shut => return Err(Denial::NoPrincipal),
            Self::Only(_) if !is_fit(point.name) => return Err(Denial::Name),
            Self::Only(scopes) if scopes.allow(point.name) => return Ok(()),
            Self::Only(_) => return Err(Denial::Scope),
            Self::Of(principal, grant) => (principal, grant),
        };
        if !is_fit(point.name) {
            return Err(Denial::Name);
        }
        let allowed = match grant {
            Grant::Own => principal.scopes.allow(point.name),
            Grant::Within(scopes) => principal.scopes.allow(point.name) && scopes.allow(point.name),
            Grant::Instead(scopes) => scopes.allow(point.name),
        };
        if !allowed {
            return Err(Denial::Scope);
        }
        principal.shape.reserved(point).map_or(Ok(()), |it| Err(Denial::ReservedTag(it)))
    }

    /// Whether all points of a request may pass.
    ///
    /// # Errors
    ///
    /// Why not, for its sender.
    pub fn check_all(&self, points: &Batch) -> Result<(), Refused> {
        if matches!(self, Self::Open) {
            return Ok(());
        }
        let mut lacks = Lacks::default();
        for point in points.iter() {
            if let Err(denial) = self.check(&point) {
                lacks.note(denial, &point);
            }
        }
        lacks.refused().map_or(Ok(()), Err)
    }

    /// Uses up what a point takes of its sender's quota; `series` is the hash of its series.
    ///
    /// # Errors
    ///
    /// There is no room for it.
    pub fn spend(&self, series: impl FnOnce() -> u64, now: UnixNanos) -> Result<(), Denial> {
        let Some((quota, meter)) = self.quota() else { return Ok(()) };
        let spent = match quota.counts_series() {
            true => meter.spend(quota, 1, &[series()], now),
            false => meter.spend_points(quota, 1, now),
        };
        spent.map_err(|exceeded| Denial::Quota(exceeded.kind))
    }

    /// The same for all points of a request, or none of them.
    ///
    /// # Errors
    ///
    /// There is no room for all of them.
    pub fn spend_all(
        &self,
        points: usize,
        series: impl Iterator<Item = u64>,
        now: UnixNanos,
    ) -> Result<(), Refused> {
        let Some((quota, meter)) = self.quota() else { return Ok(()) };
        let series: Vec<_> = if quota.counts_series() { series.collect() } else { Vec::new() };
        meter.spend(quota, points as u64, &series, now).map_err(Refused::from)
    }

    /// Whether what passes is paid for.
    pub fn is_metered(&self) -> bool {
        self.quota().is_some()
    }

    /// Whether a point of a series that is known could be paid for now; nothing is used up.
    pub fn can_spend(&self, now: UnixNanos) -> bool {
        self.quota().is_none_or(|(quota, meter)| meter.has_room(quota, now))
    }

    /// Whether something of a point that passes depends on its series' not being known.
    pub fn counts_series(&self) -> bool {
        self.quota().is_some_and(|(quota, _)| quota.counts_series())
    }

    /// The largest body that a request may have, if that is limited here.
    pub fn body_max(&self) -> Option<usize> {
        self.quota().and_then(|(quota, _)| quota.body).map(Size::bytes)
    }

    fn quota(&self) -> Option<(&Quota, &Meter)> {
        let principal = self.principal()?;
        Some((principal.quota.as_ref()?, &principal.meter))
    }

    /// The shape of what passes, if it is not that in which it came.
    pub fn shape(&self) -> Option<&Shape> {
        self.principal().map(|principal| &principal.shape).filter(|shape| shape.changes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::denial::Reserved;
    use super::*;
    use serde_json::json;

    fn gate(config: serde_json::Value) -> Gate {
        let config = serde_json::from_value(config).unwrap();
        Gate::of(Arc::new(Principal::new("x", &config, Arc::default())))
    }

    fn check(gate: &Gate, name: &str, tags: &[&str]) -> Result<(), Denial> {
        let mut batch = Batch::new();
        let mut writer = batch.begin(name);
        for tag in tags {
            writer.tag(tag, None);
        }
        writer.finish(protocols::Measure::Gauge(1.0), None, "");
        drop(writer);
        let checked = gate.check(&batch.point(0).unwrap());
        assert_eq!(gate.check_all(&batch).map_err(|refused| refused.denial), checked, "{name}");
        checked
    }

    #[test]
    fn a_gate_denies_what_its_principal_may_not() {
        assert_eq!(check(&Gate::Open, "é*", &[]), Ok(()));
        assert_eq!(check(&Gate::Shut, "a", &[]), Err(Denial::NoPrincipal));
        let some = gate(json!({
            "scopes": ["stats:put-points:build/*"], "tags": { "reserved": ["host"] },
        }));
        assert_eq!(check(&some, "build/a", &["x"]), Ok(()));
        assert_eq!(check(&some, "built", &[]), Err(Denial::Scope));
        assert_eq!(check(&some, "build/*", &[]), Err(Denial::Name));
        assert_eq!(check(&some, "build/é", &[]), Err(Denial::Name));
        let reserved = Err(Denial::ReservedTag(Reserved::Tag(1)));
        assert_eq!(check(&some, "build/a", &["x", "host"]), reserved);
        let all = gate(json!({ "scopes": ["*"] }));
        assert_eq!(check(&all, "build/*", &[]), Err(Denial::Name), "it looks like many");
    }

    #[test]
    fn credentials_may_be_good_for_less() {
        let principal = |scopes: &[&str]| {
            let config = serde_json::from_value(json!({ "scopes": scopes })).unwrap();
            Arc::new(Principal::new("x", &config, Arc::default()))
        };
        let scopes = |scope: &str| Arc::new(Scopes::new([scope]));
        let some = ["stats:put-points:a*"];
        let within = Gate::within(principal(&some), scopes("stats:put-points:*b"));
        assert_eq!(check(&within, "ab", &[]), Err(Denial::Scope), "`*b` is no wildcard");
        let within = Gate::within(principal(&some), scopes("stats:put-points:*"));
        assert_eq!(check(&within, "ab", &[]), Ok(()));
        assert_eq!(check(&within, "b", &[]), Err(Denial::Scope));
        let instead = Gate::within(principal(&[]), scopes("stats:put-points:b"));
        assert_eq!(check(&instead, "b", &[]), Ok(()));
        assert_eq!(check(&instead, "a", &[]), Err(Denial::Scope));
        let mistyped =
            Gate::within(principal(&["stats:put-point:b"]), scopes("stats:put-points:*"));
        assert_eq!(check(&mistyped, "b", &[]), Err(Denial::Scope), "what is wrong opens nothing");
        let limited = Gate::limited(principal(&[]), scopes("stats:put-points:b"));
        assert_eq!(check(&limited, "b", &[]), Err(Denial::Scope), "nothing can be limited to more");
    }

    #[test]
    fn a_shape_that_changes_nothing_is_none() {
        assert!(gate(json!({ "tags": { "reserved": ["host"] } })).shape().is_none());
        assert!(gate(json!({ "prefix": "p" })).shape().is_some());
        assert!(Gate::Open.shape().is_none() && Gate::Shut.shape().is_none());
    }
}
