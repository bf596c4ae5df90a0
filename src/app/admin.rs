//! The admin listener's tasks, and what the gateway lends to it.

use super::Wish;
use super::listeners::{ADMIN, ForAdmin};
use crate::admin::dead_letters::Replay;
use crate::admin::{self, Reloading, RouteView, State};
use crate::books::{Books, ListenerBook};
use crate::clock::Clock;
use crate::dead_letters;
use crate::explain;
use crate::lane::DeadLetters;
use crate::log_limit::LogLimit;
use crate::net::{Acceptor, Peer, RETRY_AFTER, Stream, http};
use crate::plan::{self, Plan};
use crate::route::{self, Tables};
use crate::telemetry::Telemetry;
use crate::tls::Server;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Serves admin requests on whatever sockets it was last given.
pub(super) struct Admin {
    state: State,
    stop: CancellationToken,
    address: String,
}

/// The plan in force, as the admin listener shows it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    plan: Option<Plan>,
    addresses: BTreeMap<String, Vec<String>>,
}

impl Shown {
    pub(super) fn new(plan: &Plan, addresses: BTreeMap<String, Vec<String>>) -> Self {
        Self { plan: Some(plan.clone()), addresses }
    }
}

impl Admin {
    pub(super) fn new(state: State) -> Self {
        Self { state, stop: CancellationToken::new(), address: String::new() }
    }

    /// Listens on these sockets and no longer on those before.
    pub(super) fn listen(&mut self, given: ForAdmin, books: &Books) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        let ForAdmin { sockets, tls } = given;
        let lock = tls.map(|server| {
            Arc::new(Lock { server, book: books.listener(ADMIN), log: LogLimit::default() })
        });
        for bound in sockets {
            info!(listener = ADMIN, address = bound.address, "listening");
            self.address = bound.address.trim_start_matches("tcp://").to_owned();
            match Acceptor::new(bound.socket) {
                Ok(Some(acceptor)) => {
                    let app = admin::router(self.state.clone());
                    tokio::spawn(serve(acceptor, app, lock.clone(), self.stop.clone()));
                }
                Ok(None) => {}
                Err(error) => error!(%error, "the admin listener cannot run"),
            }
        }
    }

    /// `host:port`, as bound.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

async fn serve(
    acceptor: Acceptor,
    app: axum::Router,
    lock: Option<Arc<Lock>>,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        };
        let (app, lock, stop) = (app.clone(), lock.clone(), stop.clone());
        tokio::spawn(async move {
            let stream = match lock {
                Some(lock) => lock.open(stream, peer).await,
                None => Some(stream),
            };
            if let Some(stream) = stream {
                http::serve(stream, peer, app, TIMEOUTS, stop).await;
            }
            drop(permit);
        });
    }
}

/// What a connection has to go through where there is TLS. Only then has the admin listener a book.
struct Lock {
    server: Server,
    book: Arc<ListenerBook>,
    log: LogLimit,
}

impl Lock {
    async fn open(&self, stream: Stream, peer: Peer) -> Option<Stream> {
        match stream.secure(&self.server, TIMEOUTS.header).await {
            Ok(stream) => Some(stream),
            Err(why) => {
                why.tell(ADMIN, &self.book, &self.log, &peer);
                None
            }
        }
    }
}

/// What the gateway lends to the admin listener.
pub(super) fn state(
    books: &Arc<Books>,
    shown: &Arc<ArcSwap<Shown>>,
    (letters, tables): (&Arc<DeadLetters>, &Tables),
    data_dir: PathBuf,
    clock: Clock,
    wish: mpsc::Sender<Wish>,
) -> State {
    let shown = || Arc::clone(shown);
    let (ready, listeners, routes, explained) = (shown(), shown(), shown(), shown());
    State {
        books: Arc::clone(books),
        telemetry: Arc::new(Telemetry::new(Arc::clone(books))),
        data_dir,
        clock,
        letters: Arc::clone(letters),
        replay: replay(letters, tables, clock),
        ready: Arc::new(move || match ready.load().plan {
            Some(_) => Ok(()),
            None => Err("starting".to_owned()),
        }),
        reload: Arc::new(move || reload(wish.clone())),
        listeners: Arc::new(move || listeners.load().addresses.clone()),
        routes: Arc::new(move || routes.load().plan.as_ref().map(views).unwrap_or_default()),
        explain: Arc::new(move |listener, line| match &explained.load().plan {
            Some(plan) => {
                let text = explain::explain(plan, listener, line.as_bytes(), clock.now())?;
                Ok(serde_json::json!({ "text": text }))
            }
            None => Err("starting".to_owned()),
        }),
    }
}

/// One replay after the other, each to its end even when whoever asked has gone: letters that were
/// handed over must leave their file.
fn replay(letters: &Arc<DeadLetters>, tables: &Tables, clock: Clock) -> Replay {
    let (letters, tables) = (Arc::clone(letters), Arc::clone(tables));
    let turn = Arc::new(Semaphore::new(1));
    Arc::new(move |which| {
        let (letters, tables, turn) =
            (Arc::clone(&letters), Arc::clone(&tables), Arc::clone(&turn));
        let replaying = tokio::spawn(async move {
            let _turn = turn.acquire_owned().await;
            dead_letters::replay(&letters, &tables, clock, which).await
        });
        Box::pin(async { replaying.await.map_err(|stopped| stopped.to_string())? })
    })
}

fn reload(wish: mpsc::Sender<Wish>) -> Reloading {
    Box::pin(async move {
        let (answer, answered) = oneshot::channel();
        wish.send(answer).await.map_err(|_| "stopping".to_owned())?;
        answered.await.map_err(|_| "stopping".to_owned())?
    })
}

fn views(plan: &Plan) -> Vec<RouteView> {
    let view = |(index, route): (usize, route::Config)| RouteView {
        name: route.name_at(index),
        matching: plan::conditions(&route.matching),
        to: route.to,
        last: route.last,
    };
    plan.all_routes().into_iter().enumerate().map(view).collect()
}

/// People and scrapers; more would be a mistake somewhere.
const CONNECTIONS: usize = 256;

const TIMEOUTS: http::Timeouts = http::Timeouts {
    idle: Duration::from_secs(60),
    header: Duration::from_secs(5),
    request: Duration::from_secs(30),
};
