//! A table with lanes of a test's own, for what is handed to it past any socket.

use super::rig::{NOW, config, keys};
use crate::access::Access;
use crate::backend::{Outcome, Payload, Ship, Shipping};
use crate::books::{Books, Counter};
use crate::clock::Clock;
use crate::ingest::Listener;
use crate::ingest::intake::Context;
use crate::lane::{Lane, Running};
use crate::origin::{Origin, Protocol};
use crate::route::{self, Router, Rules, Table, Tables};
use protocols::UnixNanos;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Lanes, routes to them, and what is counted.
pub(crate) struct Yard {
    pub(crate) books: Books,
    tables: Tables,
    clock: Clock,
    running: Vec<Running>,
}

impl Yard {
    /// `make` makes the lane of each of these names.
    pub(crate) fn new(
        access: Access,
        routes: Value,
        lanes: &[&str],
        make: impl Fn(usize, &Books, Clock) -> (Lane, Running),
    ) -> Self {
        let (books, clock) = (Books::default(), Clock::starting_at(UnixNanos::from_secs(NOW)));
        let (made, running): (Vec<_>, Vec<_>) =
            (0..lanes.len()).map(|place| make(place, &books, clock)).unzip();
        let places = lanes.iter().map(|name| (*name).to_owned()).zip(0..).collect();
        let routes: Vec<route::Config> = serde_json::from_value(routes).unwrap();
        let rules = Rules::compile(&routes, &places).unwrap();
        let taken = rules.iter().map(|rule| books.route(&rule.name)).collect();
        let table = Table { rules, lanes: made, taken, access, ..Table::default() };
        Self { books, tables: Arc::new(Arc::new(table).into()), clock, running }
    }

    /// Of the listener `under_test`.
    pub(crate) fn context(&self, protocol: Protocol) -> Context {
        let origin = Origin::new("under_test", protocol);
        let book = self.books.listener("under_test");
        let router = Router::new(self.tables.clone(), origin, Arc::clone(&book), self.clock);
        let config = config(protocol.name(), "tcp://127.0.0.1:0", json!({}));
        let (keys, tokens) = (keys(self.clock), Listener::default());
        Context::new("under_test", &config, router, book, self.clock, &keys, &tokens)
    }

    /// Lets all lanes finish.
    pub(crate) async fn drain(&mut self) {
        self.tables.store(Arc::default());
        for running in &mut self.running {
            running.drained().await;
        }
    }

    /// How many points were received, routed, and unmatched.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let book = self.books.listener("under_test");
        [&book.received, &book.routed, &book.unmatched].map(Counter::get)
    }
}

/// Bodies, and where their lines came from.
pub(super) type Kept = Arc<Mutex<Vec<String>>>;

/// Keeps them.
pub(super) struct Keep(pub(super) Kept);

impl Ship for Keep {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        let body = String::from_utf8_lossy(&payload.body);
        self.0.lock().unwrap().push(format!("{} {:?}\n{body}", payload.points, payload.waybill));
        Box::pin(std::future::ready(Outcome::Delivered))
    }
}
