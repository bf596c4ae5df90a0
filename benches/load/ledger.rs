//! What `/v1/ledger` says, as far as measurements ask for it.

use crate::http;
use crate::pace::rest;
use crate::server::Server;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All the books at one moment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Ledger {
    pub listeners: BTreeMap<String, ListenerBook>,
    pub backends: BTreeMap<String, BackendBook>,
}

/// What came in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListenerBook {
    pub received: u64,
    pub rejected: Counts,
    /// Datagrams that the kernel dropped for want of room.
    pub kernel_dropped: u64,
    pub balanced: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BackendBook {
    pub handed: u64,
    pub folded_points: u64,
    pub folded_rows: u64,
    pub delivered: u64,
    pub dropped: Counts,
    pub held: Held,
    pub balanced: bool,
}

/// Points that are neither delivered nor dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Held {
    pub inbox: u64,
    pub queue: u64,
    pub total: u64,
}

/// By reason.
type Counts = BTreeMap<String, u64>;

/// What a gateway was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sendings {
    /// Points, in datagrams of so many.
    pub points: u64,
    pub pack: u64,
    /// And marks, each in a datagram of its own.
    pub marks: u64,
}

/// What to wait for before the books are taken as final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<'a> {
    /// All that was sent is told of, and nothing is on its way; windows may be open.
    Received,
    /// And these backends hold nothing: the last window is delivered.
    Empty(&'a [&'a str]),
}

impl Ledger {
    /// Asks the gateway.
    pub fn read(server: &Server) -> Result<Self> {
        let ledger = http::get_json(server.address("admin", "tcp")?, "/v1/ledger")?;
        Ok(serde_json::from_value(ledger)?)
    }

    /// Reads on until it is as wanted, or tells of nothing new.
    pub fn settle(server: &Server, sent: Sendings, until: Until<'_>) -> Result<Self> {
        let patience = if until == Until::Received { QUIET } else { LONGEST_WINDOW };
        let mut ledger = Self::read(server)?;
        let mut changed = Instant::now();
        while !ledger.is_settled(sent, until) && changed.elapsed() < patience {
            rest(GLANCE);
            let now = Self::read(server)?;
            if now != ledger {
                ledger = now;
                changed = Instant::now();
            }
        }
        Ok(ledger)
    }

    /// Of the listener for datagrams.
    pub fn datagrams(&self) -> ListenerBook {
        self.listeners.get("statsd").cloned().unwrap_or_default()
    }

    /// Of this backend.
    pub fn backend(&self, name: &str) -> Result<&BackendBook> {
        self.backends.get(name).with_context(|| format!("the ledger does not know {name}"))
    }

    /// Points given up by all backends.
    pub fn dropped(&self) -> u64 {
        self.backends.values().map(BackendBook::dropped).sum()
    }

    /// Points of the load that were received; marks are not meant.
    pub fn received(&self) -> u64 {
        self.datagrams().received.saturating_sub(self.marks())
    }

    /// An error, unless every point sent is told of and the books balance.
    pub fn check(&self, sent: Sendings) -> Result<()> {
        if self.told(sent) != sent.points + sent.marks {
            bail!("{sent:?} were sent, and the books tell of {}: {self:?}", self.told(sent));
        }
        if !self.balances() {
            bail!("the books do not balance: {self:?}");
        }
        Ok(())
    }

    fn balances(&self) -> bool {
        self.listeners.values().all(|book| book.balanced)
            && self.backends.values().all(|book| book.balanced)
    }

    /// Points that are told of on the way in. The kernel counts datagrams, whatever they hold;
    /// marks that did not arrive are among them.
    fn told(&self, sent: Sendings) -> u64 {
        let book = self.datagrams();
        let marks = sent.marks.saturating_sub(self.marks()).min(book.kernel_dropped);
        let rejected: u64 = book.rejected.values().sum();
        book.received + rejected + marks + (book.kernel_dropped - marks) * sent.pack
    }

    /// Marks that were received: they, and nothing else, are for this backend.
    fn marks(&self) -> u64 {
        self.backends.get(ECHO).map_or(0, |book| book.handed)
    }

    fn is_settled(&self, sent: Sendings, until: Until<'_>) -> bool {
        let is_empty = |name: &&str| self.backend(name).is_ok_and(|book| book.held.total == 0);
        let is_still = |book: &BackendBook| book.held.inbox + book.held.queue == 0;
        // Books that are read while a window ends may be some points apart.
        self.told(sent) >= sent.points + sent.marks
            && self.balances()
            && match until {
                Until::Received => self.backends.values().all(is_still),
                Until::Empty(backends) => backends.iter().all(is_empty),
            }
    }
}

impl BackendBook {
    /// Points given up, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// The backend that marks are sent to.
pub const ECHO: &str = "echo";

/// How long the books may stand still before they are taken as final.
const QUIET: Duration = Duration::from_secs(1);

/// The same when windows of ten seconds have to close first.
const LONGEST_WINDOW: Duration = Duration::from_secs(12);

/// Seldom enough not to show in the CPU time.
const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ledger() -> Ledger {
        let ledger = json!({
            "listeners": { "statsd": {
                "received": 90, "rejected": { "unknown_kind": 2, "bad_value": 3 },
                "kernel_dropped": 1, "balanced": true, "denied": 0,
            } },
            "backends": { "sink": {
                "handed": 90, "folded_points": 80, "folded_rows": 8, "delivered": 7,
                "dropped": { "queue_full": 1 }, "balanced": true,
                "held": { "inbox": 0, "windows": 10, "open": 0, "queue": 0, "total": 10 },
            } },
        });
        serde_json::from_value(ledger).unwrap()
    }

    #[test]
    fn books_are_settled_when_everything_is_where_it_belongs() {
        let check = |until, sent, expected| {
            let sent = Sendings { points: sent, pack: 5, marks: 0 };
            assert_eq!(ledger().is_settled(sent, until), expected, "{until:?} {sent:?}");
        };
        check(Until::Received, 100, true);
        check(Until::Received, 101, false);
        check(Until::Empty(&["sink"]), 100, false);
        check(Until::Empty(&["nobody"]), 100, false);
        check(Until::Empty(&[]), 100, true);
    }

    #[test]
    fn a_point_that_nobody_counted_is_an_error() {
        let sent = Sendings { points: 100, pack: 5, marks: 0 };
        assert!(ledger().check(sent).is_ok());
        assert!(ledger().check(Sendings { points: 99, ..sent }).is_err());
        let mut unbalanced = ledger();
        unbalanced.backends.get_mut("sink").unwrap().balanced = false;
        assert!(unbalanced.check(sent).is_err());
        assert_eq!(ledger().dropped(), 1);
    }

    /// Two datagrams were dropped: one of the load, and one mark of three.
    #[test]
    fn a_mark_that_was_dropped_is_one_point() {
        let mut ledger = ledger();
        ledger.listeners.get_mut("statsd").unwrap().kernel_dropped = 2;
        let echo = BackendBook { handed: 2, balanced: true, ..BackendBook::default() };
        ledger.backends.insert(ECHO.to_owned(), echo);
        assert!(ledger.check(Sendings { points: 98, pack: 5, marks: 3 }).is_ok());
        assert!(ledger.check(Sendings { points: 98, pack: 5, marks: 4 }).is_err());
        assert_eq!(ledger.received(), 88);
    }
}
