//! The rules of the table, compiled: which backends a point goes to, and why.
//!
//! The decision depends on name, tags, kind and origin alone, so it can be asked for without
//! sending anything, which is what `explain` does.

use super::Config;
use super::rewrite::Rewrite;
use super::test::Test;
use crate::mistake::{Mistake, did_you_mean};
use crate::origin::Origin;
use crate::waybill::Via;
use protocols::{Batch, Point};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All rules, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

/// One route.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What metrics and `explain` call it.
    pub name: String,
    /// What goes with each point that it hands over.
    pub via: Arc<Via>,
    /// What it asks of a point.
    pub test: Test,
    /// Where it sends what it takes.
    pub to: LaneSet,
    /// Whether the walk ends with it.
    pub last: bool,
    /// How it changes what it takes.
    pub rewrite: Option<Rewrite>,
}

/// A set of lanes by their place in the table; there are at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSet(u64);

impl LaneSet {
    /// How many lanes a table can have.
    pub const MAX: usize = 64;

    /// Adds the lane at `place`.
    pub fn insert(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in either set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Only the lane at `place`.
    #[must_use]
    pub fn of(place: usize) -> Self {
        let mut set = Self::default();
        set.insert(place);
        set
    }

    /// What is in both sets.
    #[must_use]
    pub const fn shared(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of the other is in this set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The places, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let place = rest.trailing_zeros() as usize;
            (rest != 0).then(|| rest &= rest - 1).map(|()| place)
        })
    }
}

/// What `explain` tells of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the point; the lanes that get it by this route.
    Takes {
        /// Lanes that no earlier route named.
        lanes: LaneSet,
        /// Lanes that had it already.
        had: LaneSet,
    },
    /// It does not, and why.
    Passes(String),
    /// An earlier route was `final`.
    NotTried,
}

impl Rules {
    /// Compiles all routes; `lanes` are the backends' names and their places in the table.
    ///
    /// # Errors
    ///
    /// Every mistake of every route.
    pub fn compile(
        routes: &[Config],
        lanes: &BTreeMap<String, usize>,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let rules = routes
            .iter()
            .enumerate()
            .map(|(index, route)| rule(route, index, lanes, &mut mistakes))
            .collect();
        if mistakes.is_empty() { Ok(Self(rules)) } else { Err(mistakes) }
    }

    /// Compiles the route at `index` of the configuration alone, for its mistakes.
    ///
    /// # Errors
    ///
    /// Every mistake of it.
    pub fn compile_one(
        route: &Config,
        index: usize,
        lanes: &BTreeMap<String, usize>,
    ) -> Result<Rule, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let rule = rule(route, index, lanes, &mut mistakes);
        if mistakes.is_empty() { Ok(rule) } else { Err(mistakes) }
    }

    /// The one at that place.
    pub fn get(&self, place: usize) -> Option<&Rule> {
        self.0.get(place)
    }

    /// The rules in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.0.iter()
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tries the rules in order and calls `visit` for each that takes the point, with its place
    /// and the lanes that no earlier one named. Answers whether any did.
    pub fn walk<'r>(
        &'r self,
        point: &Point<'_>,
        origin: &Origin,
        mut visit: impl FnMut(usize, &'r Rule, LaneSet),
    ) -> bool {
        let mut had = LaneSet::default();
        let mut matched = false;
        for (place, rule) in self.0.iter().enumerate() {
            if !rule.test.matches(point, origin) {
                continue;
            }
            matched = true;
            visit(place, rule, rule.to.without(had));
            had = had.with(rule.to);
            if rule.last {
                break;
            }
        }
        matched
    }

    /// What each rule says to the point, in order.
    pub fn explain(&self, point: &Point<'_>, origin: &Origin) -> Vec<Verdict> {
        let mut had = LaneSet::default();
        let mut ended = false;
        let verdict = |rule: &Rule| {
            if ended {
                return Verdict::NotTried;
            }
            if let Some(reason) = rule.test.refusal(point, origin) {
                return Verdict::Passes(reason);
            }
            let verdict = Verdict::Takes {
                lanes: rule.to.without(had),
                had: rule.to.without(rule.to.without(had)),
            };
            had = had.with(rule.to);
            ended = rule.last;
            verdict
        };
        self.0.iter().map(verdict).collect()
    }

    /// The lanes that points from there could reach, whoever sends them unless that is known.
    pub fn reachable(&self, origin: &Origin) -> LaneSet {
        let admitting = self.0.iter().filter(|rule| rule.test.may_admit(origin));
        admitting.fold(LaneSet::default(), |set, rule| set.with(rule.to))
    }
}

impl Rule {
    /// The point as this rule sends it: written into `scratch` when the rule changes it.
    pub fn sent<'p>(&self, point: Point<'p>, scratch: &'p mut Batch) -> Point<'p> {
        let Some(rewrite) = &self.rewrite else { return point };
        rewrite.apply(&point, scratch);
        scratch.point(0).unwrap_or(point)
    }
}

fn rule(
    route: &Config,
    index: usize,
    lanes: &BTreeMap<String, usize>,
    mistakes: &mut Vec<Mistake>,
) -> Rule {
    let key = format!("routes[{index}]");
    let mut to = LaneSet::default();
    for (position, backend) in route.to.iter().enumerate() {
        match lanes.get(backend) {
            Some(place) => to.insert(*place),
            None => {
                mistakes.push(unknown_backend(backend, &format!("{key}.to[{position}]"), lanes))
            }
        }
    }
    let name = route.name_at(index);
    let rewrite = route.rewrite.as_ref();
    Rule {
        via: Arc::new(Via {
            route: name.as_str().into(),
            rewrite: rewrite.map(Rewrite::fingerprint),
        }),
        name,
        test: Test::compile(&route.matching, &format!("{key}.match"), mistakes),
        to,
        last: route.last,
        rewrite: rewrite
            .map(|rewrite| Rewrite::compile(rewrite, &format!("{key}.rewrite"), mistakes)),
    }
}

fn unknown_backend(name: &str, key: &str, lanes: &BTreeMap<String, usize>) -> Mistake {
    let mistake = Mistake::new(key, format!("there is no backend `{name}`"));
    let known = lanes.keys().map(String::as_str);
    match did_you_mean(name, known) {
        Some(hint) => mistake.hint(hint),
        None => mistake.hint(format!("add a section [backends.{name}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Protocol;
    use protocols::{Measure, Number};

    fn rules(routes: serde_json::Value) -> Result<Rules, Vec<Mistake>> {
        let routes: Vec<Config> = serde_json::from_value(routes).unwrap();
        let lanes = ["a", "b", "c"].iter().enumerate();
        Rules::compile(&routes, &lanes.map(|(place, name)| ((*name).to_owned(), place)).collect())
    }

    fn origin() -> Origin {
        Origin::new("statsd", Protocol::Statsd)
    }

    fn counter(name: &str, tags: &[(&str, Option<&str>)]) -> Batch {
        let mut batch = Batch::new();
        let mut writer = batch.begin(name);
        for (key, value) in tags {
            writer.tag(key, *value);
        }
        writer.finish(Measure::Count { delta: 1.0, rate: 1.0 }, None, "");
        drop(writer);
        batch
    }

    /// Where a counter goes, as `rule:lanes` of each rule that takes it.
    fn check(routes: serde_json::Value, batch: &Batch, expected: &str) {
        let rules = rules(routes).unwrap();
        let mut got = Vec::new();
        let mut scratch = Batch::new();
        let point = batch.point(0).unwrap();
        rules.walk(&point, &origin(), |place, rule, lanes| {
            let lanes: Vec<_> = lanes.iter().map(|lane| lane.to_string()).collect();
            let name = rule.sent(point, &mut scratch).name;
            got.push(format!("{place}:{}:{name}", lanes.join("+")));
        });
        assert_eq!(got.join(" "), expected);
    }

    #[test]
    fn every_rule_that_matches_adds_its_lanes_until_one_is_final() {
        let routes = serde_json::json!([
            {"match": {"name": "x*"}, "to": ["a"]},
            {"match": {"name": "x.last"}, "to": ["b"], "final": true},
            {"to": ["c"]},
        ]);
        check(routes.clone(), &counter("x.y", &[]), "0:0:x.y 2:2:x.y");
        check(routes.clone(), &counter("x.last", &[]), "0:0:x.last 1:1:x.last");
        check(routes, &counter("y", &[]), "2:2:y");
    }

    #[test]
    fn a_lane_named_twice_gets_the_point_once_as_the_first_rule_wrote_it() {
        let routes = serde_json::json!([
            {"to": ["a"], "rewrite": {"name": "new.${name}"}},
            {"to": ["a", "b"]},
        ]);
        check(routes, &counter("x", &[]), "0:0:new.x 1:1:x");
    }

    #[test]
    fn all_parts_of_a_match_must_hold() {
        let routes = serde_json::json!([{
            "match": {"name": "m", "kind": ["counter", "gauge"], "protocol": "statsd",
                      "listener": ["statsd", "api"], "tags": {"env": "{prod,stage}", "canary": "true"}},
            "to": ["a"]
        }]);
        check(routes.clone(), &counter("m", &[("env", Some("prod")), ("canary", None)]), "0:0:m");
        check(routes.clone(), &counter("m", &[("env", Some("dev")), ("canary", None)]), "");
        check(routes.clone(), &counter("m", &[("env", Some("prod"))]), "");
        check(routes, &counter("n", &[("env", Some("prod")), ("canary", None)]), "");
    }

    #[test]
    fn explain_says_why() {
        let rules = rules(serde_json::json!([
            {"match": {"kind": "timer"}, "to": ["a"]},
            {"match": {"tags": {"env": "prod"}}, "to": ["a"]},
            {"to": ["b"], "final": true},
            {"to": ["c"]},
        ]))
        .unwrap();
        let batch = counter("m", &[("env", Some("dev"))]);
        let verdicts = rules.explain(&batch.point(0).unwrap(), &origin());
        let mut lanes = LaneSet::default();
        lanes.insert(1);
        assert_eq!(
            verdicts,
            [
                Verdict::Passes("kind is counter".into()),
                Verdict::Passes("tag env is dev".into()),
                Verdict::Takes { lanes, had: LaneSet::default() },
                Verdict::NotTried,
            ]
        );
    }

    #[test]
    fn rewriting_changes_name_and_tags_and_nothing_else() {
        let rules = rules(serde_json::json!([{
            "to": ["a"],
            "rewrite": {"name": "p.${name}.s", "tags": {
                "drop": ["secret"], "rename": {"env": "environment"}, "add": {"via": "gateway"}}}
        }]))
        .unwrap();
        let mut batch = Batch::new();
        let mut writer = batch.begin("m");
        writer.tag("secret", Some("x"));
        writer.tag("env", Some("prod"));
        writer.finish(Measure::Reading(Number::I64(7)), None, "rest");
        drop(writer);
        let mut scratch = Batch::new();
        let rule = rules.iter().next().unwrap();
        let sent = rule.sent(batch.point(0).unwrap(), &mut scratch);
        assert_eq!((sent.name, sent.rest), ("p.m.s", "rest"));
        assert_eq!(sent.measure, Measure::Reading(Number::I64(7)));
        let tags: Vec<_> = sent.tags.iter().map(|tag| (tag.key, tag.value)).collect();
        assert_eq!(tags, [("environment", Some("prod")), ("via", Some("gateway"))]);
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        let mistakes = rules(serde_json::json!([
            {"to": ["aa"], "match": {"name": "/(/", "kind": "countr"}},
            {"to": ["influx"], "rewrite": {"name": "${nam}", "tags": {"add": {"k": ""}}}},
        ]))
        .unwrap_err();
        let keys: Vec<_> = mistakes.iter().map(|mistake| mistake.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "routes[0].to[0]",
                "routes[0].match.name",
                "routes[0].match.kind",
                "routes[1].to[0]",
                "routes[1].rewrite.name",
                "routes[1].rewrite.tags.add.k",
            ]
        );
        assert_eq!(mistakes[0].hint.as_deref(), Some("did you mean `a`?"));
        assert_eq!(mistakes[2].hint.as_deref(), Some("did you mean `counter`?"));
    }
}
