//! Errors as points: judges where they go, and makes the routes that take them there.
//!
//! Each such route takes what comes in as errors of the listeners that name its backend, and is final:
//! no other sees them. They stand before all others, and before them nothing else changes.

use super::routes::exists;
use super::{Findings, Plan};
use crate::config::Sections;
use crate::errors::{Config, LISTENER};
use crate::mistake::Mistake;
use crate::route::{self, Match, OneOrMany};
use std::collections::BTreeMap;

impl Plan {
    /// The listeners whose errors are told, and where they go.
    pub fn errors(&self) -> impl Iterator<Item = (&str, &Config)> {
        let whole = self.errors.as_ref();
        let listeners = self.listeners.iter();
        listeners.filter_map(move |(name, listener)| {
            Some((name.as_str(), listener.errors.as_ref().or(whole)?))
        })
    }

    /// The routes by which they go there.
    pub fn error_routes(&self) -> Vec<route::Config> {
        let mut listeners: BTreeMap<&Config, Vec<String>> = BTreeMap::new();
        for (name, config) in self.errors() {
            listeners.entry(config).or_default().push(name.to_owned());
        }
        listeners.into_iter().map(|(config, listeners)| route(config, listeners)).collect()
    }
}

fn route(config: &Config, listeners: Vec<String>) -> route::Config {
    let one = |text: &str| Some(OneOrMany::One(text.to_owned()));
    let matching = Match {
        name: one(&config.name),
        tags: [("listener".to_owned(), OneOrMany::Many(listeners))].into(),
        listener: one(LISTENER),
        ..Match::default()
    };
    route::Config {
        name: Some(name_of(config)),
        matching,
        to: vec![config.backend.clone()],
        last: true,
        rewrite: None,
    }
}

fn name_of(config: &Config) -> String {
    format!("{} to {}", config.name, config.backend)
}

pub(super) fn judge(sections: &Sections, findings: &mut Findings) {
    let all: Vec<_> = all(sections).collect();
    for (key, config) in &all {
        exists(&format!("{key}.backend"), "backend", &config.backend, &sections.backends, findings);
        name(&format!("{key}.name"), &config.name, findings);
    }
    if !all.is_empty() && sections.listeners.contains_key(LISTENER) {
        let message = "`errors` is the name under which errors come in";
        let mistake = Mistake::new(format!("listeners.{LISTENER}"), message);
        findings.mistakes.push(mistake.hint("call the listener something else"));
    }
    for (i, route) in sections.routes.iter().enumerate() {
        let Some(own) = route.as_ref().and_then(|route| route.name.as_ref()) else { continue };
        if all.iter().any(|(_, config)| name_of(config) == *own) {
            findings.wrong(
                format!("routes[{i}].name"),
                format!("the route of errors is called `{own}`, too"),
            );
        }
    }
}

/// It names one series, which a route can ask for.
fn name(key: &str, name: &str, findings: &mut Findings) {
    let is_text = !name.is_empty() && name.len() <= NAME_BYTES && !name.contains(char::is_control);
    findings.wrong_unless(is_text, key, "a series' name is a line of text of at most 1024 bytes");
    let is_pattern = name.starts_with('/') || name.contains(['*', '?', '{', '}']);
    findings.wrong_unless(
        !is_pattern,
        key,
        "it is one series, so `*?{}` and a `/` before it mean nothing",
    );
}

/// The backends that are named for errors.
pub(super) fn backends(sections: &Sections) -> impl Iterator<Item = &String> {
    all(sections).map(|(_, config)| &config.backend)
}

/// Wherever it says so, with the key.
fn all(sections: &Sections) -> impl Iterator<Item = (String, &Config)> {
    let whole = sections.errors.iter().map(|config| ("errors".to_owned(), config));
    let own = sections.listeners.iter().filter_map(|(name, listener)| {
        let config = listener.as_ref()?.errors.as_ref()?;
        Some((format!("listeners.{name}.errors"), config))
    });
    whole.chain(own)
}

const NAME_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    fn with(listener: &str, more: &str) -> String {
        format!(
            "{more}[listeners.api]\nprotocol = 'http'\nbind = ['tcp://h:1']\n{listener}\
             [listeners.other]\nprotocol = 'http'\nbind = ['tcp://h:2']\n\
             [backends.local]\nkind = 'blackhole'\n[backends.platform]\nkind = 'blackhole'\n\
             [[routes]]\nto = ['local']\n"
        )
    }

    #[test]
    fn a_listener_says_it_for_itself_and_else_it_holds_for_all() {
        let routes = |listener: &str, more: &str| {
            let plan = plan_of(&with(listener, more)).unwrap().plan;
            let tell = |route: &crate::route::Config| {
                let listeners = route.matching.tags["listener"].iter().collect::<Vec<_>>();
                format!("{} of {}", route.name_at(0), listeners.join("+"))
            };
            plan.error_routes().iter().map(tell).collect::<Vec<_>>()
        };
        let (own, whole) =
            ("errors = { backend = 'platform', name = 'e' }\n", "errors = { backend = 'local' }\n");
        assert_eq!(routes("", ""), [""; 0]);
        assert_eq!(routes(own, ""), ["e to platform of api"]);
        assert_eq!(routes("", whole), ["pointsman.errors to local of api+other"]);
        assert_eq!(
            routes(own, whole),
            ["pointsman.errors to local of other", "e to platform of api"]
        );
    }

    #[test]
    fn where_they_go_must_exist() {
        refused(
            &with(
                "errors = { backend = 'platfrom' }\n",
                "errors = { backend = 'x', name = 'a*' }\n",
            ),
            &[
                "errors.backend: there is no backend `x` (there is local, platform)",
                "errors.name: it is one series",
                "listeners.api.errors.backend: there is no backend `platfrom` (did you mean `platform`?)",
            ],
        );
        refused(
            &with("errors = { backend = 'local', series = 'x' }\n", "errors = { name = '' }\n"),
            &["`backend` is missing", "unknown key `series`"],
        );
    }

    #[test]
    fn the_names_of_its_own_are_taken() {
        let text = with("errors = { backend = 'local' }\n", "").replace("other", "errors");
        refused(
            &format!("{text}[[routes]]\nname = 'pointsman.errors to local'\nto = ['platform']\n"),
            &["listeners.errors: `errors` is the name", "routes[1].name: the route of errors"],
        );
        assert!(plan_of(&with("", "").replace("other", "errors")).is_ok());
    }

    #[test]
    fn a_backend_of_errors_gets_something() {
        warned(&with("errors = { backend = 'platform' }\n", ""), &[]);
        warned(&with("", ""), &["no route names the backend `platform`"]);
    }
}
