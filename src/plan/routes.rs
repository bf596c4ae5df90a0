//! Judges routes: the names they use must exist, and theirs must differ.

use super::{Findings, errors};
use crate::config::Sections;
use crate::mistake::{Mistake, did_you_mean};
use crate::route::{Config, LaneSet, Match, Rules};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn judge(sections: &Sections, findings: &mut Findings) {
    for (i, route) in sections.routes.iter().enumerate() {
        let Some(route) = route else { continue };
        backends_exist(i, route, sections, findings);
        listeners_exist(i, route, sections, findings);
        principals_exist(i, route, sections, findings);
    }
    rules_compile(sections, findings);
    names_differ(sections, findings);
    everything_is_used(sections, findings);
    every_route_is_reached(sections, findings);
}

/// Patterns and rewrites are judged by what runs them.
fn rules_compile(sections: &Sections, findings: &mut Findings) {
    let lanes = sections.backends.keys().cloned().zip(0..LaneSet::MAX).collect();
    let readable =
        sections.routes.iter().enumerate().filter_map(|(i, route)| Some((i, route.as_ref()?)));
    for (i, route) in readable {
        let Err(mistakes) = Rules::compile_one(route, i, &lanes) else { continue };
        // Names of backends are judged above, with what is known of broken sections.
        let to = format!("routes[{i}].to[");
        findings
            .mistakes
            .extend(mistakes.into_iter().filter(|mistake| !mistake.key.starts_with(&to)));
    }
}

fn backends_exist(i: usize, route: &Config, sections: &Sections, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (j, name) in route.to.iter().enumerate() {
        let key = format!("routes[{i}].to[{j}]");
        exists(&key, "backend", name, &sections.backends, findings);
        if !seen.insert(name) {
            findings.odd(key, format!("`{name}` is named twice and gets each point once"));
        }
    }
}

fn listeners_exist(i: usize, route: &Config, sections: &Sections, findings: &mut Findings) {
    for name in route.matching.listener.iter().flat_map(|names| names.iter()) {
        let key = format!("routes[{i}].match.listener");
        exists(&key, "listener", name, &sections.listeners, findings);
    }
}

fn principals_exist(i: usize, route: &Config, sections: &Sections, findings: &mut Findings) {
    for name in route.matching.principal.iter().flat_map(|names| names.iter()) {
        let key = format!("routes[{i}].match.principal");
        exists(&key, "principal", name, &sections.principals, findings);
    }
}

/// Whether there is one of that name.
pub(super) fn exists<T>(
    key: &str,
    what: &str,
    name: &str,
    known: &BTreeMap<String, T>,
    findings: &mut Findings,
) {
    if known.contains_key(name) {
        return;
    }
    let mistake = Mistake::new(key, format!("there is no {what} `{name}`"));
    let list = || known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let hint = did_you_mean(name, known.keys().map(String::as_str))
        .or_else(|| (!known.is_empty()).then(|| format!("there is {}", list())));
    findings.mistakes.push(Mistake { hint, ..mistake });
}

fn names_differ(sections: &Sections, findings: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (i, route) in sections.routes.iter().enumerate() {
        let Some(route) = route else { continue };
        let name = route.name_at(i);
        let key = format!("routes[{i}].name");
        if name.is_empty() || name.chars().any(char::is_control) {
            findings.wrong(&key, "a route's name is a line of text");
        }
        if let Some(first) = seen.insert(name.clone(), i) {
            findings.wrong(key, format!("routes[{first}] is called `{name}`, too"));
        }
    }
}

fn everything_is_used(sections: &Sections, findings: &mut Findings) {
    if sections.routes.is_empty() {
        findings.odd("routes", "there are no routes, so every point is counted as unmatched");
        return;
    }
    let used = sections.routes.iter().flatten().flat_map(|route| &route.to);
    let used: BTreeSet<_> = used.chain(errors::backends(sections)).collect();
    // A route that could not be read may name any of them.
    if sections.routes.iter().all(Option::is_some) {
        for name in sections.backends.keys().filter(|name| !used.contains(name)) {
            let message = format!("no route names the backend `{name}`, so it gets nothing");
            findings.odd(format!("backends.{name}"), message);
        }
    }
}

/// Only the plain cases: a route that takes everything hides those after it or repeats them.
fn every_route_is_reached(sections: &Sections, findings: &mut Findings) {
    let everything = Match::default();
    let mut sent = BTreeMap::new();
    let mut end = None;
    for (i, route) in sections.routes.iter().enumerate() {
        let Some(route) = route else { continue };
        if let Some(end) = end {
            let message = format!("it is never tried: routes[{end}] is final and takes everything");
            findings.odd(format!("routes[{i}]"), message);
            continue;
        }
        if route.matching != everything {
            continue;
        }
        for name in &route.to {
            match sent.insert(name, i) {
                Some(first) if first != i => findings.odd(
                    format!("routes[{i}].to"),
                    format!("`{name}` has every point from routes[{first}] already"),
                ),
                _ => {}
            }
        }
        end = route.last.then_some(i);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    fn routes(text: &str) -> String {
        format!(
            "[listeners.statsd]\nprotocol = 'http'\nbind = ['tcp://h:1']\n\
             [backends.local]\nkind = 'blackhole'\n[backends.legacy]\nkind = 'blackhole'\n{text}"
        )
    }

    #[test]
    fn names_must_exist_and_differ() {
        refused(
            &routes(
                "[[routes]]\nto = ['lokal', 'legacy']\nmatch = { listener = ['statsd', 'stats'] }\n\
                 [[routes]]\nname = 'route 1'\nto = ['elsewhere']\n[[routes]]\nname = ''\nto = []\n",
            ),
            &[
                "routes[0].to[0]: there is no backend `lokal` (did you mean `local`?)",
                "routes[0].match.listener: there is no listener `stats` (did you mean `statsd`?)",
                "routes[1].name: routes[0] is called `route 1`, too",
                "routes[1].to[0]: there is no backend `elsewhere` (there is legacy, local)",
                "routes[2].name: a route's name is a line of text",
            ],
        );
    }

    #[test]
    fn a_backend_that_could_not_be_read_exists_nevertheless() {
        refused(
            &routes("[backends.x]\nkind = 'influx'\n[[routes]]\nto = ['x', 'local', 'legacy']\n"),
            &["there is no kind of backend `influx`"],
        );
    }

    #[test]
    fn what_is_probably_not_meant() {
        for (text, says) in [
            ("", &["there are no routes"][..]),
            ("[[routes]]\nto = ['local']\n", &["no route names the backend `legacy`"]),
            ("[[routes]]\nto = ['local', 'legacy', 'local']\n", &["`local` is named twice"]),
            (
                "[[routes]]\nto = ['local']\nfinal = true\n[[routes]]\nto = ['legacy']\n",
                &["routes[1]: it is never tried: routes[0] is final"],
            ),
            (
                "[[routes]]\nto = ['local']\n[[routes]]\nto = ['legacy', 'local']\n",
                &["`local` has every point from routes[0] already"],
            ),
            (
                "[[routes]]\nto = ['local']\n[[routes]]\nto = ['legacy', 'local']\nmatch.name = 'a*'\n",
                &[],
            ),
        ] {
            warned(&routes(text), says);
        }
        assert!(plan_of(&routes("")).is_ok());
    }
}
