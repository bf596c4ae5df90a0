//! The endpoints of one backend, shared by its shippers: whom an attempt goes to, who is ill, who
//! is well again.
//!
//! An endpoint that is set aside is asked for its `/ping` in the background, where nobody waits,
//! and not by a payload, which would wait for as long as an attempt may take. Where there is one
//! endpoint nobody is set aside, and nothing but the gauge tells of its health: the lane does.

use super::request::Target;
use crate::backend::World;
use crate::backend::pool::{Choice, Pool};
use crate::books::{BackendBook, EndpointBook};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// The endpoints of one backend.
#[derive(Debug)]
pub(super) struct Endpoints {
    backend: String,
    client: reqwest::Client,
    endpoints: Vec<Endpoint>,
    pool: Mutex<Pool>,
    book: Arc<BackendBook>,
    me: Weak<Self>,
}

#[derive(Debug)]
struct Endpoint {
    target: Target,
    book: Arc<EndpointBook>,
    /// What asks it while it is set aside.
    probe: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Endpoints {
    /// All of them well; `longest` is the longest time between two questions.
    pub(super) fn new(
        world: &World<'_>,
        client: reqwest::Client,
        targets: Vec<Target>,
        longest: Duration,
    ) -> Arc<Self> {
        let pool = Mutex::new(Pool::new(targets.len(), longest));
        let endpoints = targets.into_iter().map(|target| {
            let book = world.book.endpoint(&target.base);
            Endpoint { target, book, probe: Mutex::default() }
        });
        Arc::new_cyclic(|me| Self {
            backend: world.name.to_owned(),
            client,
            endpoints: endpoints.collect(),
            pool,
            book: Arc::clone(world.book),
            me: Weak::clone(me),
        })
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whom a payload goes to.
    pub(super) fn choose(&self) -> Option<Try<'_>> {
        let choice = self.pool().choose(Instant::now());
        self.attempt(choice)
    }

    /// Whom it goes to next, now that another has failed.
    pub(super) fn another(&self) -> Option<Try<'_>> {
        let choice = self.pool().another(Instant::now())?;
        self.book.noticed.add("failed_over", 1);
        self.attempt(choice)
    }

    fn attempt(&self, Choice { at, on_trial }: Choice) -> Option<Try<'_>> {
        let endpoint = self.endpoints.get(at)?;
        let patience = if on_trial { TRIAL } else { Duration::MAX };
        Some(Try { endpoints: self, endpoint, at, patience, is_settled: false })
    }

    fn is_well(&self, at: usize, endpoint: &Endpoint) {
        let is_news = self.pool().succeeded(at);
        endpoint.book.ill.set(0);
        if is_news && self.len() > 1 {
            endpoint.ask(None);
            let (backend, endpoint) = (&self.backend, &endpoint.target.base);
            tracing::info!(%backend, %endpoint, "the endpoint takes points again");
        }
    }

    fn is_ill(&self, at: usize, endpoint: &Endpoint, detail: &str) {
        let is_news = self.pool().failed(at, Instant::now());
        endpoint.book.ill.set(1);
        if self.len() > 1 {
            let probe = tokio::spawn(probe(Weak::clone(&self.me), at));
            endpoint.ask(Some(AbortOnDropHandle::new(probe)));
            if is_news {
                let (backend, endpoint) = (&self.backend, &endpoint.target.base);
                tracing::warn!(%backend, %endpoint, "the endpoint is set aside: {detail}");
            }
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// Lets this task ask from now on, and no other.
    fn ask(&self, task: Option<AbortOnDropHandle<()>>) {
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }
}

/// One payload's attempt at one endpoint. An attempt that is cut off had no answer in time.
pub(super) struct Try<'a> {
    endpoints: &'a Endpoints,
    endpoint: &'a Endpoint,
    at: usize,
    patience: Duration,
    is_settled: bool,
}

impl Try<'_> {
    /// Its place among the endpoints.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// How long it is given, as far as that is up to us: an attempt is limited, too.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Where its requests go.
    pub(super) const fn target(&self) -> &Target {
        &self.endpoint.target
    }

    /// It answered, and took so many points.
    pub(super) fn answered(mut self, delivered: u32) {
        self.is_settled = true;
        self.endpoint.book.delivered.add(u64::from(delivered));
        self.endpoints.is_well(self.at, self.endpoint);
    }

    /// It is away.
    pub(super) fn failed(mut self, detail: &str) {
        self.is_settled = true;
        self.endpoints.is_ill(self.at, self.endpoint, detail);
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.endpoints.is_ill(self.at, self.endpoint, "no answer in time");
        }
    }
}

/// Asks an endpoint that is set aside whenever that is due, until it answers.
async fn probe(endpoints: Weak<Endpoints>, at: usize) {
    loop {
        let due = endpoints.upgrade().and_then(|endpoints| endpoints.pool().due(at));
        let Some(due) = due else { return };
        sleep_until(due).await;
        let Some(endpoints) = endpoints.upgrade() else { return };
        let Some(endpoint) = endpoints.endpoints.get(at) else { return };
        let ping = endpoints.client.get(format!("{}/ping", endpoint.target.base));
        match ping.timeout(PING_TIMEOUT).send().await {
            // Whatever it says about the question, it is there.
            Ok(answer) if !is_away(answer.status()) => return endpoints.pool().answered(at),
            _ => endpoints.pool().failed(at, Instant::now()),
        };
    }
}

/// Whether this is how a front end says that what is behind it is gone.
pub(super) fn is_away(status: reqwest::StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}

/// What a payload may lose when an endpoint answers questions and takes no points.
const TRIAL: Duration = Duration::from_secs(2);

/// A ping costs a server nothing.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
