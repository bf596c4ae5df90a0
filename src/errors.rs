//! Errors as statistics: what listeners refuse, as points of a series that somebody owns.
//!
//! The owner of a task that writes garbage into its file, or to a series that it may not write, does not
//! hear of it, since nobody reads the gateway's log for that. So refusals can go to a backend, as a
//! counter whose tags are the listener, the reason, and the file, task or principal where it is known.
//!
//! Receiving tasks only count ([`crate::books::Tallies`]). Once a second [`Teller`] makes points of what
//! was counted since, and hands them over as if they came in at a listener called [`LISTENER`], so that
//! they are in the books like all others. They pass the gate, which is open to the gateway itself: they
//! belong to no principal, use up nobody's quota, and cannot be denied. A route of their own, before all
//! others, takes them to their backend ([`crate::plan`]). What that listener refuses is not reported, so
//! that no error can breed another.
//!
//! Limits: those of the tallies. Noticed: `errors_overflow`, refusals that are reported without their marks.

use crate::books::{Books, ListenerBook, Offender};
use crate::clock::Clock;
use crate::origin::{Origin, Protocol};
use crate::route::{Router, Tables};
use protocols::{Batch, Measure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

/// Where the errors of a listener go, or those of all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The backend that receives them.
    pub backend: String,
    /// The series.
    #[serde(default = "series")]
    pub name: String,
}

fn series() -> String {
    SERIES.to_owned()
}

/// Reports errors for as long as it lives.
pub struct Teller {
    told: Arc<Mutex<Told>>,
    _telling: AbortOnDropHandle<()>,
}

/// What is reported, and the router that it goes by.
struct Told {
    books: Arc<Books>,
    tables: Tables,
    clock: Clock,
    /// There is one from the first listener on that is asked.
    router: Option<Router>,
    /// By listener.
    asked: BTreeMap<String, Asked>,
    batch: Batch,
    rounds: u32,
}

/// A listener whose errors are reported.
struct Asked {
    book: Arc<ListenerBook>,
    series: String,
}

impl Teller {
    /// Starts it; no listener is asked yet.
    pub fn start(books: &Arc<Books>, tables: &Tables, clock: Clock) -> Self {
        let told = Told {
            books: Arc::clone(books),
            tables: Arc::clone(tables),
            clock,
            router: None,
            asked: BTreeMap::new(),
            batch: Batch::new(),
            rounds: 0,
        };
        let told = Arc::new(Mutex::new(told));
        let telling = tokio::spawn(tell_for_ever(Arc::clone(&told)));
        Self { told, _telling: AbortOnDropHandle::new(telling) }
    }

    /// From now on the errors of these listeners are reported, and of no others. The present table has to
    /// have routes for them.
    pub fn ask<'a>(&self, listeners: impl IntoIterator<Item = (&'a str, &'a Config)>) {
        self.now(|told| told.ask(listeners));
    }

    /// Reports at once what there is, by the present table.
    pub fn tell(&self) {
        self.now(Told::tell);
    }

    fn now<'a, T>(&'a self, work: impl FnOnce(&mut Told) -> T + 'a) -> T {
        work(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn tell_for_ever(told: Arc<Mutex<Told>>) {
    let mut rounds = interval(EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        told.lock().unwrap_or_else(PoisonError::into_inner).tell();
    }
}

impl Told {
    fn ask<'a>(&mut self, listeners: impl IntoIterator<Item = (&'a str, &'a Config)>) {
        let mut before = std::mem::take(&mut self.asked);
        for (name, config) in listeners {
            let book = before.remove(name).map(|asked| asked.book);
            let book = book.unwrap_or_else(|| self.books.listener(name));
            book.tallies.ask(true);
            self.asked.insert(name.to_owned(), Asked { book, series: config.name.clone() });
        }
        before.values().for_each(|asked| asked.book.tallies.ask(false));
        if self.router.is_none() && !self.asked.is_empty() {
            self.router = Some(self.way());
        }
    }

    /// The router for them. They are counters, as statsd has them.
    fn way(&self) -> Router {
        let origin = Origin::new(LISTENER, Protocol::Statsd);
        let book = self.books.listener(LISTENER);
        let mut router = Router::new(Arc::clone(&self.tables), origin, book, self.clock);
        router.pass_freely();
        router
    }

    fn tell(&mut self) {
        let Self { router: Some(router), asked, batch, rounds, .. } = self else { return };
        for (listener, Asked { book, series }) in &*asked {
            book.tallies.take(|offender, reason, count| {
                if offender.is_overflow() {
                    book.noticed.add("errors_overflow", count);
                }
                write(series, listener, offender, reason, count, batch);
                if batch.len() >= BATCH_POINTS {
                    router.submit(batch);
                }
            });
        }
        router.submit(batch);
        *rounds += 1;
        if rounds.is_multiple_of(FORGET_AFTER) {
            asked.values().for_each(|asked| asked.book.tallies.forget_idle());
        }
    }
}

/// The point of so many refusals.
pub fn write(
    series: &str,
    listener: &str,
    offender: &Offender,
    reason: &str,
    count: u64,
    batch: &mut Batch,
) {
    let mut point = batch.begin(series);
    point.tag("listener", Some(listener));
    point.tag("reason", Some(reason));
    if let Some(transport) = offender.transport {
        point.tag("transport", Some(transport));
    }
    if let Some(principal) = &offender.principal {
        point.tag("principal", Some(principal));
    }
    for (key, value) in offender.marks.iter() {
        point.tag(key, Some(value));
    }
    #[allow(clippy::cast_precision_loss)] // Nobody counts that far in a second.
    point.finish(Measure::Count { delta: count as f64, rate: 1.0 }, None, "");
}

/// The name under which errors come in; while they are reported, no listener can have it.
pub const LISTENER: &str = "errors";

/// The series, if the configuration names no other.
pub const SERIES: &str = "pointsman.errors";

/// Soon enough for somebody who looks for his mistake, and seldom enough to cost nothing.
const EVERY: Duration = Duration::from_secs(1);

/// After so many rounds (an hour) idle offenders are forgotten, which makes room for others.
const FORGET_AFTER: u32 = 3600;

/// As many as other batches have.
const BATCH_POINTS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Marks;
    use crate::route::Table;
    use protocols::UnixNanos;

    fn told() -> Told {
        Told {
            books: Arc::default(),
            tables: Arc::new(Arc::new(Table::default()).into()),
            clock: Clock::starting_at(UnixNanos::from_secs(1_700_000_000)),
            router: None,
            asked: BTreeMap::new(),
            batch: Batch::new(),
            rounds: 0,
        }
    }

    fn to(backend: &str) -> Config {
        Config { backend: backend.to_owned(), name: series() }
    }

    #[test]
    fn a_point_says_whose_fault_it_is() {
        let mut batch = Batch::new();
        let marks = Marks::new(&[("task", "T"), ("run", "0")]);
        let offender = Offender { transport: Some("tcp"), principal: Some("ci".into()), marks };
        write("e", "api", &offender, "scope", 3, &mut batch);
        let point = batch.point(0).unwrap();
        let tags: Vec<_> =
            point.tags.iter().map(|tag| (tag.key, tag.value.unwrap_or_default())).collect();
        let expected = [
            ("listener", "api"),
            ("reason", "scope"),
            ("transport", "tcp"),
            ("principal", "ci"),
            ("task", "T"),
            ("run", "0"),
        ];
        assert_eq!((point.name, tags.len()), ("e", expected.len()));
        assert!(expected.iter().all(|tag| tags.contains(tag)), "{tags:?}");
        assert_eq!(point.measure, Measure::Count { delta: 3.0, rate: 1.0 });
    }

    #[test]
    fn only_those_who_are_asked_are_told_and_none_of_what_was_before() {
        let mut told = told();
        let books = Arc::clone(&told.books);
        let refuse = |name: &str| books.listener(name).reject("bad", 2, &Offender::default());
        refuse("a");
        told.tell();
        assert!(books.listeners().iter().all(|(name, _)| name != LISTENER), "it is not asked for");
        told.ask([("a", &to("b"))]);
        refuse("a");
        refuse("other");
        told.tell();
        told.tell();
        let book = books.listener(LISTENER);
        assert_eq!((book.received.get(), book.denied.total()), (1, 0));
        told.ask([]);
        refuse("a");
        told.tell();
        told.ask([("a", &to("b"))]);
        told.tell();
        assert_eq!(book.received.get(), 1);
    }

    #[test]
    fn what_could_not_be_told_apart_is_noticed() {
        let mut told = told();
        told.ask([("a", &to("b"))]);
        let book = told.books.listener("a");
        for number in 0..2000 {
            let marks = Marks::new(&[("file", &number.to_string())]);
            book.reject("bad", 1, &Offender { marks, ..Offender::default() });
        }
        told.tell();
        assert_eq!(book.noticed.counts(), [("errors_overflow", 1000)]);
        assert_eq!(told.books.listener(LISTENER).received.get(), 1001);
        assert!(told.batch.is_empty());
    }
}
