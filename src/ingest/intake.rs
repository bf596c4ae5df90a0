//! What every receiving task works with: the listener it belongs to, and its own batch.

use super::Config;
use super::Listener;
use super::bodies::Bodies;
use super::busy::Busy;
use super::grammar::Grammar;
use super::keys::{Keyring, Keys};
use super::lines::{Lines, Strangers};
use crate::access::{Denial, Proof};
use crate::books::{ListenerBook, Marks};
use crate::clock::Clock;
use crate::log_limit::{LogLimit, excerpt};
use crate::net::{Peer, PeerCertificate};
use crate::route::{
    Full, Level, Memo, Readings, Receipt, Recollection, Router, Slip, Table, Turned,
};
use crate::tls::{Refusal, Server};
use arc_swap::Guard;
use protocols::form::{Forgetful, Recall};
use protocols::timestamp::TimeRange;
use protocols::{Batch, Point, UnixNanos};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::{DisplayValue, display};
use tracing::warn;

/// A listener as its tasks see it; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// The listener's name.
    pub(super) listener: Arc<str>,
    /// Its section.
    pub(super) config: Arc<Config>,
    /// Where batches go; a task clones it.
    pub(super) router: Router,
    /// What is counted; outlives the listener.
    pub(super) book: Arc<ListenerBook>,
    /// The present time.
    pub(super) clock: Clock,
    /// Cancelled when the listener is to finish.
    pub(super) stop: CancellationToken,
    /// One permit for each connection.
    pub(super) connections: Arc<Semaphore>,
    /// Requests that may come again.
    pub(super) keys: Keyring,
    /// What requests' bodies share.
    pub(super) bodies: Bodies,
    /// What is shown to clients, where they have to speak TLS.
    pub(super) tls: Option<Server>,
    /// Which tasks are at work.
    pub(super) busy: Busy,
    /// Cancelled when what only waits is to wait no longer.
    pub(super) hurry: CancellationToken,
    /// Cancelled when it is to end at once.
    end: CancellationToken,
    tasks: TaskTracker,
    log: Arc<LogLimit>,
    pub(super) grammar: Arc<Grammar>,
    /// What is known of readings by now.
    recollection: Recollection,
}

impl Context {
    pub(super) fn new(
        name: &str,
        config: &Config,
        router: Router,
        book: Arc<ListenerBook>,
        clock: Clock,
        keys: &Arc<Keys>,
        tokens: &Listener,
    ) -> Self {
        let Listener { stop, hurry, end, busy, tasks } = tokens;
        let connections = Arc::new(Semaphore::new(config.limits.connections as usize));
        let bodies = Bodies::new(config.limits.body.bytes());
        let grammar = Arc::new(Grammar::new(config));
        let listener: Arc<str> = name.into();
        let keys = keys.of(Arc::clone(&listener), config, Arc::clone(&book));
        let (config, log) = (Arc::new(config.clone()), Arc::default());
        Self {
            listener,
            config,
            router,
            book,
            clock,
            stop: stop.clone(),
            connections,
            keys,
            bodies,
            tls: None,
            busy: busy.clone(),
            hurry: hurry.clone(),
            end: end.clone(),
            tasks: tasks.clone(),
            log,
            grammar,
            recollection: Recollection::default(),
        }
    }

    /// The same for a task that runs beside others.
    pub(super) fn for_worker(&self, worker: usize) -> Self {
        Self { router: self.router.for_worker(worker), ..self.clone() }
    }

    /// The same for what comes by that transport.
    pub(super) fn by(&self, transport: &'static str) -> Self {
        Self { router: self.router.clone().by(transport), ..self.clone() }
    }

    /// The same for what comes from that peer.
    pub(super) fn from(&self, peer: &Peer) -> Self {
        Self { router: self.router.of(proof(peer)), ..self.clone() }
    }

    /// Runs a task that [`stop`](super::Listener::stop) waits for.
    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let (end, work) = (self.end.clone(), self.busy.begin());
        self.tasks.spawn(async move {
            end.run_until_cancelled(task).await;
            drop(work);
        });
    }

    /// A batch of one's own.
    pub(super) fn intake(&self) -> Intake {
        let (mut router, batch, readings) = (self.router.clone(), Batch::new(), None);
        if self.book.tallies.is_asked() {
            // What is refused before the first batch is handed over has a sender, too.
            router.enter(&self.router.table());
        }
        Intake { context: self.clone(), batch, router, readings, forgetful: Forgetful }
    }

    /// Counts something refused, and now and then logs it with `example`. Who has an [`Intake`] asks
    /// that, which knows whose it is.
    pub(super) fn refuse(&self, reason: &'static str, count: u64, example: &[u8], peer: Who<'_>) {
        self.refuse_of(&self.router, reason, count, example, peer);
    }

    /// The same of something that is told by `marks`: a file, a task.
    pub(super) fn refuse_about(&self, marks: Marks, reason: &'static str, example: &[u8]) {
        let mut router = self.router.clone();
        router.enter(&self.router.table());
        let file = marks.iter().find(|(key, _)| *key == "file").map(|(_, name)| name.to_owned());
        router.about(marks);
        let who = file.as_deref().map_or(Who::Unknown, Who::File);
        self.refuse_of(&router, reason, 1, example, who);
    }

    /// The same of what came by that router.
    pub(super) fn refuse_of(
        &self,
        router: &Router,
        reason: &'static str,
        count: u64,
        example: &[u8],
        who: Who<'_>,
    ) {
        router.reject(reason, count);
        let Some(suppressed) = self.log.pass(reason, REFUSED_EVERY) else { return };
        let example = excerpt(example);
        let (listener, peer, file) = (&*self.listener, who.peer(), who.file());
        warn!(listener, reason, peer, file, example, suppressed, "refused");
    }

    /// Now and then logs a point that was denied; it is counted where it was.
    pub(super) fn denied(&self, denial: Denial, point: &Point<'_>, who: Who<'_>) {
        let reason = denial.label();
        let Some(suppressed) = self.log.pass(reason, REFUSED_EVERY) else { return };
        let (listener, name) = (&*self.listener, excerpt(point.name.as_bytes()));
        let (why, peer, file) = (denial.message(point), who.peer(), who.file());
        warn!(listener, reason, peer, file, name, why, suppressed, "denied");
    }

    /// Now and then logs that nobody can tell who signs requests.
    pub(super) fn warn_of_auth_service(&self, why: &str) {
        if let Some(suppressed) = self.log.pass("auth_service_away", REFUSED_EVERY) {
            let listener = &*self.listener;
            warn!(listener, why, suppressed, "the auth service cannot be asked");
        }
    }

    /// Counts a client whose handshake came to nothing, and now and then logs why.
    pub(super) fn refuse_handshake(&self, why: &Refusal, peer: &Peer) {
        why.tell(&self.listener, &self.book, &self.log, peer);
    }

    /// Whether a rare warning about `matter` is due again.
    pub(super) fn may_warn(&self, matter: &'static str, every: Duration) -> bool {
        self.log.pass(matter, every).is_some()
    }

    /// What the book says, in the names that OpenTSDB clients see.
    pub(super) fn stats(&self) -> [(&'static str, u64); 7] {
        let book = &self.book;
        [
            ("pointsman.received_points", book.received.get()),
            ("pointsman.received_bytes", book.received_bytes.get()),
            ("pointsman.routed_points", book.routed.get()),
            ("pointsman.unmatched_points", book.unmatched.get()),
            ("pointsman.denied_points", book.denied.total()),
            ("pointsman.rejected", book.rejected.total()),
            ("pointsman.connections", book.connections.get()),
        ]
    }

    /// The times that points may have just now.
    pub(super) fn times(&self) -> TimeRange {
        self.grammar.times(self.clock.now())
    }
}

/// Where some input is from, as far as the log can say.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    /// Whoever is at the other end.
    Peer(&'a Peer),
    /// The file of that name.
    File(&'a str),
    /// Neither.
    Unknown,
}

impl<'a> Who<'a> {
    /// What a line of the log says under `peer`.
    fn peer(self) -> Option<DisplayValue<&'a Peer>> {
        match self {
            Self::Peer(peer) => Some(display(peer)),
            Self::File(_) | Self::Unknown => None,
        }
    }

    /// What it says under `file`.
    const fn file(self) -> Option<&'a str> {
        match self {
            Self::File(name) => Some(name),
            Self::Peer(_) | Self::Unknown => None,
        }
    }
}

impl<'a> From<&'a Peer> for Who<'a> {
    fn from(peer: &'a Peer) -> Self {
        Self::Peer(peer)
    }
}

impl<'a> From<Option<&'a Peer>> for Who<'a> {
    fn from(peer: Option<&'a Peer>) -> Self {
        peer.map_or(Self::Unknown, Self::Peer)
    }
}

/// What is certain of a peer that has shown a certificate, or has not.
pub(super) fn certified(peer: &Peer, certificate: Option<&Arc<PeerCertificate>>) -> Proof {
    let names = certificate.map(|certificate| certificate.names.iter().cloned().collect());
    Proof { names: names.unwrap_or_default(), ..proof(peer) }
}

/// What is certain of a peer.
pub(super) fn proof(peer: &Peer) -> Proof {
    match *peer {
        Peer::Net(address) => Proof { address: Some(address.ip()), ..Proof::default() },
        Peer::User { uid, gid } => Proof { user: Some((uid, gid)), ..Proof::default() },
        Peer::Local => Proof::default(),
    }
}

/// A task's own batch and its way to the router.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) context: Context,
    pub(super) batch: Batch,
    pub(super) router: Router,
    /// Beside the batch, while it is filled with what may be known again.
    readings: Option<Readings>,
    /// In their place where nothing can be.
    forgetful: Forgetful,
}

impl Intake {
    /// What is refused or denied from now on is told with these marks (a file, a task), and not with
    /// those before.
    pub(super) fn about(&mut self, marks: Marks) {
        self.router.enter(&self.context.router.table());
        self.router.about(marks);
    }

    /// Counts something refused, and now and then logs it with `example`.
    pub(super) fn refuse(&self, reason: &'static str, count: u64, example: &[u8], peer: Who<'_>) {
        self.context.refuse_of(&self.router, reason, count, example, peer);
    }

    /// Hands the batch over, which is empty then, and tells which points were denied.
    pub(super) fn submit_and_tell(
        &mut self,
        peer: Who<'_>,
        mut tell: impl FnMut(&Point<'_>, Denial),
    ) {
        let readings = self.readings.take();
        if self.batch.is_empty() && readings.is_none() {
            return;
        }
        let Self { router, batch, context, .. } = self;
        router.submit_and_tell(readings, batch, |point, denial| {
            context.denied(denial, point, peer);
            tell(point, denial);
        });
    }

    /// What readings that are to go with the batch are shown to, from now until it is handed over.
    pub(super) fn recall(&mut self, times: TimeRange) -> (&mut dyn Recall, &mut Batch) {
        let Self { context, batch, router, readings, forgetful } = self;
        if readings.is_none() {
            *readings = router.recall(&context.recollection, times);
        }
        match readings {
            Some(readings) => (readings, batch),
            None => (forgetful, batch),
        }
    }

    /// How many points are to be handed over.
    pub(super) fn len(&self) -> usize {
        self.batch.len() + self.readings.as_ref().map_or(0, Readings::len)
    }

    /// Forgets what was recalled of a body that is broken.
    pub(super) fn forget(&mut self) {
        self.readings = None;
    }

    /// Hands the batch over for a request, whose sender can be told; see
    /// [`Router::submit_request`].
    pub(super) fn submit_request(
        &mut self,
        level: Option<Level>,
    ) -> Result<Option<Receipt>, Turned> {
        self.router.submit_request(self.readings.take(), &mut self.batch, level)
    }

    /// Hands the batch over for one who waits for its points by a receipt, and tells which points were
    /// denied; it is left as it is if a backend that may refuse has no room for it.
    pub(super) fn submit_on(
        &mut self,
        slip: &Slip,
        mut tell: impl FnMut(&Point<'_>, Denial),
    ) -> Result<(), Full> {
        let Self { router, batch, context, .. } = self;
        let submitted = router.submit_on(slip, batch, |point, denial| {
            context.denied(denial, point, Who::Unknown);
            tell(point, denial);
        });
        submitted.map(drop)
    }

    /// Gives what is in the batch a time, if it has none and one is wanted.
    pub(super) fn date(&mut self, time: UnixNanos) {
        self.batch.date(time);
    }

    /// Whether a backend that may refuse is full.
    pub(super) fn refusing(&self) -> bool {
        self.router.refusing()
    }

    /// Waits for a moment while what was submitted is still being worked on.
    pub(super) async fn ease(&self) {
        self.router.ease().await;
    }

    /// The present table, for the length of one batch.
    pub(super) fn table(&self) -> Guard<Arc<Table>> {
        self.router.table()
    }

    /// A way for lines of statsd that are routed one by one; what was learnt from earlier ones is
    /// in the memo. Of what comes by the network each sender may be another one.
    pub(super) fn lines<'t>(
        &'t mut self,
        table: &'t Table,
        memo: &'t mut Memo,
        by_network: bool,
    ) -> Lines<'t> {
        memo.align(table);
        let Self { context, batch, router, .. } = self;
        router.enter(table);
        let are_strangers = by_network && table.access.asks_for_addresses();
        let strangers = are_strangers.then(|| Strangers::new(router, table));
        let (times, crossing) = (context.times(), router.cross(table));
        Lines { context, times, memo, batch, crossing, refused: 0, strangers }
    }

    /// Takes a line of statsd into the batch, or counts why not.
    pub(super) fn statsd_line(&mut self, line: &[u8], times: &TimeRange, peer: Who<'_>) {
        match self.context.grammar.statsd(line, times, &mut self.batch) {
            Ok(unknown) => self.context.book.noticed.add("unknown_field", u64::from(unknown)),
            Err(reason) => self.refuse(reason.label(), 1, line, peer),
        }
    }
}

/// How often a line about one kind of bad input is written.
const REFUSED_EVERY: Duration = Duration::from_secs(10);
