//! The listeners that run, and the sockets that outlive them.

use crate::books::Books;
use crate::clock::Clock;
use crate::ingest::{self, Keys, Listener};
use crate::net::{Bound, HandedIn, Sockets, Wanted};
use crate::origin::Origin;
use crate::plan::Plan;
use crate::route::{Router, Tables};
use crate::units::Address;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// The listeners that run, by name.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    sockets: Sockets,
    running: BTreeMap<String, Listener>,
    addresses: BTreeMap<String, Vec<String>>,
}

/// Sockets for all that the plan wants, not yet in use.
pub(super) struct Prepared(BTreeMap<String, Vec<Bound>>);

impl Listeners {
    /// None yet, and sockets for them that were handed in.
    pub(super) fn with(sockets: Vec<HandedIn>) -> Self {
        Self { sockets: Sockets::with(sockets), ..Self::default() }
    }

    /// Binds what is not bound yet. When one address cannot be had, nothing has changed.
    pub(super) fn prepare(&mut self, plan: &Plan) -> Result<Prepared, String> {
        let wanted = wanted(plan)?;
        let bound = self.sockets.bind_all(&wanted).map_err(|error| error.to_string())?;
        let mut by_listener: BTreeMap<String, Vec<Bound>> = BTreeMap::new();
        for socket in bound {
            by_listener.entry(socket.listener.to_string()).or_default().push(socket);
        }
        Ok(Prepared(by_listener))
    }

    /// Starts what is new or changed, then stops what it replaces: both read the same socket
    /// for a moment, so that nothing is lost in between. Sockets nobody wants are closed.
    pub(super) async fn enter(
        &mut self,
        prepared: Prepared,
        plan: &Plan,
        before: &Plan,
        world: &World<'_>,
        deadline: Instant,
    ) -> Vec<Bound> {
        let Prepared(mut sockets) = prepared;
        let mut old = std::mem::take(&mut self.running);
        let mut leaving = Vec::new();
        for (name, config) in &plan.listeners {
            let bound = sockets.remove(name).unwrap_or_default();
            match old.remove(name) {
                Some(listener) if before.listeners.get(name) == Some(config) => {
                    self.running.insert(name.clone(), listener);
                }
                replaced => {
                    leaving.extend(replaced);
                    self.start(name, config, bound, world);
                }
            }
        }
        leaving.extend(old.into_values());
        self.addresses.retain(|name, _| plan.listeners.contains_key(name));
        self.sockets.turn_away();
        stop(leaving, deadline).await;
        self.sockets.let_go();
        sockets.remove(ADMIN).unwrap_or_default()
    }

    fn start(&mut self, name: &str, config: &ingest::Config, bound: Vec<Bound>, world: &World<'_>) {
        let book = world.books.listener(name);
        let origin = Origin { listener: name.into(), protocol: config.protocol };
        let router = Router::new(Arc::clone(world.tables), origin, Arc::clone(&book), world.clock);
        let addresses = bound.iter().map(|bound| bound.address.clone()).collect();
        match ingest::spawn(name, config, bound, router, book, world.clock, world.keys) {
            Ok(listener) => {
                self.running.insert(name.to_owned(), listener);
                self.addresses.insert(name.to_owned(), addresses);
            }
            Err(error) => tracing::error!(listener = name, %error, "the listener cannot run"),
        }
    }

    /// Ends all of them, sockets too, by the deadline.
    pub(super) async fn stop(&mut self, deadline: Instant) {
        stop(std::mem::take(&mut self.running).into_values(), deadline).await;
        self.sockets = Sockets::new();
    }

    /// Where each of them listens.
    pub(super) fn addresses(&self) -> BTreeMap<String, Vec<String>> {
        self.addresses.clone()
    }
}

async fn stop(listeners: impl IntoIterator<Item = Listener>, deadline: Instant) {
    let mut stopping = tokio::task::JoinSet::new();
    for listener in listeners {
        stopping.spawn(listener.stop());
    }
    // What has not ended by then ends as the set is dropped.
    let _ = timeout_at(deadline, async { while stopping.join_next().await.is_some() {} }).await;
}

fn wanted(plan: &Plan) -> Result<Vec<Wanted>, String> {
    let mut wanted = Vec::new();
    for (name, config) in &plan.listeners {
        wanted.extend(config.wanted(name)?);
    }
    wanted.push(Wanted {
        listener: ADMIN.into(),
        key: "admin.bind".to_owned(),
        address: Address::Tcp(plan.admin.bind.parse()?),
        receive_buffer: None,
        sockets: 1,
    });
    Ok(wanted)
}

/// What listeners find around them.
pub(super) struct World<'a> {
    pub(super) books: &'a Books,
    pub(super) tables: &'a Tables,
    pub(super) keys: &'a Arc<Keys>,
    pub(super) clock: Clock,
}

/// The name under which the admin listener's socket is bound and logged.
pub(super) const ADMIN: &str = "admin";
