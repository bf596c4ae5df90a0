//! What one lane does, with every default resolved.

use super::queue::Limits;
use super::{Config, Durability, Expire, Layout, OnDisk, WhenFull};
use std::time::Duration;

/// A backend's shared keys, resolved for its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The backend's name.
    pub name: String,
    /// Its kind; a metric label and a value of `kind`.
    pub kind: &'static str,
    /// Whether windows aggregate statsd kinds.
    pub aggregate: bool,
    /// The length of a window.
    pub flush: Duration,
    /// The longest an encoded point waits for its batch.
    pub wait: Duration,
    /// The percentiles of timers, in percent.
    pub percentiles: Vec<f64>,
    /// What a window's rows look like.
    pub layout: Layout,
    /// When idle series are forgotten.
    pub expire: Expire,
    /// How many series the windows hold at the most.
    pub max_series: u64,
    /// How many samples of a timer a window keeps as they came; beyond that it sketches them.
    pub timer_samples: usize,
    /// How many points fill a payload.
    pub batch_points: u32,
    /// How many bytes fill a payload.
    pub batch_bytes: usize,
    /// How many bytes the queue holds in memory.
    pub memory: usize,
    /// How many bytes the queue holds on disk; `None` keeps to memory.
    pub spool: Option<usize>,
    /// How many bytes of what the backend refused are kept; `None` drops it.
    pub dead_letters: Option<usize>,
    /// What the disk part survives.
    pub durability: Durability,
    /// What a full queue does.
    pub when_full: WhenFull,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// The first delay between attempts.
    pub retry_first: Duration,
    /// The longest delay between attempts; caps `Retry-After` too.
    pub retry_max: Duration,
    /// How long a backend may fail at a payload before it is seen whether it takes others.
    pub suspect_after: Duration,
    /// How many attempts run side by side; 1 keeps order.
    pub concurrency: u32,
    /// Whether points without a time get that of their arrival; only a relay of statsd lines
    /// leaves them without.
    pub stamp: bool,
    /// Whether a second point of a series in the same nanosecond is moved on by one.
    pub unique_times: bool,
    /// Whether a row takes the place of an earlier one of the same series and time there, so that
    /// a window goes on after a restart. Attempts that overtake each other could turn them round.
    pub replaces: bool,
    /// In how many parts the receiving workers share the windows.
    pub shards: usize,
}

impl Settings {
    /// Resolves what a configuration left out.
    pub fn new(name: &str, kind: &'static str, config: &Config) -> Self {
        let relay = kind == "statsd";
        let database = matches!(kind, "influxdb" | "store");
        let aggregate = !relay && config.aggregate.unwrap_or(database);
        let window = if aggregate { WINDOW } else { BATCH_WAIT };
        let flush = config.flush.map_or(window, |flush| flush.0).max(SHORTEST);
        Self {
            name: name.to_owned(),
            kind,
            aggregate,
            flush,
            wait: if aggregate { flush.min(BATCH_WAIT) } else { flush },
            percentiles: config.percentiles.clone().unwrap_or_else(|| usual(config.layout)),
            layout: config.layout,
            expire: config.expire,
            max_series: config.max_series.unwrap_or(MAX_SERIES),
            timer_samples: config.timer_samples.map_or(TIMER_SAMPLES, |samples| samples as usize),
            batch_points: config.batch.points.unwrap_or(BATCH_POINTS).max(1),
            batch_bytes: config.batch.bytes.map_or(BATCH_BYTES, |size| size.bytes()).max(1),
            memory: config.memory.map_or(MEMORY, |size| size.bytes()),
            spool: spool(kind, config.spool),
            dead_letters: dead_letters(kind, config),
            durability: config.durability,
            when_full: config.when_full,
            timeout: config.timeout.map_or(TIMEOUT, |timeout| timeout.0).max(SHORTEST),
            retry_first: config.retry.first.map_or(RETRY_FIRST, |first| first.0).max(SHORTEST),
            retry_max: config.retry.max.map_or(RETRY_MAX, |max| max.0).max(SHORTEST),
            suspect_after: config.retry.suspect_after.map_or(SUSPECT_AFTER, |after| after.0),
            concurrency: config.concurrency.unwrap_or(1).max(1),
            stamp: !relay,
            unique_times: kind == "influxdb",
            replaces: aggregate && database && config.concurrency.is_none_or(|many| many <= 1),
            shards: SHARDS,
        }
    }
}

impl Settings {
    /// Whether the backend is the disk here, so that nothing of it may be away.
    pub(super) fn is_on_disk(&self) -> bool {
        self.kind == "store"
    }

    pub(super) fn limits(&self) -> Limits {
        // What the store has is kept, and nothing else of it.
        let keeps = self.spool.is_some() || self.is_on_disk();
        Limits { memory: self.memory, disk: self.spool, keeps, when_full: self.when_full }
    }
}

/// Backends that may be away have a spool; the others are where the gateway is.
fn spool(kind: &str, config: Option<OnDisk>) -> Option<usize> {
    match config {
        Some(OnDisk::Off) => None,
        Some(OnDisk::On(spool)) => Some(spool.max_size.map_or(SPOOL, |size| size.bytes())),
        None => matches!(kind, "influxdb" | "statsd").then_some(SPOOL),
    }
}

/// By default where the disk is used anyway: a backend without a spool was to leave it alone.
fn dead_letters(kind: &str, config: &Config) -> Option<usize> {
    match config.dead_letters {
        Some(OnDisk::Off) => None,
        Some(OnDisk::On(letters)) => {
            Some(letters.max_size.map_or(DEAD_LETTERS, |size| size.bytes()))
        }
        None => (kind == "store" || spool(kind, config.spool).is_some()).then_some(DEAD_LETTERS),
    }
}

fn usual(layout: Layout) -> Vec<f64> {
    match layout {
        Layout::Fields => vec![50.0, 90.0, 95.0, 99.0],
        Layout::Statsd => vec![90.0],
    }
}

const WINDOW: Duration = Duration::from_secs(10);
const BATCH_WAIT: Duration = Duration::from_secs(1);
const MAX_SERIES: u64 = 1_000_000;
/// What is sorted in about half a millisecond: 3,200 a second of one timer in the usual window.
const TIMER_SAMPLES: usize = 32_768;
const BATCH_POINTS: u32 = 5000;
const BATCH_BYTES: usize = 1 << 20;
const MEMORY: usize = 64 << 20;
const SPOOL: usize = 1 << 30;
const DEAD_LETTERS: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);
const SUSPECT_AFTER: Duration = Duration::from_secs(60);
/// Zero would turn a timer into a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);
/// As many receiving sockets as a small machine runs; more workers share them in turn.
const SHARDS: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::SpoolConfig;
    use super::*;
    use crate::units::{Size, Span};

    #[test]
    fn databases_aggregate_and_relays_never_do() {
        for (kind, asked, aggregate, flush, wait) in [
            ("influxdb", None, true, 10, 1),
            ("store", None, true, 10, 1),
            ("influxdb", Some(false), false, 1, 1),
            ("stdout", None, false, 1, 1),
            ("stdout", Some(true), true, 10, 1),
            ("blackhole", None, false, 1, 1),
            ("statsd", None, false, 1, 1),
            ("statsd", Some(true), false, 1, 1),
        ] {
            let settings =
                Settings::new("b", kind, &Config { aggregate: asked, ..Config::default() });
            let got = (settings.aggregate, settings.flush.as_secs(), settings.wait.as_secs());
            assert_eq!(got, (aggregate, flush, wait), "{kind} {asked:?}");
        }
    }

    #[test]
    fn without_windows_flush_is_the_wait_for_a_batch() {
        let config = Config { flush: Some(Span::millis(200)), ..Config::default() };
        assert_eq!(Settings::new("b", "stdout", &config).wait, Duration::from_millis(200));
        assert_eq!(Settings::new("b", "store", &config).flush, Duration::from_millis(200));
    }

    #[test]
    fn dead_letters_are_kept_where_the_disk_is_used() {
        let on = |mib| Some(OnDisk::On(SpoolConfig { max_size: Some(Size::mib(mib)) }));
        let usual = Some(64 << 20);
        for (kind, spool, letters, expected) in [
            ("influxdb", None, None, usual),
            ("influxdb", Some(OnDisk::Off), None, None),
            ("influxdb", Some(OnDisk::Off), on(1), Some(1 << 20)),
            ("influxdb", None, Some(OnDisk::Off), None),
            ("influxdb", None, Some(OnDisk::On(SpoolConfig::default())), usual),
            ("statsd", None, None, usual),
            ("store", None, None, usual),
            ("store", None, Some(OnDisk::Off), None),
            ("stdout", None, None, None),
            ("stdout", on(64), None, usual),
            ("blackhole", None, None, None),
        ] {
            let config = Config { spool, dead_letters: letters, ..Config::default() };
            assert_eq!(
                Settings::new("b", kind, &config).dead_letters,
                expected,
                "{kind} {config:?}"
            );
        }
    }

    #[test]
    fn percentiles_follow_the_layout() {
        let statsd = Config { layout: Layout::Statsd, ..Config::default() };
        assert_eq!(Settings::new("b", "influxdb", &statsd).percentiles, [90.0]);
        assert_eq!(
            Settings::new("b", "influxdb", &Config::default()).percentiles,
            [50.0, 90.0, 95.0, 99.0]
        );
    }
}
