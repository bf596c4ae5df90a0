//! The listeners that run, and the sockets that outlive them.

use super::grace::Grace;
use crate::books::{Books, ListenerBook};
use crate::clock::Clock;
use crate::ingest::{self, Doors, Keys, Listener};
use crate::net::{Bound, HandedIn, Sockets, Wanted};
use crate::origin::{Origin, Protocol};
use crate::plan::Plan;
use crate::route::{Router, Tables};
use crate::tls::{Keeper, Owner, Server, ServerSettings};
use crate::units::Address;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The listeners that run, by name.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    sockets: Sockets,
    running: BTreeMap<String, Listener>,
    /// Those that stopped, but for requests that wait for their answers.
    answering: Vec<Listener>,
    addresses: BTreeMap<String, Vec<String>>,
}

/// Sockets for all that the plan wants, and certificates for all that is new, not yet in use.
pub(super) struct Prepared {
    sockets: BTreeMap<String, Vec<Bound>>,
    tls: BTreeMap<String, Server>,
}

/// What the admin listener is given.
pub(super) struct ForAdmin {
    pub(super) sockets: Vec<Bound>,
    pub(super) tls: Option<Server>,
}

impl Listeners {
    /// None yet, and sockets for them that were handed in.
    pub(super) fn with(sockets: Vec<HandedIn>) -> Self {
        Self { sockets: Sockets::with(sockets), ..Self::default() }
    }

    /// Reads certificates and binds what is not bound yet. When one address cannot be had, nothing
    /// has changed.
    pub(super) fn prepare(&mut self, plan: &Plan, before: &Plan) -> Result<Prepared, String> {
        let (wanted, tls) = (wanted(plan)?, certificates(plan, before)?);
        let bound = self.sockets.bind_all(&wanted).map_err(|error| error.to_string())?;
        let mut sockets: BTreeMap<String, Vec<Bound>> = BTreeMap::new();
        for socket in bound {
            sockets.entry(socket.listener.to_string()).or_default().push(socket);
        }
        Ok(Prepared { sockets, tls })
    }

    /// Starts what is new or changed, then stops what it replaces: both read the same socket
    /// for a moment, so that nothing is lost in between. Sockets nobody wants are closed.
    pub(super) async fn enter(
        &mut self,
        prepared: Prepared,
        plan: &Plan,
        before: &Plan,
        world: &World<'_>,
        grace: &Grace,
    ) -> ForAdmin {
        let Prepared { mut sockets, mut tls } = prepared;
        let mut old = std::mem::take(&mut self.running);
        let mut leaving = Vec::new();
        for (name, config) in &plan.listeners {
            let bound = sockets.remove(name).unwrap_or_default();
            match old.remove(name) {
                Some(listener) if before.listeners.get(name) == Some(config) => {
                    self.running.insert(name.clone(), listener);
                }
                replaced => {
                    if config.protocol == Protocol::File {
                        // Whoever reads on has to know how far the other one came.
                        let reading: Vec<_> = replaced.into_iter().collect();
                        self.answering.extend(stop(reading, grace).await);
                    } else {
                        leaving.extend(replaced);
                    }
                    self.start(name, config, bound, tls.remove(name), world);
                }
            }
        }
        leaving.extend(old.into_values());
        self.addresses.retain(|name, _| plan.listeners.contains_key(name));
        self.sockets.turn_away();
        self.answering.retain(|listener| !listener.has_ended());
        self.answering.extend(stop(leaving, grace).await);
        self.sockets.let_go();
        let tls = tls.remove(ADMIN);
        if let Some(tls) = &tls {
            world.look_after(ADMIN, world.books.listener(ADMIN), tls);
        }
        ForAdmin { sockets: sockets.remove(ADMIN).unwrap_or_default(), tls }
    }

    fn start(
        &mut self,
        name: &str,
        config: &ingest::Config,
        bound: Vec<Bound>,
        tls: Option<Server>,
        world: &World<'_>,
    ) {
        let book = world.books.listener(name);
        if let Some(tls) = &tls {
            world.look_after(name, Arc::clone(&book), tls);
        }
        let addresses = match config.protocol {
            Protocol::File | Protocol::Pulse => config.places(),
            _ => bound.iter().map(|bound| bound.address.clone()).collect(),
        };
        let doors = Doors { sockets: bound, tls };
        match spawn(name, config, doors, book, world) {
            Ok(listener) => {
                self.running.insert(name.to_owned(), listener);
                self.addresses.insert(name.to_owned(), addresses);
            }
            Err(problem) => {
                tracing::error!(listener = name, problem, "the listener cannot run");
            }
        }
    }

    /// Stops all of them in time, and closes their sockets. Requests go on waiting for
    /// their answers.
    pub(super) async fn stop(&mut self, grace: &Grace) {
        let running = std::mem::take(&mut self.running).into_values();
        self.answering.extend(stop(running, grace).await);
        self.sockets = Sockets::new();
    }

    /// Answers the requests that wait, now that everything has come as far as it will.
    pub(super) async fn end(&mut self) {
        let mut ending = JoinSet::new();
        for listener in std::mem::take(&mut self.answering) {
            ending.spawn(async move { listener.hurry().await });
        }
        // What has not ended by then ends as the set is dropped.
        let _ = timeout(ANSWER, ending.join_all()).await;
    }

    /// Where each of them listens.
    pub(super) fn addresses(&self) -> BTreeMap<String, Vec<String>> {
        self.addresses.clone()
    }
}

/// Starts a listener, by what its protocol reads from.
///
/// # Errors
///
/// Why it cannot run.
fn spawn(
    name: &str,
    config: &ingest::Config,
    doors: Doors,
    book: Arc<ListenerBook>,
    world: &World<'_>,
) -> Result<Listener, String> {
    let World { certificates, tables, keys, data_dir, clock, .. } = *world;
    let origin = Origin::new(name, config.protocol);
    let router = Router::new(Arc::clone(tables), origin, Arc::clone(&book), clock);
    match config.protocol {
        Protocol::File => {
            Ok(ingest::spawn_files(name, config, data_dir, router, book, clock, keys))
        }
        Protocol::Pulse => {
            ingest::spawn_pulse(name, config, certificates, router, book, clock, keys)
        }
        _ => ingest::spawn(name, config, doors, router, book, clock, keys)
            .map_err(|error| error.to_string()),
    }
}

/// Answers those of them that stopped in time. The others end: their clients did not finish
/// what they had begun, and whoever only waits there is told how things stand.
async fn stop(
    listeners: impl IntoIterator<Item = Listener>,
    grace: &Grace,
) -> impl Iterator<Item = Listener> {
    let mut stopping = JoinSet::new();
    for listener in listeners {
        let grace = grace.clone();
        stopping.spawn(async move {
            let in_time = grace.within(listener.stop()).await.is_some();
            if !in_time {
                let _ = timeout(ANSWER, listener.hurry()).await;
            }
            in_time.then_some(listener)
        });
    }
    stopping.join_all().await.into_iter().flatten()
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

/// What those show that are new or changed and have a `tls` block.
fn certificates(plan: &Plan, before: &Plan) -> Result<BTreeMap<String, Server>, String> {
    let listeners = plan.listeners.iter();
    let changed = listeners.filter(|(name, config)| before.listeners.get(*name) != Some(config));
    let mut wanted: Vec<_> =
        changed.filter_map(|(name, config)| Some((name.as_str(), config.tls.as_ref()?))).collect();
    if plan.admin != before.admin {
        wanted.extend(plan.admin.tls.as_ref().map(|tls| (ADMIN, tls)));
    }
    let load = |(name, settings): (&str, &ServerSettings)| match Server::load(settings) {
        Ok((server, _)) => Ok((name.to_owned(), server)),
        Err(problem) => Err(format!("listener `{name}`: {problem}")),
    };
    wanted.into_iter().map(load).collect()
}

impl World<'_> {
    fn look_after(&self, name: &str, book: Arc<ListenerBook>, tls: &Server) {
        self.certificates.look_after(Owner::Listener(name.into(), book), &tls.renewable());
    }
}

/// What listeners find around them.
pub(super) struct World<'a> {
    pub(super) certificates: &'a Keeper,
    pub(super) books: &'a Books,
    pub(super) tables: &'a Tables,
    pub(super) keys: &'a Arc<Keys>,
    pub(super) data_dir: &'a Path,
    pub(super) clock: Clock,
}

/// How long answers that are ready may take to reach their clients.
const ANSWER: Duration = Duration::from_millis(500);

/// The name under which the admin listener's socket is bound and logged.
pub(super) const ADMIN: &str = "admin";
