//! Windows across processes: a lane ends, and another one begins with what it has left on disk.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// One gateway after the other on the same data directory, with the same backend and clock.
struct Host {
    data: TempDir,
    record: Record,
    clock: Clock,
}

/// A lane of one process.
struct Run {
    lane: Lane,
    running: Running,
    state: Arc<State>,
    clock: Clock,
}

impl Host {
    fn new() -> Self {
        let clock = Clock::starting_at(UnixNanos::from_millis(1_000_300));
        Self { data: tempfile::tempdir().unwrap(), record: Record::default(), clock }
    }

    fn start(&self, kind: &'static str, config: &str) -> Run {
        let settings = settings(kind, config);
        let state = State::new(Arc::default(), settings.shards);
        state.open_windows(&settings, self.data.path(), self.clock.now());
        let (lane, running) = start(settings, &state, &self.record, self.clock, |_| {});
        Run { lane, running, state, clock: self.clock }
    }

    fn file(&self) -> PathBuf {
        self.data.path().join("windows/b.snapshot")
    }

    /// What a database holds that keeps one row for each series and time.
    fn rows(&self) -> BTreeMap<String, String> {
        let row = |line: String| {
            let fields = line.match_indices(' ').nth(1).unwrap().0;
            (line[..fields].to_owned(), line[fields + 1..].to_owned())
        };
        self.record.lines().into_iter().map(row).collect()
    }

    /// Each row as one text, in order.
    fn texts(&self) -> Vec<String> {
        self.rows().into_iter().map(|(place, fields)| format!("{place} {fields}")).collect()
    }
}

impl Run {
    fn send(&self, fill: impl FnOnce(&mut Points)) {
        send(&self.lane, self.clock, 0, fill);
    }

    fn count(&self, name: &str, delta: f64) {
        self.send(|points| count(points, name, delta));
    }

    fn measure(&self, name: &str, measure: Measure<'_>) {
        self.send(|points| points.begin(name).finish(measure, None, ""));
    }

    async fn stop(mut self) -> Arc<State> {
        drop(self.lane);
        self.running.drained().await;
        balanced(&self.state.book);
        assert_eq!(self.state.book.held(), 0);
        self.state
    }

    /// As a kill does: nothing is written, nothing remembered.
    async fn kill(mut self) {
        self.running.abandon().await;
    }
}

async fn secs(secs: u64) {
    sleep(Duration::from_secs(secs)).await;
}

#[tokio::test(start_paused = true)]
async fn a_window_holds_what_came_before_and_after_a_restart() {
    let host = Host::new();
    let run = host.start("influxdb", "percentiles = []");
    let timing = |ms, rate| Measure::Timing { ms, rate };
    run.count("c", 1.5);
    run.measure("t", timing(10.0, 0.5));
    run.measure("s", Measure::Set("a"));
    run.measure("g", Measure::Gauge(5.0));
    run.count("alone", 7.0);
    run.stop().await;
    secs(3).await;
    assert_eq!(host.rows()["c 1010000000000"], "count=1.5 rate=0.15");
    let run = host.start("influxdb", "percentiles = []");
    run.count("c", 2.0);
    run.measure("t", timing(40.0, 1.0));
    run.measure("s", Measure::Set("b"));
    run.measure("s", Measure::Set("a"));
    run.measure("g", Measure::GaugeShift(1.0));
    run.count("late", 1.0);
    let before = host.record.lines().len();
    secs(7).await;
    assert_eq!(host.record.lines().len(), before + 5, "`alone` is not written again");
    let expected = [
        "alone 1010000000000 count=7 rate=0.7",
        "c 1010000000000 count=3.5 rate=0.35",
        "g 1010000000000 value=6",
        "late 1010000000000 count=1 rate=0.1",
        "s 1010000000000 count=2",
        "t 1010000000000 count=3 rate=0.3 sum=60 mean=20 lower=10 upper=40 median=10 \
         stddev=14.142135623730951",
    ];
    assert_eq!(host.texts(), expected);
    run.count("c", 1.0);
    let state = run.stop().await;
    assert_eq!(host.rows()["c 1020000000000"], "count=1 rate=0.1", "the next one is another one");
    assert_eq!(state.book.folded_points.get(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_window_survives_any_number_of_restarts() {
    let host = Host::new();
    for n in 1..=5 {
        let run = host.start("influxdb", "");
        run.count("c", 1.0);
        if n % 2 == 0 {
            run.count("even", 1.0);
        }
        run.stop().await;
        secs(1).await;
        assert_eq!(host.rows()["c 1010000000000"], format!("count={n} rate=0.{n}"));
    }
    assert_eq!(host.rows()["even 1010000000000"], "count=2 rate=0.2");
    assert_eq!(host.rows().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn gauge_restart() {
    for kind in ["influxdb", "stdout"] {
        let host = Host::new();
        let aggregate = "aggregate = true";
        let run = host.start(kind, aggregate);
        run.measure("conn", Measure::GaugeShift(10.0));
        secs(10).await;
        run.stop().await;
        secs(60).await;
        let run = host.start(kind, aggregate);
        run.measure("conn", Measure::GaugeShift(-1.0));
        secs(10).await;
        assert_eq!(host.rows()["conn 1080000000000"], "value=9", "{kind}");
        assert_eq!(host.rows().len(), 2, "{:?}", host.texts());
        secs(10).await;
        assert_eq!(host.rows()["conn 1090000000000"], "value=9", "it is repeated");
        run.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_whose_end_has_passed_is_over() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.count("c", 1.0);
    run.stop().await;
    secs(10).await;
    let run = host.start("influxdb", "");
    run.count("c", 2.0);
    run.stop().await;
    let expected = ["c 1010000000000 count=1 rate=0.1", "c 1020000000000 count=2 rate=0.2"];
    assert_eq!(host.texts(), expected);
}

#[tokio::test(start_paused = true)]
async fn idle_series_expire_as_if_there_had_been_no_restart() {
    let host = Host::new();
    let config = "expire = { counter = \"30s\" }";
    let run = host.start("influxdb", config);
    run.count("c", 1.0);
    secs(10).await;
    run.stop().await;
    secs(10).await;
    let run = host.start("influxdb", config);
    assert_eq!(run.state.book.series.get(), 1);
    secs(60).await;
    assert_eq!(run.state.book.series.get(), 0);
    run.stop().await;
    let times: Vec<_> = host.rows().into_keys().collect();
    assert_eq!(times, ["c 1010000000000", "c 1030000000000", "c 1040000000000"]);
}

#[tokio::test(start_paused = true)]
async fn kinds_of_one_name_keep_the_rows_they_had() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.count("k", 1.0);
    run.measure("k", Measure::Gauge(1.0));
    run.stop().await;
    let run = host.start("influxdb", "");
    run.measure("k", Measure::Set("m"));
    run.measure("k", Measure::Gauge(2.0));
    secs(10).await;
    let expected =
        ["k 1010000000000 count=1 rate=0.1", "k 1010000000001 value=2", "k 1010000000002 count=1"];
    assert_eq!(host.texts(), expected);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_layout_of_statsd_goes_on_too() {
    let host = Host::new();
    for _ in 0..2 {
        let run = host.start("influxdb", "layout = \"statsd\"\nexpire = { gauge = \"0s\" }");
        run.count("a b", 1.0);
        run.measure("a b", Measure::GaugeShift(1.0));
        run.measure("t", Measure::Histogram { value: 3.0, rate: 1.0 });
        run.stop().await;
    }
    let rows = host.rows();
    for (row, value) in [
        ("stats.counters.a_b.count", "2"),
        ("stats.counters.a_b.rate", "0.2"),
        ("stats.gauges.a_b", "2"),
        ("stats.timers.t.count", "2"),
        ("stats.timers.t.sum_90", "6"),
    ] {
        assert_eq!(rows[&format!("{row} 1010000000000")], value, "{row}");
    }
    let run = host.start("influxdb", "");
    run.count("a_b", 1.0);
    run.stop().await;
    let row = &host.rows()["a_b 1010000000000"];
    assert_eq!(row, "count=1 rate=0.1", "another layout has other rows");
}

#[tokio::test(start_paused = true)]
async fn where_rows_are_not_replaced_none_is_written_twice() {
    for (kind, config) in [("stdout", "aggregate = true"), ("influxdb", "concurrency = 2")] {
        let host = Host::new();
        for _ in 0..3 {
            let run = host.start(kind, config);
            run.count("c", 1.0);
            run.stop().await;
            secs(1).await;
        }
        let expected = [
            "c 1000300000000 count=1 rate=0.1",
            "c 1001300000000 count=1 rate=0.1",
            "c 1002300000000 count=1 rate=0.1",
        ];
        assert_eq!(host.record.lines(), expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_windows_lose_and_repeat_nothing() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.count("c", 1.0);
    run.stop().await;
    let run = host.start("influxdb", "flush = \"5s\"");
    run.count("c", 2.0);
    secs(5).await;
    run.count("c", 4.0);
    secs(5).await;
    run.stop().await;
    let expected = ["c 1005000000000 count=2 rate=0.4", "c 1010000000000 count=5 rate=1"];
    assert_eq!(host.texts(), expected);
}

#[tokio::test(start_paused = true)]
async fn damaged_snapshots_are_set_aside_and_overwrite_nothing() {
    for spoil in [
        (|bytes: &mut Vec<u8>| bytes[8] ^= 1) as fn(&mut Vec<u8>),
        |bytes| bytes.truncate(bytes.len() / 2),
        Vec::clear,
        |bytes| *bytes = b"[backends]\n".to_vec(),
        // A later version, whole in itself.
        |bytes| {
            bytes.truncate(bytes.len() - 4);
            bytes[5] = 2;
            let mut sum = flate2::Crc::new();
            sum.update(bytes);
            bytes.extend(sum.sum().to_le_bytes());
        },
    ] {
        let host = Host::new();
        let run = host.start("influxdb", "");
        run.count("c", 1.0);
        run.measure("g", Measure::Gauge(10.0));
        run.stop().await;
        let mut bytes = fs::read(host.file()).unwrap();
        spoil(&mut bytes);
        fs::write(host.file(), &bytes).unwrap();
        let run = host.start("influxdb", "");
        assert_eq!(run.state.book.noticed.counts(), [("snapshot_damaged", 1)]);
        assert_eq!(fs::read(host.file().with_extension("snapshot.damaged")).unwrap(), bytes);
        assert!(!host.file().exists());
        run.count("c", 2.0);
        run.measure("g", Measure::GaugeShift(1.0));
        secs(10).await;
        let expected = [
            "c 1010000000000 count=1 rate=0.1",
            "c 1010000000001 count=2 rate=0.2",
            "g 1010000000000 value=10",
            "g 1010000000001 value=1",
        ];
        assert_eq!(host.texts(), expected);
        run.stop().await;
        assert!(host.file().exists());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_remembered_ends_as_if_there_were_no_later() {
    let host = Host::new();
    // Not even the owner of everything can make a directory where a file is.
    fs::write(host.data.path().join("windows"), "").unwrap();
    for round in 1..=2 {
        let run = host.start("influxdb", "");
        run.count("c", 1.0);
        let state = run.stop().await;
        let noticed = state.book.noticed.counts();
        assert!(noticed.contains(&("snapshot_failed", 1)), "{round}: {noticed:?}");
        secs(1).await;
    }
    assert_eq!(host.rows().into_keys().collect::<Vec<_>>(), ["c 1000300000000", "c 1001300000000"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_that_cannot_be_remembered_overwrites_nothing() {
    let host = Host::new();
    for delta in [1.0, 2.0, 4.0] {
        let run = host.start("influxdb", "");
        run.count("c", delta);
        if delta == 2.0 {
            fs::create_dir(host.file().with_extension("snapshot.new")).unwrap();
        } else if delta == 4.0 {
            fs::remove_dir(host.file().with_extension("snapshot.new")).unwrap();
        }
        run.stop().await;
    }
    let expected = ["c 1010000000000 count=3 rate=0.3", "c 1010000000001 count=4 rate=0.4"];
    assert_eq!(host.texts(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_was_cut_short_overwrites_nothing_and_keeps_gauges() {
    let host = Host::new();
    for delta in [1.0, 2.0] {
        let run = host.start("influxdb", "");
        run.count("c", delta);
        run.measure("g", Measure::GaugeShift(1.0));
        run.stop().await;
    }
    fs::write(host.file().with_extension("snapshot.new"), "half of it").unwrap();
    let run = host.start("influxdb", "");
    assert_eq!(run.state.book.noticed.counts(), [("snapshot_damaged", 1)]);
    run.count("c", 4.0);
    run.measure("g", Measure::GaugeShift(1.0));
    run.stop().await;
    let expected = [
        "c 1010000000000 count=3 rate=0.3",
        "c 1010000000001 count=4 rate=0.4",
        "g 1010000000000 value=2",
        "g 1010000000001 value=3",
    ];
    assert_eq!(host.texts(), expected);
    let run = host.start("influxdb", "");
    assert_eq!(run.state.book.noticed.counts(), []);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_costs_only_what_came_since() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.count("c", 1.0);
    run.measure("g", Measure::Gauge(10.0));
    run.stop().await;
    let run = host.start("influxdb", "");
    run.count("c", 2.0);
    run.kill().await;
    let run = host.start("influxdb", "");
    run.count("c", 4.0);
    secs(10).await;
    assert_eq!(host.rows()["c 1010000000000"], "count=5 rate=0.5");
    run.kill().await;
    let run = host.start("influxdb", "");
    run.count("c", 8.0);
    run.measure("g", Measure::GaugeShift(1.0));
    secs(10).await;
    assert_eq!(host.rows()["c 1010000000000"], "count=5 rate=0.5");
    assert_eq!(host.rows()["c 1020000000000"], "count=8 rate=0.8");
    assert_eq!(host.rows()["g 1020000000000"], "value=11");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_costs_gauges_a_minute_at_the_most() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.measure("g", Measure::Gauge(10.0));
    secs(70).await;
    let file = host.file();
    while !file.exists() {
        sleep(Duration::from_millis(1)).await;
    }
    run.measure("g", Measure::Gauge(20.0));
    secs(10).await;
    run.kill().await;
    let run = host.start("influxdb", "");
    run.measure("g", Measure::GaugeShift(1.0));
    run.stop().await;
    assert_eq!(host.rows()["g 1090000000000"], "value=11");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_comes_back_in_the_same_process_goes_on() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    run.count("c", 1.0);
    let state = run.stop().await;
    let settings = settings("influxdb", "");
    state.open_windows(&settings, host.data.path(), host.clock.now());
    let (lane, running) = start(settings, &state, &host.record, host.clock, |_| {});
    let run = Run { lane, running, state, clock: host.clock };
    run.count("c", 2.0);
    run.stop().await;
    assert_eq!(host.texts(), ["c 1010000000000 count=3 rate=0.3"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_up_has_places_and_no_more() {
    let host = Host::new();
    let run = host.start("influxdb", "");
    for n in 0..10 {
        run.measure(&format!("g{n}"), Measure::Gauge(1.0));
    }
    run.stop().await;
    secs(10).await;
    let run = host.start("influxdb", "max_series = 4");
    assert_eq!(run.state.book.series.get(), 4);
    run.count("new", 1.0);
    assert_eq!(dropped(&run.state.book, "series_limit"), 1);
    run.stop().await;
}

/// What happens to a gateway in a test.
#[derive(Clone, Debug)]
enum Event {
    Point { name: usize, kind: usize, value: i32 },
    Pass { millis: u64 },
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0usize..3, 0usize..5, -50i32..50)
            .prop_map(|(name, kind, value)| Event::Point { name, kind, value }),
        1 => (0u64..3500).prop_map(|half| Event::Pass { millis: half * 2 }),
        1 => Just(Event::Restart),
    ]
}

async fn play(events: &[Event], config: &str, restarts: bool) -> BTreeMap<String, String> {
    let host = Host::new();
    let mut run = host.start("influxdb", config);
    // So that nothing happens in the very instant in which a window ends, where either is right.
    sleep(Duration::from_millis(1)).await;
    for event in events {
        match *event {
            Event::Pass { millis } => sleep(Duration::from_millis(millis)).await,
            Event::Restart if restarts => {
                run.stop().await;
                run = host.start("influxdb", config);
            }
            Event::Restart => {}
            Event::Point { name, kind, value } => {
                let (name, member) = (["a", "b", "c/d"][name], value.to_string());
                let value = f64::from(value);
                run.measure(
                    name,
                    match kind {
                        0 => Measure::Count { delta: value, rate: 0.5 },
                        1 => Measure::Gauge(value),
                        2 => Measure::GaugeShift(value),
                        3 => Measure::Timing { ms: value.abs(), rate: 0.25 },
                        _ => Measure::Set(&member),
                    },
                );
            }
        }
    }
    run.stop().await;
    host.rows()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A database holds the same rows at the end, however often the gateway was restarted.
    #[test]
    fn restarts_leave_no_trace(
        events in prop::collection::vec(event(), 1..60),
        layout in prop_oneof![Just("fields"), Just("statsd")],
    ) {
        let config = format!("layout = \"{layout}\"\nexpire = {{ counter = \"20s\" }}");
        let runtime = || tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let once = runtime().block_on(play(&events, &config, false));
        let often = runtime().block_on(play(&events, &config, true));
        prop_assert_eq!(once, often);
    }
}
