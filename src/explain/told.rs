//! What is told of a refusal where errors are told: the point, and the bytes that its backend would get.
//!
//! The tags are those that the gateway gives it, as far as a line alone says them. Whatever else would stand
//! there is shown as `<file>`: which file, which task and which run it is shows only when it comes.

use super::{Story, describe};
use crate::access::Gate;
use crate::books::{Marks, Offender};
use crate::errors::{self, LISTENER};
use crate::ingest::Config;
use crate::origin::{Origin, Protocol};
use crate::plan::Plan;
use crate::route::Rules;
use protocols::{Batch, UnixNanos};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Whoever tells of refusals at one listener.
pub(super) struct Told<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rules: &'a Rules,
    pub(super) listener: &'a str,
    pub(super) config: &'a Config,
    pub(super) principal: Option<Arc<str>>,
    /// Whether it comes by HTTP.
    pub(super) is_request: bool,
    pub(super) now: UnixNanos,
}

impl Told<'_> {
    /// The message to whoever has sent a line, and what is told of it.
    pub(super) fn refused(&self, reason: &str, mut message: String) -> String {
        // Writing to a String does not fail.
        let _ = self.tell(reason, &mut message);
        message.truncate(message.trim_end().len());
        message
    }

    /// Tells of one that was refused, if anybody wants to hear of it.
    pub(super) fn tell(&self, reason: &str, text: &mut String) -> fmt::Result {
        let mut errors = self.plan.errors();
        let Some((_, config)) = errors.find(|(name, _)| *name == self.listener) else {
            return Ok(());
        };
        let transports = transports(self.config);
        let (transport, principal) = (transports.first().copied(), self.principal.clone());
        let offender = Offender { transport, principal, marks: marks(self.config) };
        let mut batch = Batch::new();
        errors::write(&config.name, self.listener, &offender, reason, 1, &mut batch);
        let Some(point) = batch.point(0) else { return Ok(()) };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        writeln!(text, "error    {}", describe(&point))?;
        if transports.len() > 1 {
            writeln!(text, "         (transport is how it comes: {})", transports.join(" or "))?;
        }
        let origin = Origin::new(LISTENER, Protocol::Statsd);
        let story = Story {
            rules: self.rules,
            gate: &Gate::Open,
            origin: &origin,
            backends: self.plan.backends.iter().collect(),
            now: self.now,
            told: self,
        };
        story.tell_bytes(&self.rules.explain(&point, &origin), &point, text)
    }
}

/// How something can come in at a listener, each once and in the order of its section.
fn transports(config: &Config) -> Vec<&'static str> {
    let mut transports = match config.protocol {
        Protocol::File => vec!["file"],
        Protocol::Pulse => vec!["amqp"],
        _ => Vec::new(),
    };
    for address in &config.bind {
        let written = address.split_once("://").map_or("", |(transport, _)| transport);
        let known = BOUND.into_iter().find(|known| *known == written);
        transports.extend(known.filter(|known| !transports.contains(known)));
    }
    transports
}

/// What tells a file or a task from others. Of files there may be but one.
fn marks(config: &Config) -> Marks {
    match config.protocol {
        Protocol::File => match config.places().as_slice() {
            [one] if config.drop.is_none() && !one.contains(['*', '?', '{']) => {
                Marks::new(&[("file", one)])
            }
            _ => Marks::new(&[("file", "<file>")]),
        },
        Protocol::Pulse => Marks::new(&[("task", "<task>"), ("run", "<run>")]),
        _ => Marks::default(),
    }
}

/// As addresses are written, and as the gateway calls them.
const BOUND: [&str; 4] = ["udp", "tcp", "unixgram", "unix"];
