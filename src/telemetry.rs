//! The metrics page: the books under the names that the outside relies on.
//!
//! One [`table`] says every name, its labels, its help and where its value comes from. Nothing is
//! counted here: workers write in the [books](crate::books), and a scrape copies them out. So
//! the page and the ledger never disagree, and several gateways in one process do not mix, since
//! the recorder is never installed as the global one.
//!
//! Every listener, backend and route shows each of its series from the start, with 0. Refusals
//! and drops start with the reasons that are known beforehand; others appear once they happen.

mod table;
mod view;

use crate::books::Books;
use crate::clock::Clock;
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use protocols::UnixNanos;
use std::fmt;
use std::sync::Arc;
use table::{METRICS, Read};
use view::{Labels, Sample, View};

/// Renders the books of one gateway.
pub struct Telemetry {
    books: Arc<Books>,
    clock: Clock,
    started: UnixNanos,
}

impl Telemetry {
    /// For these books, with the system's clock; the uptime begins now.
    pub fn new(books: Arc<Books>) -> Self {
        Self::with_clock(books, Clock::System)
    }

    /// For these books, with a clock of one's own.
    pub fn with_clock(books: Arc<Books>, clock: Clock) -> Self {
        Self { books, clock, started: clock.now() }
    }

    /// The page, in Prometheus' text format 0.0.4; see [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let view = View::of(&self.books, self.started, self.clock.now());
        // A recorder never forgets, and a page tells only of what there still is.
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in METRICS {
            let (name, help) = (KeyName::from_const_str(metric.name), metric.help.into());
            match metric.read {
                Read::Counter(read) => {
                    recorder.describe_counter(name, None, help);
                    copy_counter(&recorder, metric.name, read(&view));
                }
                Read::Gauge(read) => {
                    recorder.describe_gauge(name, None, help);
                    copy_gauge(&recorder, metric.name, read(&view));
                }
            }
        }
        sorted(&recorder.handle().render())
    }
}

fn copy_counter(recorder: &PrometheusRecorder, name: &'static str, samples: Vec<Sample<u64>>) {
    for (labels, value) in samples {
        recorder.register_counter(&key(name, labels), &METADATA).absolute(value);
    }
}

fn copy_gauge(recorder: &PrometheusRecorder, name: &'static str, samples: Vec<Sample<f64>>) {
    for (labels, value) in samples {
        recorder.register_gauge(&key(name, labels), &METADATA).set(value);
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

/// The recorder asks for it and ignores it.
const METADATA: Metadata<'static> = Metadata::new("pointsman", Level::INFO, None);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
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
