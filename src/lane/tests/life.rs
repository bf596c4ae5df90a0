//! A lane that is full, is followed by another, or ends; and the books, whatever happens.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_full_inbox_drops_the_newest_batch() {
    let bench = Bench::new(settings("stdout", ""), |_| {});
    for n in 0..100 {
        bench.send(0, |points| reading(points, "r", n, Some(n)));
    }
    let book = bench.book();
    assert_eq!(bench.end().await.len(), 64);
    assert_eq!(book.dropped.counts(), [("inbox_full", 36)]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_refuses_while_what_is_on_its_way_still_finds_room() {
    let config = "memory = \"8KiB\"\nwhen_full = \"refuse\"\nbatch = { points = 1 }";
    let bench = Bench::new(settings("stdout", config), |ship| {
        ship.takes = Duration::from_secs(9);
    });
    let mut sent = 0;
    while !bench.lane.refusing() {
        bench.send(0, |points| reading(points, "r", sent, Some(sent)));
        sent += 1;
        tokio::task::yield_now().await;
    }
    assert!(sent > 5);
    bench.send(0, |points| reading(points, "r", sent, Some(sent)));
    let book = bench.book();
    assert_eq!(bench.end().await.len() as i64, sent + 1);
    assert_eq!(book.dropped.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_successor_takes_window_and_queue_over() {
    let mut old = Bench::new(settings("influxdb", "flush = \"1s\""), |ship| {
        ship.takes = Duration::from_secs(3);
    });
    old.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("g").finish(Measure::Gauge(4.0), None, "");
    });
    sleep(Duration::from_secs(1)).await;
    old.send(0, |points| {
        count(points, "c", 2.0);
        reading(points, "raw", 1, Some(1));
    });
    let successor = settings("influxdb", "flush = \"10s\"");
    let (lane, running) = start(successor, &old.state, &old.record, old.clock, |_| {});
    old.running.hand_over();
    drop(std::mem::replace(&mut old.lane, lane));
    old.running.drained().await;
    old.send(1, |points| {
        count(points, "c", 3.0);
        points.begin("g").finish(Measure::GaugeShift(1.0), None, "");
    });
    old.running = running;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        old.end().await,
        [
            "c 1001000000000 count=1 rate=1",
            "g 1001000000000 value=4",
            "raw 1000000000 1",
            "c 1010000000000 count=5 rate=0.5",
            "g 1010000000000 value=5",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_successor_without_windows_empties_those_it_finds() {
    let mut old = Bench::new(settings("stdout", "aggregate = true"), |_| {});
    old.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("g").finish(Measure::Gauge(4.0), None, "");
    });
    let plain = settings("stdout", "");
    let (lane, running) = start(plain, &old.state, &old.record, old.clock, |_| {});
    drop(std::mem::replace(&mut old.lane, lane));
    old.running.drained().await;
    old.running = running;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(old.record.lines(), ["c 1001000000000 count=1 rate=1", "g 1001000000000 value=4"]);
    assert_eq!(old.book().series.get(), 0);
    old.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_what_is_lost() {
    let bench = Bench::new(settings("influxdb", ""), |ship| ship.takes = Duration::from_secs(60));
    bench.send(0, |points| {
        reading(points, "queued", 1, Some(1));
    });
    sleep(Duration::from_secs(2)).await;
    bench.send(0, |points| reading(points, "open", 1, Some(1)));
    tokio::task::yield_now().await;
    bench.send(0, |points| {
        count(points, "window", 1.0);
        count(points, "window", 1.0);
        reading(points, "inbox", 1, Some(1));
    });
    let book = bench.book();
    let held = [&book.queued, &book.open, &book.windows, &book.inbox].map(|gauge| gauge.get());
    assert_eq!(held, [1, 1, 2, 1]);
    let Bench { lane, mut running, .. } = bench;
    drop(lane);
    assert_eq!(running.abandon().await, 5);
    assert_eq!((book.held(), dropped(&book, "shutdown")), (0, 5));
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn shippers_side_by_side() {
    let clock = Clock::starting_at(UnixNanos(0));
    let state = State::new(Arc::default(), 1);
    let record = Record::default();
    let ships = (0..2).map(|_| {
        let takes = Duration::from_secs(5);
        Box::new(Scripted { takes, ..Scripted::new(&record) }) as Box<dyn Ship>
    });
    let plain = settings("stdout", "batch = { points = 1 }");
    let (lane, mut running) =
        spawn_many(plain, Arc::clone(&state), Box::new(Lines), ships.collect(), clock);
    send(&lane, clock, 0, |points| (0..4).for_each(|n| reading(points, "r", n, Some(n))));
    sleep(Duration::from_millis(5001)).await;
    assert_eq!(record.lines().len(), 2);
    drop(lane);
    running.drained().await;
    assert_eq!(record.lines().len(), 4);
    balanced(&state.book);
}

#[tokio::test(start_paused = true)]
async fn the_classic_layout_merges_names_and_kinds_of_samples() {
    let bench = Bench::new(settings("influxdb", "layout = \"statsd\""), |_| {});
    bench.send(0, |points| {
        count(points, "a b", 1.0);
        count(points, "a_b", 2.0);
        points.begin("t").finish(Measure::Timing { ms: -1.0, rate: 1.0 }, None, "");
        points.begin("t").finish(Measure::Histogram { value: 1.0, rate: 0.5 }, None, "");
        points.begin("t").finish(Measure::Timing { ms: 2.0, rate: 1.0 }, None, "");
    });
    let book = bench.book();
    let lines = bench.end().await;
    let of = |name: &str| {
        let prefix = format!("{name} 1000300000000 ");
        lines.iter().filter_map(|line| line.strip_prefix(&prefix)).collect::<Vec<_>>()
    };
    assert_eq!(of("stats.counters.a_b.count"), ["3"]);
    assert_eq!(of("stats.timers.t.count"), ["3"]);
    assert_eq!(of("stats.timers.t.mean"), ["1.5"]);
    assert_eq!(of("stats.timers.t.upper_90"), ["2"]);
    assert_eq!(book.dropped.counts(), [("unrepresentable", 1)]);
}

/// Workers that race with windows of a millisecond: nothing is lost or counted twice, and no
/// series gets two rows for one edge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_race_with_the_windows() {
    const WORKERS: usize = 4;
    const BATCHES: usize = 200;
    let record = Record::default();
    let state = State::new(Arc::default(), WORKERS);
    let windows = settings("store", "flush = \"1ms\"");
    let (lane, mut running) = start(windows, &state, &record, Clock::System, |_| {});
    let workers = (0..WORKERS).map(|worker| {
        let lane = lane.clone();
        tokio::task::spawn_blocking(move || {
            for _ in 0..BATCHES {
                send(&lane, Clock::System, worker, |points| {
                    (0..40).for_each(|n| count(points, &format!("c{}", n % 8), 1.0));
                });
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    drop(lane);
    running.drained().await;
    let lines = record.lines();
    let total: u64 = lines.iter().map(|line| value(line, "count=")).sum();
    assert_eq!(total, (WORKERS * BATCHES * 40) as u64);
    let places = lines.iter().map(|line| line.split(" count=").next().unwrap());
    assert_eq!(places.collect::<std::collections::BTreeSet<_>>().len(), lines.len());
    balanced(&state.book);
    assert_eq!(state.book.folded_points.get(), total);
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let detail = String::new;
    prop_oneof![
        Just(Outcome::Delivered),
        Just(again(None)),
        Just(again(Some(3))),
        Just(failure()),
        Just(Outcome::Divide { reason: TOO_LARGE, detail: detail() }),
        Just(Outcome::Divide { reason: "rejected", detail: detail() }),
        Just(Outcome::Rejected { reason: "rejected", detail: detail() }),
        (0u32..9).prop_map(move |rejected| {
            Outcome::Partial { rejected, reason: "partial", detail: detail() }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the backend answers and whenever the lane ends, every point is accounted for.
    #[test]
    fn the_books_balance(
        script in prop::collection::vec(outcome(), 0..30),
        batches in prop::collection::vec((0usize..4, 1i64..40, 0u64..1500), 1..30),
        kind in prop_oneof![Just("stdout"), Just("influxdb")],
        when_full in prop_oneof![Just("drop_oldest"), Just("drop_newest"), Just("refuse")],
        patience in prop_oneof![Just(0u64), Just(7), Just(100_000)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let config = format!(
            "flush = \"1s\"\nmemory = \"2KiB\"\nmax_series = 20\nwhen_full = \"{when_full}\"\n\
             batch = {{ points = 7, bytes = \"300B\" }}\nretry = {{ suspect_after = \"1s\" }}",
        );
        runtime.block_on(async {
            let bench = Bench::new(settings(kind, &config), |ship| {
                ship.script = script.into();
                ship.idempotent = kind == "influxdb";
                ship.takes = Duration::from_millis(300);
            });
            let book = bench.book();
            for (worker, size, pause) in batches {
                bench.send(worker, |points| (0..size).for_each(|n| match n % 3 {
                    0 => count(points, &format!("c{n}"), 1.0),
                    1 => reading(points, "r", n, Some(n)),
                    _ => points.begin("g").finish(Measure::GaugeShift(1.0), None, ""),
                }));
                balanced(&book);
                sleep(Duration::from_millis(pause)).await;
                balanced(&book);
            }
            let Bench { lane, mut running, .. } = bench;
            drop(lane);
            if tokio::time::timeout(Duration::from_secs(patience), running.drained()).await.is_err() {
                running.abandon().await;
            }
            balanced(&book);
            assert_eq!(book.held(), 0);
        });
    }
}

#[test]
fn sizes_and_spans_are_what_the_configuration_says() {
    let config = toml("memory = \"1MiB\"\ntimeout = \"2s\"\nexpire = { timer = \"never\" }");
    assert_eq!(config.memory, Some(Size::mib(1)));
    assert_eq!(config.timeout, Some(Span::secs(2)));
    assert_eq!(config.expire.timer, ExpireAfter::Never);
}
