//! What a route asks of a point before it takes it.

use super::{Match, OneOrMany};
use crate::mistake::{Mistake, did_you_mean};
use crate::origin::{Origin, Protocol};
use crate::pattern::Pattern;
use crate::waybill::Provenance;
use protocols::{Kind, Point};

/// A compiled `match`: all parts must hold, each of them by any of its alternatives.
#[derive(Clone, Debug, Default)]
pub struct Test {
    name: Option<Vec<Pattern>>,
    tags: Vec<(String, Vec<Pattern>)>,
    kinds: Option<Vec<Kind>>,
    protocols: Option<Vec<Protocol>>,
    listeners: Option<Vec<String>>,
    principals: Option<Vec<String>>,
}

impl Test {
    /// Compiles the `match` at `key`; what is wrong with it is added to `mistakes`.
    pub fn compile(config: &Match, key: &str, mistakes: &mut Vec<Mistake>) -> Self {
        Self {
            name: config.name.as_ref().map(|name| patterns(name, &format!("{key}.name"), mistakes)),
            tags: config
                .tags
                .iter()
                .map(|(tag, any)| {
                    (tag.clone(), patterns(any, &format!("{key}.tags.{tag}"), mistakes))
                })
                .collect(),
            kinds: words(&config.kind, &format!("{key}.kind"), &kinds(), mistakes),
            protocols: words(&config.protocol, &format!("{key}.protocol"), &protocols(), mistakes),
            listeners: names(&config.listener),
            principals: names(&config.principal),
        }
    }

    /// Whether it takes the point.
    pub fn matches(&self, point: &Point<'_>, origin: &Origin) -> bool {
        self.admits(origin)
            && holds(&self.kinds, |kinds| kinds.contains(&point.measure.kind()))
            && holds(&self.name, |patterns| any(patterns, point.name))
            && self.tags.iter().all(|(key, patterns)| tag_matches(point, key, patterns))
    }

    /// Whether it takes a point of which no more than this is known; what is not counts as met.
    pub fn may_match(&self, point: &Point<'_>, known: &Provenance) -> bool {
        known.origin.as_ref().is_none_or(|origin| self.admits(origin))
            && known.kind.is_none_or(|kind| holds(&self.kinds, |kinds| kinds.contains(&kind)))
            && holds(&self.name, |patterns| any(patterns, point.name))
            && self.tags.iter().all(|(key, patterns)| tag_matches(point, key, patterns))
    }

    /// Whether points from there have any chance.
    pub fn admits(&self, origin: &Origin) -> bool {
        self.may_admit(origin) && holds(&self.principals, |names| is_among(origin, names))
    }

    /// The same where it may not be known yet who sends them.
    pub fn may_admit(&self, origin: &Origin) -> bool {
        let may_be = |names: &Vec<String>| origin.principal.is_none() || is_among(origin, names);
        holds(&self.listeners, |names| names.iter().any(|name| **name == *origin.listener))
            && holds(&self.protocols, |protocols| protocols.contains(&origin.protocol))
            && holds(&self.principals, may_be)
    }

    /// The first part that does not hold, for `explain`; `None` when it takes the point.
    pub fn refusal(&self, point: &Point<'_>, origin: &Origin) -> Option<String> {
        if !holds(&self.listeners, |names| names.iter().any(|name| **name == *origin.listener)) {
            return Some(format!("listener is {}", origin.listener));
        }
        if !holds(&self.protocols, |protocols| protocols.contains(&origin.protocol)) {
            return Some(format!("protocol is {}", origin.protocol.name()));
        }
        if !holds(&self.principals, |names| is_among(origin, names)) {
            let principal = origin.principal.as_deref();
            return Some(principal.map_or_else(
                || "there is no principal".to_owned(),
                |principal| format!("principal is {principal}"),
            ));
        }
        if !holds(&self.kinds, |kinds| kinds.contains(&point.measure.kind())) {
            return Some(format!("kind is {}", point.measure.kind()));
        }
        if !holds(&self.name, |patterns| any(patterns, point.name)) {
            return Some("name does not match".to_owned());
        }
        self.tags.iter().find(|(key, patterns)| !tag_matches(point, key, patterns)).map(
            |(key, _)| match point.tags.find(key) {
                Some(tag) => format!("tag {key} is {}", tag.value_or_true()),
                None => format!("there is no tag {key}"),
            },
        )
    }
}

fn holds<T>(part: &Option<T>, test: impl FnOnce(&T) -> bool) -> bool {
    part.as_ref().is_none_or(test)
}

fn names(config: &Option<OneOrMany>) -> Option<Vec<String>> {
    config.as_ref().map(|names| names.iter().map(str::to_owned).collect())
}

fn is_among(origin: &Origin, names: &[String]) -> bool {
    origin.principal.as_deref().is_some_and(|own| names.iter().any(|name| name == own))
}

fn any(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

fn tag_matches(point: &Point<'_>, key: &str, patterns: &[Pattern]) -> bool {
    point.tags.find(key).is_some_and(|tag| any(patterns, tag.value_or_true()))
}

fn patterns(texts: &OneOrMany, key: &str, mistakes: &mut Vec<Mistake>) -> Vec<Pattern> {
    let mut compiled = Vec::new();
    for text in texts.iter() {
        match Pattern::compile(text) {
            Ok(pattern) => compiled.push(pattern),
            Err(message) => mistakes.push(Mistake::new(key, message)),
        }
    }
    compiled
}

fn words<T: Copy>(
    config: &Option<OneOrMany>,
    key: &str,
    known: &[(&'static str, T)],
    mistakes: &mut Vec<Mistake>,
) -> Option<Vec<T>> {
    let config = config.as_ref()?;
    let mut found = Vec::new();
    for word in config.iter() {
        match known.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => found.push(*value),
            None => mistakes.push(unknown_word(word, key, known.iter().map(|(name, _)| *name))),
        }
    }
    Some(found)
}

fn unknown_word<'a>(word: &str, key: &str, known: impl Iterator<Item = &'a str>) -> Mistake {
    let known: Vec<_> = known.collect();
    let mistake = Mistake::new(key, format!("`{word}` is none of {}", known.join(", ")));
    match did_you_mean(word, known) {
        Some(hint) => mistake.hint(hint),
        None => mistake,
    }
}

fn kinds() -> [(&'static str, Kind); 8] {
    Kind::ALL.map(|kind| (kind.name(), kind))
}

fn protocols() -> [(&'static str, Protocol); 6] {
    Protocol::ALL.map(|protocol| (protocol.name(), protocol))
}
