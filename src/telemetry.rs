//! The metrics page: the books under the names that the outside relies on.
//!
//! One table says every name, its labels, its help and where its value comes from. Nothing is
//! counted here: workers write in the [books](crate::books), and a scrape copies them out. So
//! the page and the ledger never disagree, and several gateways in one process do not mix, since
//! the recorder is never installed as the global one.
//!
//! Every listener, backend and route shows each of its series from the start, with 0. Refusals
//! and drops start with the reasons that are known beforehand; others appear once they happen.

use crate::books::{BackendBook, Books, Counter, ListenerBook, Reasons};
use crate::clock::Clock;
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use protocols::{ParseError, UnixNanos};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Renders the books of one gateway.
pub struct Telemetry {
    books: Arc<Books>,
    clock: Clock,
    started: UnixNanos,
    recorder: PrometheusRecorder,
}

impl Telemetry {
    /// For these books, with the system's clock; the uptime begins now.
    pub fn new(books: Arc<Books>) -> Self {
        Self::with_clock(books, Clock::System)
    }

    /// For these books, with a clock of one's own.
    pub fn with_clock(books: Arc<Books>, clock: Clock) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in METRICS {
            let (name, help) = (KeyName::from_const_str(metric.name), metric.help.into());
            match metric.read {
                Read::Counter(_) => recorder.describe_counter(name, None, help),
                Read::Gauge(_) => recorder.describe_gauge(name, None, help),
            }
        }
        Self { books, clock, started: clock.now(), recorder }
    }

    /// The page, in Prometheus' text format 0.0.4; see [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let view = View::of(self);
        for metric in METRICS {
            match metric.read {
                Read::Counter(read) => self.copy_counter(metric.name, read(&view)),
                Read::Gauge(read) => self.copy_gauge(metric.name, read(&view)),
            }
        }
        sorted(&self.recorder.handle().render())
    }

    fn copy_counter(&self, name: &'static str, samples: Vec<Sample<u64>>) {
        for (labels, value) in samples {
            self.recorder.register_counter(&key(name, labels), &METADATA).absolute(value);
        }
    }

    fn copy_gauge(&self, name: &'static str, samples: Vec<Sample<f64>>) {
        for (labels, value) in samples {
            self.recorder.register_gauge(&key(name, labels), &METADATA).set(value);
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("started", &self.started).finish_non_exhaustive()
    }
}

/// What the page must be served as; newer scrapers refuse anything else.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

fn key(name: &'static str, labels: Labels) -> Key {
    let labels: Vec<_> = labels.into_iter().map(|(key, value)| Label::new(key, value)).collect();
    Key::from_parts(name, labels)
}

/// The recorder answers in the order of a hash table; people compare pages by eye.
fn sorted(page: &str) -> String {
    let mut blocks: Vec<Vec<&str>> =
        page.split("\n\n").map(|block| block.lines().collect()).collect();
    for block in &mut blocks {
        // HELP comes before TYPE, and `#` before any name.
        block.sort_unstable();
    }
    blocks.sort_unstable_by_key(|block| block.last().copied());
    let blocks = blocks.iter().filter(|block| !block.is_empty());
    blocks.map(|block| block.join("\n") + "\n").collect::<Vec<_>>().join("\n")
}

/// One line of the table.
struct Metric {
    name: &'static str,
    help: &'static str,
    read: Read,
}

/// Where the samples come from, which also tells the type.
enum Read {
    Counter(fn(&View) -> Vec<Sample<u64>>),
    Gauge(fn(&View) -> Vec<Sample<f64>>),
}

type Labels = Vec<(&'static str, String)>;
type Sample<T> = (Labels, T);

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&View) -> Vec<Sample<u64>>,
) -> Metric {
    Metric { name, help, read: Read::Counter(read) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&View) -> Vec<Sample<f64>>,
) -> Metric {
    Metric { name, help, read: Read::Gauge(read) }
}

/// The books at the moment of a scrape.
struct View {
    listeners: Vec<(String, Arc<ListenerBook>)>,
    backends: Vec<(String, Arc<BackendBook>)>,
    routes: Vec<(String, Arc<Counter>)>,
    reloads: u64,
    reloads_failed: u64,
    started: UnixNanos,
    now: UnixNanos,
}

impl View {
    fn of(telemetry: &Telemetry) -> Self {
        let books = &telemetry.books;
        Self {
            listeners: books.listeners(),
            backends: books.backends(),
            routes: books.routes(),
            reloads: books.reloads.get(),
            reloads_failed: books.reloads_failed.get(),
            started: telemetry.started,
            now: telemetry.clock.now(),
        }
    }

    fn listeners<T>(&self, read: fn(&ListenerBook) -> T) -> Vec<Sample<T>> {
        self.listeners
            .iter()
            .map(|(name, book)| (vec![("listener", name.clone())], read(book)))
            .collect()
    }

    fn backends<T>(&self, read: impl Fn(&BackendBook) -> T) -> Vec<Sample<T>> {
        self.backends
            .iter()
            .map(|(name, book)| (vec![("backend", name.clone())], read(book)))
            .collect()
    }

    fn listener_reasons(
        &self,
        label: &'static str,
        read: fn(&ListenerBook) -> &Reasons,
        known: impl IntoIterator<Item = &'static str> + Clone,
    ) -> Vec<Sample<u64>> {
        let books = self.listeners.iter();
        books
            .flat_map(|(name, book)| {
                by_reason(("listener", name), label, read(book), known.clone())
            })
            .collect()
    }

    fn backend_reasons(
        &self,
        label: &'static str,
        read: fn(&BackendBook) -> &Reasons,
        known: &[&'static str],
    ) -> Vec<Sample<u64>> {
        let books = self.backends.iter();
        books
            .flat_map(|(name, book)| {
                by_reason(("backend", name), label, read(book), known.iter().copied())
            })
            .collect()
    }

    /// Where the points are that a backend holds.
    fn held(&self) -> Vec<Sample<f64>> {
        let at = |place: &str, read: fn(&BackendBook) -> u64| {
            let mut samples = self.backends(|book| float(read(book)));
            for (labels, _) in &mut samples {
                labels.push(("where", place.to_owned()));
            }
            samples
        };
        [
            at("inbox", |book| book.inbox.get()),
            at("windows", |book| book.windows.get()),
            at("open", |book| book.open.get()),
            at("queue", |book| book.queued.get().saturating_sub(book.spooled.get())),
            at("spool", |book| book.spooled.get()),
        ]
        .concat()
    }

    fn oldest(&self, book: &BackendBook) -> f64 {
        match i64::try_from(book.oldest.get()).unwrap_or(0) {
            0 => 0.0,
            born => seconds(self.now.0.saturating_sub(born)).max(0.0),
        }
    }
}

fn by_reason(
    (kind, name): (&'static str, &str),
    label: &'static str,
    reasons: &Reasons,
    known: impl IntoIterator<Item = &'static str>,
) -> Vec<Sample<u64>> {
    let mut counts: BTreeMap<_, _> = known.into_iter().map(|reason| (reason, 0)).collect();
    counts.extend(reasons.counts());
    let labels = |reason: &str| vec![(kind, name.to_owned()), (label, reason.to_owned())];
    counts.into_iter().map(|(reason, count)| (labels(reason), count)).collect()
}

#[allow(clippy::cast_precision_loss)] // Gauges are doubles on the page.
const fn float(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss)] // A nanosecond more or less.
fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// Every metric. Names and labels never change; the order is that of a point's way.
const METRICS: &[Metric] = &[
    counter("pointsman_received_points_total", "Points parsed, by listener.", |view| {
        view.listeners(|book| book.received.get())
    }),
    counter(
        "pointsman_received_bytes_total",
        "Bytes read from sockets, HTTP bodies decompressed.",
        |view| view.listeners(|book| book.received_bytes.get()),
    ),
    counter(
        "pointsman_rejected_total",
        "Lines, items, bodies and connections refused, by reason.",
        |view| {
            let known = ParseError::ALL.iter().map(|reason| reason.label());
            view.listener_reasons("reason", |book| &book.rejected, known)
        },
    ),
    counter(
        "pointsman_kernel_dropped_datagrams_total",
        "Datagrams that the kernel threw away because the socket's buffer was full.",
        |view| view.listeners(|book| book.kernel_dropped.get()),
    ),
    counter(
        "pointsman_matched_points_total",
        "Points that at least one route took, by listener; received = matched + unmatched + denied.",
        |view| view.listeners(|book| book.routed.get()),
    ),
    counter("pointsman_unmatched_points_total", "Points that no route took.", |view| {
        view.listeners(|book| book.unmatched.get())
    }),
    counter("pointsman_denied_points_total", "Points that their sender may not write.", |view| {
        view.listeners(|book| book.denied.get())
    }),
    gauge("pointsman_connections", "Connections open now.", |view| {
        view.listeners(|book| float(book.connections.get()))
    }),
    counter("pointsman_routed_points_total", "Points that a route took.", |view| {
        let sample =
            |(name, count): &(String, Arc<Counter>)| (vec![("route", name.clone())], count.get());
        view.routes.iter().map(sample).collect()
    }),
    counter(
        "pointsman_handed_points_total",
        "Points that routes handed to a backend; handed + recovered - folded_points + folded_rows = delivered + dropped + held.",
        |view| view.backends(|book| book.handed.get()),
    ),
    counter(
        "pointsman_recovered_points_total",
        "Points of an earlier run that were found in the spool.",
        |view| view.backends(|book| book.recovered.get()),
    ),
    counter("pointsman_folded_points_total", "Points that closed windows had folded.", |view| {
        view.backends(|book| book.folded_points.get())
    }),
    counter(
        "pointsman_folded_rows_total",
        "Rows that closed windows made of the points they folded.",
        |view| view.backends(|book| book.folded_rows.get()),
    ),
    counter("pointsman_delivered_points_total", "Points that the backend took.", |view| {
        view.backends(|book| book.delivered.get())
    }),
    counter("pointsman_delivery_retries_total", "Attempts that had to be repeated.", |view| {
        view.backends(|book| book.retries.get())
    }),
    counter("pointsman_dropped_points_total", "Points given up, by reason.", |view| {
        view.backend_reasons("reason", |book| &book.dropped, KNOWN_DROPS)
    }),
    counter(
        "pointsman_lost_parts_total",
        "Parts of delivered points that the backend has no way to say, by reason.",
        |view| view.backend_reasons("reason", |book| &book.lost_parts, &["unrepresentable"]),
    ),
    gauge(
        "pointsman_held_points",
        "Points neither delivered nor dropped yet, by where they are.",
        View::held,
    ),
    gauge(
        "pointsman_queued_points",
        "Points in the queue, in memory or on disk, the payload in flight among them.",
        |view| view.backends(|book| float(book.queued.get())),
    ),
    gauge("pointsman_queued_bytes", "Bytes in the queue, in memory or on disk.", |view| {
        view.backends(|book| float(book.queued_bytes.get()))
    }),
    gauge(
        "pointsman_queue_oldest_seconds",
        "Age of the oldest payload in the queue; 0 when it is empty.",
        |view| view.backends(|book| view.oldest(book)),
    ),
    gauge("pointsman_aggregate_series", "Series held by the windows.", |view| {
        view.backends(|book| float(book.series.get()))
    }),
    counter(
        "pointsman_noticed_total",
        "Things noticed on the way that cost no point, by kind.",
        |view| {
            let mut noticed =
                view.listener_reasons("kind", |book| &book.noticed, ["unknown_field"]);
            noticed.extend(view.backend_reasons(
                "kind",
                |book| &book.noticed,
                &["time_moved", "name_collision", "spool_damaged"],
            ));
            noticed
        },
    ),
    counter("pointsman_reloads_total", "Configurations applied while running.", |view| {
        vec![(Vec::new(), view.reloads)]
    }),
    counter("pointsman_reload_failures_total", "Configurations refused while running.", |view| {
        vec![(Vec::new(), view.reloads_failed)]
    }),
    gauge("pointsman_build_info", "Always 1; the version is its label.", |_| {
        vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)]
    }),
    gauge("pointsman_uptime_seconds", "Since the gateway started.", |view| {
        vec![(Vec::new(), seconds(view.now.0.saturating_sub(view.started.0)))]
    }),
    gauge(
        "process_start_time_seconds",
        "When the gateway started, in seconds since 1970.",
        |view| vec![(Vec::new(), seconds(view.started.0))],
    ),
];

/// The reasons that any lane may have, shown with 0 so that an alert sees the first one.
const KNOWN_DROPS: &[&str] = &[
    "empty_name",
    "not_finite",
    "queue_full",
    "sample_limit",
    "series_limit",
    "shutdown",
    "spool_damaged",
    "too_large",
    "unrepresentable",
];

/// The recorder asks for it and ignores it.
const METADATA: Metadata<'static> = Metadata::new("pointsman", Level::INFO, None);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Samples by `name{labels}`, and the type by name; panics on a line that is neither.
    fn parse(page: &str) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        for line in page.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            } else if !line.starts_with("# HELP ") {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let name = key.split('{').next().unwrap();
                assert!(types.contains_key(name), "{name} has no type before it");
                let value = value.parse().unwrap();
                assert!(samples.insert(key.to_owned(), value).is_none(), "{key} twice");
            }
        }
        (samples, types)
    }

    fn opened() -> Arc<Books> {
        let books = Arc::new(Books::default());
        books.listener("statsd");
        books.backend("influx");
        books.route("a \"route\"\nwith\\marks");
        books
    }

    #[test]
    fn every_name_of_the_contract_is_there_from_the_start() {
        let (samples, types) = parse(&Telemetry::new(opened()).render());
        for key in [
            r#"pointsman_received_points_total{listener="statsd"}"#,
            r#"pointsman_received_bytes_total{listener="statsd"}"#,
            r#"pointsman_rejected_total{listener="statsd",reason="unknown_kind"}"#,
            r#"pointsman_kernel_dropped_datagrams_total{listener="statsd"}"#,
            r#"pointsman_routed_points_total{route="a \"route\"\nwith\\marks"}"#,
            r#"pointsman_unmatched_points_total{listener="statsd"}"#,
            r#"pointsman_delivered_points_total{backend="influx"}"#,
            r#"pointsman_delivery_retries_total{backend="influx"}"#,
            r#"pointsman_dropped_points_total{backend="influx",reason="queue_full"}"#,
            r#"pointsman_queued_points{backend="influx"}"#,
            r#"pointsman_queued_bytes{backend="influx"}"#,
            r#"pointsman_queue_oldest_seconds{backend="influx"}"#,
            r#"pointsman_aggregate_series{backend="influx"}"#,
            r#"pointsman_denied_points_total{listener="statsd"}"#,
            r#"pointsman_noticed_total{listener="statsd",kind="unknown_field"}"#,
            r#"pointsman_noticed_total{backend="influx",kind="time_moved"}"#,
            r#"pointsman_held_points{backend="influx",where="windows"}"#,
            r#"pointsman_connections{listener="statsd"}"#,
            r#"pointsman_lost_parts_total{backend="influx",reason="unrepresentable"}"#,
            "pointsman_reload_failures_total",
        ] {
            assert_eq!(samples.get(key), Some(&0.0), "{key}");
            let name = key.split('{').next().unwrap();
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(types[name], kind, "{name}");
        }
        assert!(samples.iter().any(|(key, value)| {
            key.starts_with("pointsman_build_info{version=\"") && *value == 1.0
        }));
    }

    #[test]
    fn a_page_says_what_the_books_say() {
        let books = opened();
        let telemetry = Telemetry::new(Arc::clone(&books));
        telemetry.render();
        books.listener("statsd").received.add(7);
        books.listener("statsd").rejected.add("body_too_large", 2);
        books.backend("influx").queued.add(9);
        books.backend("influx").queued.sub(4);
        books.backend("influx").dropped.add("queue_full", 3);
        books.backend("later").delivered.add(u64::from(u32::MAX));
        let (samples, _) = parse(&telemetry.render());
        for (key, value) in [
            (r#"pointsman_received_points_total{listener="statsd"}"#, 7.0),
            (r#"pointsman_rejected_total{listener="statsd",reason="body_too_large"}"#, 2.0),
            (r#"pointsman_queued_points{backend="influx"}"#, 5.0),
            (r#"pointsman_held_points{backend="influx",where="queue"}"#, 5.0),
            (r#"pointsman_dropped_points_total{backend="influx",reason="queue_full"}"#, 3.0),
            (r#"pointsman_delivered_points_total{backend="later"}"#, 4_294_967_295.0),
        ] {
            assert_eq!(samples.get(key), Some(&value), "{key}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ages_follow_the_clock() {
        let clock = Clock::starting_at(UnixNanos::from_secs(1_000));
        let books = opened();
        let telemetry = Telemetry::with_clock(Arc::clone(&books), clock);
        books.backend("influx").oldest.set(1_002_000_000_000);
        tokio::time::advance(Duration::from_millis(4_500)).await;
        let (samples, _) = parse(&telemetry.render());
        assert_eq!(samples[r#"pointsman_queue_oldest_seconds{backend="influx"}"#], 2.5);
        assert_eq!(samples["pointsman_uptime_seconds"], 4.5);
        assert_eq!(samples["process_start_time_seconds"], 1_000.0);
    }

    #[test]
    fn two_gateways_in_one_process_do_not_mix() {
        let (one, other) = (Telemetry::new(opened()), Telemetry::new(Arc::default()));
        one.render();
        assert!(!other.render().contains("statsd"));
    }

    #[test]
    fn a_page_has_an_order() {
        let telemetry =
            Telemetry::with_clock(opened(), Clock::Tokio { epoch: UnixNanos(1), start: far() });
        let page = telemetry.render();
        assert_eq!(page, telemetry.render());
        let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    /// A moment in the future, before which tokio's clock stands still.
    fn far() -> tokio::time::Instant {
        tokio::time::Instant::now() + Duration::from_secs(1 << 20)
    }
}
