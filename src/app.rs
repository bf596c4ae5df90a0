//! How it all starts, reloads and stops: the only wiring.
//!
//! *Start* and *reload* are one motion, [`App::apply`]: what may fail (compiling routes, binding
//! sockets, building backends) is done beside what runs and changes nothing; then one table is
//! swapped, listeners follow, and whatever the new table does not name sees its last reference
//! go and drains. *Stop* is the same with an empty table and a deadline, and all that waits goes
//! to disk at once: whoever stops us may have less patience than the plan.

mod admin;
mod banner;
mod data_dir;
mod grace;
mod lanes;
mod listeners;

pub use banner::{Started, banner};

use crate::access::Meters;
use crate::books::Books;
use crate::clock::Clock;
use crate::errors::Teller;
use crate::ingest::Keys;
use crate::lane::DeadLetters;
use crate::net::HandedIn;
use crate::notify::Notify;
use crate::plan::Plan;
use crate::plural::counted;
use crate::route::{Table, Tables};
use crate::tls::Keeper;
use admin::{Admin, Shown};
use arc_swap::ArcSwap;
use data_dir::DataDir;
use grace::Grace;
use lanes::Lanes;
use listeners::Listeners;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

/// Where a plan comes from, again at each reload.
pub type Loader = Box<dyn Fn() -> Result<Plan, String> + Send + Sync>;

/// A wish to reload, and the place for its answer.
pub type Wish = oneshot::Sender<Result<String, String>>;

/// What whoever started this process has given it; by default, nothing.
#[derive(Debug, Default)]
pub struct Given {
    /// Sockets that are bound already.
    pub sockets: Vec<HandedIn>,
    /// Who wants to hear how it goes.
    pub notify: Notify,
}

/// A running gateway.
pub struct App {
    plan: Plan,
    load: Loader,
    books: Arc<Books>,
    clock: Clock,
    tables: Tables,
    letters: Arc<DeadLetters>,
    lanes: Lanes,
    listeners: Listeners,
    /// Of what listeners refuse.
    teller: Teller,
    /// What principals have used of their quotas; it belongs to their names.
    meters: Meters,
    admin: Admin,
    /// Ours as soon as anything lives in it.
    data_dir: Arc<DataDir>,
    /// Of requests that may be repeated; listeners come and go, these stay.
    keys: Arc<Keys>,
    /// Of listeners and backends that have a `tls` block.
    certificates: Keeper,
    _renewing: AbortOnDropHandle<()>,
    /// What the admin listener shows of the plan in force.
    shown: Arc<ArcSwap<Shown>>,
    notify: Notify,
    wish: mpsc::Sender<Wish>,
    wishes: mpsc::Receiver<Wish>,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Farewell {
    /// Points that were held and could not be delivered in time, by backend.
    pub lost: BTreeMap<String, u64>,
}

impl App {
    /// Starts everything.
    ///
    /// # Errors
    ///
    /// A sentence for people: a port in use, a backend that cannot be built.
    pub async fn start(
        plan: Plan,
        load: Loader,
        clock: Clock,
        given: Given,
    ) -> Result<Self, String> {
        let (wish, wishes) = mpsc::channel(1);
        let books = Arc::new(Books::default());
        let letters = DeadLetters::new(plan.data_dir.clone(), Arc::clone(&books), clock);
        let shown = Arc::new(ArcSwap::from_pointee(Shown::default()));
        let data_dir = Arc::new(DataDir::new(plan.data_dir.clone()));
        let tables = Tables::default();
        let certificates = Keeper::default();
        let mut app = Self {
            admin: Admin::new(admin::state(
                &books,
                &shown,
                (&letters, &tables),
                plan.data_dir.clone(),
                clock,
                wish.clone(),
            )),
            plan: plan.clone().emptied(),
            teller: Teller::start(&books, &tables, clock),
            load,
            books,
            clock,
            tables,
            letters,
            lanes: Lanes::default(),
            listeners: Listeners::with(given.sockets),
            meters: Meters::default(),
            keys: keys(&data_dir, &plan, clock),
            _renewing: certificates.watch(),
            certificates,
            data_dir,
            shown,
            notify: given.notify,
            wish,
            wishes,
        };
        app.apply(plan).await?;
        info!("ready");
        app.notify.ready(&app.status());
        Ok(app)
    }

    /// Where each listener listens, ports and all.
    pub fn addresses(&self) -> BTreeMap<String, Vec<String>> {
        self.listeners.addresses()
    }

    /// Where the admin listener listens, as `host:port`.
    pub fn admin_address(&self) -> String {
        self.admin.address().to_owned()
    }

    /// Where to ask for a reload; answered while [`run`](Self::run) runs.
    pub fn wish(&self) -> mpsc::Sender<Wish> {
        self.wish.clone()
    }

    /// The books.
    pub fn books(&self) -> &Arc<Books> {
        &self.books
    }

    /// Works until `shutdown` resolves, then ends within the plan's grace; at once, but for what
    /// has to go to disk, when `hurry` is cancelled.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
        hurry: CancellationToken,
    ) -> Farewell {
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return self.stop(hurry).await,
                // Here and in no task of its own, so that it fails when this loop does.
                () = self.notify.beat() => {}
                Some(answer) = self.wishes.recv() => {
                    let outcome = self.reload().await;
                    // Whoever asked may have gone; it was logged in any case.
                    let _ = answer.send(outcome);
                }
            }
        }
    }

    async fn reload(&mut self) -> Result<String, String> {
        self.notify.reloading();
        let outcome = match (self.load)() {
            Ok(plan) => self.apply(plan).await,
            Err(report) => Err(report),
        };
        let outcome = match outcome {
            Ok(mut changes) => {
                // Of those whose section is unchanged.
                changes.extend(self.certificates.renew_aside().await);
                Ok(summary(&changes))
            }
            Err(problem) => Err(problem),
        };
        match &outcome {
            Ok(summary) => {
                self.books.reloads.add(1);
                info!("reloaded: {summary}");
                self.notify.ready(&self.status());
            }
            Err(problem) => {
                self.books.reloads_failed.add(1);
                error!("the reload changed nothing: {problem}");
                self.notify.ready(&format!("the reload changed nothing: {problem}"));
            }
        }
        outcome
    }

    /// Makes `plan` the one in force, and says what has changed. On an error nothing has.
    async fn apply(&mut self, plan: Plan) -> Result<Vec<String>, String> {
        if plan.data_dir != self.plan.data_dir {
            return Err(
                "a new data_dir needs a restart: the store cannot move while it is open".to_owned()
            );
        }
        let rules = plan.rules()?;
        let locked = self.data_dir.enter_for(&plan)?;
        if locked {
            self.letters.find();
        }
        let world = lanes::World {
            books: &self.books,
            letters: &self.letters,
            data_dir: &plan.data_dir,
            certificates: &self.certificates,
            locked,
            clock: self.clock,
        };
        let table = self.tables.load_full();
        let lanes = self.lanes.prepare(&plan.backends, &self.plan.backends, &table, &world)?;
        drop(table);
        // Last of what may fail, since a socket that is bound is seen from outside.
        let sockets = self.listeners.prepare(&plan, &self.plan)?;

        let taken = rules.iter().map(|rule| self.books.route(&rule.name)).collect();
        let lanes = self.lanes.enter(lanes, &world);
        let access = plan.access(&self.meters);
        // By the table that has routes for it.
        self.teller.tell();
        self.tables.store(Arc::new(Table { rules, lanes, taken, access, ..Table::default() }));
        self.teller.ask(plan.errors());
        self.meters.forget_unused();
        self.enter_listeners(sockets, &plan).await;
        if plan.backends != self.plan.backends {
            data_dir::warn_of_space(&plan);
            data_dir::name_orphans(&plan);
        }
        let differences = differences(&plan, &self.plan);
        self.shown.store(Arc::new(Shown::new(&plan, self.listeners.addresses())));
        self.plan = plan;
        Ok(differences)
    }

    async fn enter_listeners(&mut self, sockets: listeners::Prepared, plan: &Plan) {
        let Self { certificates, books, tables, keys, clock, listeners, .. } = self;
        let (data_dir, clock) = (plan.data_dir.as_path(), *clock);
        let world = listeners::World { certificates, books, tables, keys, data_dir, clock };
        let admin = listeners.enter(sockets, plan, &self.plan, &world, &HANDOVER.into()).await;
        if plan.admin != self.plan.admin {
            self.admin.listen(admin, &self.books);
        }
    }

    /// What there is, in a line.
    fn status(&self) -> String {
        let Plan { listeners, backends, routes, .. } = &self.plan;
        let counts =
            [(listeners.len(), "listener"), (routes.len(), "route"), (backends.len(), "backend")];
        counts.map(|(count, what)| counted(count as u64, what)).join(", ")
    }

    /// Ends, and shows all the while that it is not stuck: a grace may be long.
    async fn stop(mut self, hurry: CancellationToken) -> Farewell {
        let mut notify = std::mem::take(&mut self.notify);
        let grace = self.plan.grace.as_secs_f64();
        info!(grace_seconds = grace, "stopping");
        notify.stopping(&format!("delivering what is held, for at most {grace} s"));
        let end = self.end(hurry);
        tokio::pin!(end);
        loop {
            tokio::select! {
                farewell = &mut end => return farewell,
                () = notify.beat() => {}
            }
        }
    }

    async fn end(mut self, hurry: CancellationToken) -> Farewell {
        let grace = Grace::new(self.plan.grace, hurry.clone());
        // Clients that do not finish must not use up the time that backends need.
        let half = Grace::new(self.plan.grace / 2, hurry);
        // Whoever wishes a reload now learns that it is too late.
        drop(self.wishes);
        self.lanes.secure();
        self.listeners.stop(&half).await;
        self.teller.tell();
        self.tables.store(Arc::default());
        let lost = self.lanes.drain(&grace).await;
        self.listeners.end().await;
        self.keys.close().await;
        self.admin.stop();
        let farewell = Farewell { lost };
        tell(&self.books, &farewell);
        farewell
    }
}

/// The keys in a data directory, which is taken when there is one.
fn keys(data_dir: &Arc<DataDir>, plan: &Plan, clock: Clock) -> Arc<Keys> {
    let data_dir = Arc::clone(data_dir);
    Keys::new(&plan.data_dir, Box::new(move || data_dir.enter()), clock)
}

fn tell(books: &Books, farewell: &Farewell) {
    for (name, book) in books.backends() {
        let (delivered, kept) = (book.delivered.get(), book.spooled.get());
        match farewell.lost.get(&name).copied().unwrap_or(0) {
            0 if kept == 0 => info!(backend = name, delivered, "drained"),
            0 => info!(backend = name, delivered, kept, "stopped with points kept on disk"),
            lost if kept > 0 => {
                warn!(backend = name, delivered, kept, lost, "stopped with points undelivered");
            }
            lost => warn!(backend = name, delivered, lost, "stopped with points undelivered"),
        }
    }
    info!("stopped");
}

/// What a reload did, in a line.
fn summary(changes: &[String]) -> String {
    if changes.is_empty() { "nothing has changed".to_owned() } else { changes.join(", ") }
}

fn differences(plan: &Plan, before: &Plan) -> Vec<String> {
    let listeners = changes("listener", &plan.listeners, &before.listeners);
    let principals = changes("principal", &plan.principals, &before.principals);
    let backends = changes("backend", &plan.backends, &before.backends);
    let routes =
        (plan.routes != before.routes).then(|| format!("routes ({} now)", plan.routes.len()));
    let admin = (plan.admin != before.admin).then(|| "admin changed".to_owned());
    let grace = (plan.grace != before.grace).then(|| "grace changed".to_owned());
    let errors = (plan.errors != before.errors).then(|| "errors changed".to_owned());
    let named = listeners.into_iter().chain(principals).chain(backends);
    named.chain(routes).chain(admin).chain(grace).chain(errors).collect()
}

fn changes<T: PartialEq>(
    what: &str,
    now: &BTreeMap<String, T>,
    before: &BTreeMap<String, T>,
) -> Vec<String> {
    let kept = now.iter().filter_map(|(name, section)| match before.get(name) {
        None => Some(format!("{what} {name} added")),
        Some(old) if old != section => Some(format!("{what} {name} changed")),
        Some(_) => None,
    });
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    kept.chain(gone.map(|name| format!("{what} {name} removed"))).collect()
}

/// How long a reload waits for the clients of a listener that it replaces.
const HANDOVER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Inputs;
    use protocols::UnixNanos;
    use std::net::TcpListener;

    /// A plan with a statsd listener, and whatever else it says.
    fn plan(more: &str) -> Plan {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let text = format!(
            "[admin]\nbind = '127.0.0.1:0'\n\
             [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n{more}"
        );
        std::fs::write(file.path(), text).unwrap();
        let inputs = Inputs { files: vec![file.path().to_owned()], ..Inputs::default() };
        Plan::load(&inputs).unwrap_or_else(|report| panic!("{report}")).plan
    }

    fn backend(kind: &str) -> String {
        format!("[backends.b]\nkind = '{kind}'\n[[routes]]\nto = ['b']\n")
    }

    async fn start(plan: Plan) -> App {
        let clock = Clock::starting_at(UnixNanos::from_secs(1_700_000_000));
        let load = Box::new(|| Err("nothing to load".to_owned()));
        App::start(plan, load, clock, Given::default()).await.unwrap()
    }

    #[tokio::test]
    async fn a_reload_says_what_it_changed() {
        let first = plan(&backend("blackhole"));
        let mut app = start(first.clone()).await;
        assert_eq!(summary(&app.apply(first).await.unwrap()), "nothing has changed");
        let other = "[backends.c]\nkind = 'blackhole'\n[[routes]]\nto = ['c']\n";
        let changes = app.apply(plan(other)).await.unwrap();
        let expected = "backend c added, backend b removed, routes (1 now)";
        assert_eq!(summary(&changes), expected);
        let changes = app.apply(Plan { grace: Duration::ZERO, ..plan(other) }).await.unwrap();
        assert_eq!(changes, ["grace changed"]);
    }

    #[tokio::test]
    async fn a_reload_that_fails_leaves_nothing_behind() {
        let mut app = start(plan(&backend("blackhole"))).await;
        let addresses = app.addresses();
        // Points that a lane of another kind could not deliver.
        app.books().backend("b").queued.add(1);
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let api = format!("[listeners.api]\nprotocol = 'http'\nbind = ['tcp://{free}']\n");
        let problem = app.apply(plan(&(api + &backend("stdout")))).await.unwrap_err();
        assert!(problem.contains("still holds points for the kind blackhole"), "{problem}");
        assert_eq!(app.addresses(), addresses);
        assert!(TcpListener::bind(free).is_ok(), "the new listener's socket was not kept");
    }

    #[tokio::test]
    async fn the_store_does_not_move_while_it_is_open() {
        let first = plan(&backend("blackhole"));
        let mut app = start(first.clone()).await;
        let moved = Plan { data_dir: "/elsewhere".into(), ..first };
        assert!(app.apply(moved).await.unwrap_err().contains("needs a restart"));
    }

    #[tokio::test]
    async fn what_was_replaced_is_forgotten_once_it_has_drained() {
        let mut app = start(plan(&backend("blackhole"))).await;
        for round in 1..=10 {
            let flush = format!("kind = 'blackhole'\nflush = '{round}s'");
            let changed = backend("blackhole").replace("kind = 'blackhole'", &flush);
            app.apply(plan(&changed)).await.unwrap();
            while app.lanes.draining() > 0 {
                tokio::task::yield_now().await;
            }
        }
        app.apply(plan("[backends.c]\nkind = 'blackhole'\n[[routes]]\nto = ['c']\n"))
            .await
            .unwrap();
        assert_eq!(app.lanes.known(), ["b", "c"], "b was running until just now");
        while app.lanes.draining() > 0 {
            tokio::task::yield_now().await;
        }
        app.apply(plan(&backend("blackhole"))).await.unwrap();
        assert_eq!(app.lanes.known(), ["b", "c"], "b is back, and c was running until just now");
    }

    #[tokio::test]
    async fn who_wishes_too_late_is_told() {
        let app = start(plan(&backend("blackhole"))).await;
        let wish = app.wish();
        let (answer, answered) = oneshot::channel();
        assert_eq!(app.run(async {}, CancellationToken::new()).await, Farewell::default());
        assert!(wish.send(answer).await.is_err());
        assert!(answered.await.is_err());
    }
}
