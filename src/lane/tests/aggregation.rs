//! What becomes of points before they are in line: windows, times, names and full inboxes.

use super::*;

#[tokio::test(start_paused = true)]
async fn windows_carry_the_time_of_their_end() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| count(points, "c", 1.0));
    bench.send(1, |points| count(points, "c", 2.0));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(bench.record.lines(), [""; 0]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.record.lines(), ["c 1010000000000 count=3 rate=0.3"]);
    bench.send(0, |points| count(points, "c", 5.0));
    assert_eq!(bench.end().await[1..], ["c 1010300000000 count=5 rate=0.5"]);
}

#[tokio::test(start_paused = true)]
async fn gauges_live_on_and_expire() {
    let config = "flush = \"1s\"\nexpire = { gauge = \"2s\" }";
    let bench = Bench::new(settings("influxdb", config), |_| {});
    bench.send(0, |points| points.begin("g").finish(Measure::Gauge(10.0), None, ""));
    sleep(Duration::from_secs(1)).await;
    bench.send(1, |points| points.begin("g").finish(Measure::GaugeShift(-3.0), None, ""));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.book().series.get(), 0);
    bench.send(2, |points| points.begin("g").finish(Measure::GaugeShift(-3.0), None, ""));
    let lines = bench.end().await;
    assert_eq!(
        lines,
        [
            "g 1001000000000 value=10",
            "g 1002000000000 value=7",
            "g 1003000000000 value=7",
            "g 1004000000000 value=7",
            "g 1006300000000 value=-3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn idle_kinds_send_zeros_when_asked() {
    let config = "flush = \"1s\"\nexpire = { counter = \"1s\", timer = \"1s\", set = \"1s\" }";
    let bench = Bench::new(settings("influxdb", config), |_| {});
    bench.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("t").finish(Measure::Timing { ms: 2.0, rate: 1.0 }, None, "");
        points.begin("s").finish(Measure::Set("m"), None, "");
    });
    sleep(Duration::from_secs(4)).await;
    assert_eq!(
        bench.end().await[3..],
        [
            "c 1002000000000 count=0 rate=0",
            "t 1002000000000 count=0 rate=0",
            "s 1002000000000 count=0"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_point_with_its_own_time_leaves_the_window() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| {
        let measure = Measure::Count { delta: 1.0, rate: 0.5 };
        points.begin("c").finish(measure, Some(UnixNanos(7)), "");
        reading(points, "r", 1, None);
        reading(points, "r", 2, Some(5));
    });
    assert_eq!(bench.end().await, ["c 7 count=2 rate=0.2", "r 1000300000000 1", "r 5000000000 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_relay_passes_points_as_they_are() {
    let bench = Bench::new(settings("statsd", ""), |_| {});
    bench.send(0, |points| count(points, "c", 1.0));
    assert_eq!(bench.end().await, ["c -1 Count { delta: 1.0, rate: 1.0 }"]);
}

#[tokio::test(start_paused = true)]
async fn a_payload_knows_where_its_records_came_from() {
    let bench = Bench::new(settings("influxdb", ""), |ship| ship.abhors = Some("bad"));
    bench.send(0, |points| {
        reading(points, "r", 1, Some(1));
        reading(points, "bad", 1, Some(1));
        reading(points, "r", 2, Some(2));
        let measure = Measure::Count { delta: 1.0, rate: 1.0 };
        points.begin("c").finish(measure, Some(UnixNanos(7)), "");
    });
    sleep(Duration::from_secs(2)).await;
    bench.send(0, |points| count(points, "c", 1.0));
    let record = bench.record.clone();
    assert_eq!(bench.end().await.len(), 4);
    let say = |leg: &Leg| {
        let known = leg.origin.as_deref().unwrap();
        let listener = known.origin.as_ref().map_or("no", |origin| &origin.listener);
        let route = known.via.as_ref().map_or("none", |via| &via.route);
        format!("{} {} of {listener} by {route}", leg.lines, known.kind.unwrap())
    };
    let waybills = record.0.lock().unwrap().waybills.clone();
    let said: Vec<_> = waybills.iter().flat_map(|waybill| waybill.legs().iter().map(say)).collect();
    assert_eq!(
        said,
        [
            "1 sample of edge by all",
            "1 sample of edge by all",
            "1 counter of edge by all",
            "1 counter of no by none"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn points_of_one_nanosecond_are_told_apart() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| {
        reading(points, "r", 1, Some(5));
        reading(points, "r", 2, Some(5));
    });
    let book = bench.book();
    assert_eq!(bench.end().await, ["r 5000000000 1", "r 5000000001 2"]);
    assert_eq!(book.noticed.counts(), [("time_moved", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_names_never_costs_a_known_series() {
    let bench = Bench::new(settings("influxdb", "flush = \"1s\"\nmax_series = 100"), |_| {});
    for round in 0..5 {
        for n in 0..300 {
            bench.send(n, |points| count(points, &format!("x.{round}.{n}"), 1.0));
            bench.send(0, |points| count(points, "known", 1.0));
        }
        assert!(bench.book().series.get() <= 100);
        sleep(Duration::from_secs(1)).await;
    }
    let book = bench.book();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(book.series.get(), 0);
    let lines = bench.end().await;
    let known = lines.iter().filter(|line| line.starts_with("known "));
    assert!(known.clone().all(|line| line.ends_with("count=300 rate=300")), "{lines:?}");
    assert_eq!(known.count(), 5);
    assert!(dropped(&book, "series_limit") >= 1000);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_is_full_by_bytes_as_well() {
    let bench = Bench::new(settings("stdout", ""), |_| {});
    let one = |points: &mut Points| reading(points, "r", 1, None);
    bench.state.inbox_bytes.store(INBOX_BYTES_MAX, Relaxed);
    assert!(bench.lane.behind());
    bench.send(0, one);
    bench.state.inbox_bytes.store(0, Relaxed);
    assert!(!bench.lane.behind());
    bench.send(0, one);
    let state = Arc::clone(&bench.state);
    assert!(state.inbox_bytes.load(Relaxed) > 0);
    assert_eq!(dropped(&bench.book(), "inbox_full"), 1);
    assert_eq!(bench.end().await.len(), 1);
    assert_eq!(state.inbox_bytes.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_worked_on_holds_up_neither_others_nor_a_stop() {
    let mut bench = Bench::new(settings("stdout", ""), |_| {});
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, "r", n, None)));
    let book = bench.book();
    while book.open.get() == 0 {
        tokio::task::yield_now().await;
    }
    assert!((1..5000).contains(&book.inbox.get()), "{}", book.inbox.get());
    balanced(&book);
    assert_eq!(bench.running.abandon().await, 5000);
    assert_eq!(book.held(), 0);
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn a_slow_backend_does_not_merge_windows() {
    let bench = Bench::new(settings("influxdb", "flush = \"1s\""), |ship| {
        ship.takes = Duration::from_millis(2500);
    });
    let start = Instant::now() + Duration::from_millis(750);
    let mut tenths = tokio::time::interval_at(start, Duration::from_millis(100));
    for _ in 0..200 {
        tenths.tick().await;
        bench.send(0, |points| count(points, "c", 1.0));
    }
    sleep(Duration::from_secs(1)).await;
    let lines = bench.end().await;
    assert_eq!(lines.len(), 20);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("c {} count=10 rate=10", (1002 + n) * 1_000_000_000));
    }
}
