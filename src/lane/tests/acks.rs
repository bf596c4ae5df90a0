//! What requests learn of their points, and what they are promised.

use super::*;
use crate::lane::receipt::{Fate, Level, Loss, Receipt, Slip};
use crate::lane::reserve::Full;

impl Bench {
    /// As `send`, for a request that waits.
    fn ask(&self, level: Level, fill: impl FnOnce(&mut Points)) -> Receipt {
        let (slip, receipt) = Slip::new(level);
        self.give(Terms { slip: Some(&slip), room: None }, fill);
        receipt
    }

    /// As `send`, for a request that is told when there is no room.
    fn demand(&self, fill: impl FnOnce(&mut Points)) -> Result<(), Full> {
        let mut points = Points::new();
        fill(&mut points);
        let room = self.lane.reserve(points.bytes())?;
        self.give(Terms { slip: None, room }, |into| points.iter().for_each(|p| into.push(&p)));
        Ok(())
    }

    fn give(&self, terms: Terms<'_>, fill: impl FnOnce(&mut Points)) {
        let mut points = Points::new();
        fill(&mut points);
        hand_over(&self.lane, 0, self.clock.now(), terms, &points);
    }
}

async fn fate(mut receipt: Receipt) -> Fate {
    receipt.by(sleep(Duration::from_secs(60))).await
}

fn lost(reason: &'static str, points: u64, detail: Option<&str>) -> Fate {
    let detail = detail.map(str::to_owned);
    Fate::Lost(vec![Loss { backend: "b".to_owned(), reason, points, detail }])
}

/// A batch waits for an hour for its points, but not when somebody waits for them.
const HOUR: &str = "flush = \"1h\"\naggregate = false\n";

fn never(ship: &mut Scripted) {
    ship.script.extend((0..1000).map(|_| again(None)));
}

#[tokio::test(start_paused = true)]
async fn without_a_disk_queued_is_in_the_queue() {
    let bench = Bench::new(settings("stdout", HOUR), never);
    let began = Instant::now();
    let receipts = [0, 1].map(|n| bench.ask(Level::Queued, |points| reading(points, "r", n, None)));
    for receipt in receipts {
        assert_eq!(fate(receipt).await, Fate::Kept);
    }
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    sleep(Duration::from_millis(1)).await;
    let attempts = bench.record.attempts();
    assert_eq!(attempts.len(), 1, "what came together goes together: {attempts:?}");
    let mut late = bench.ask(Level::Delivered, |points| reading(points, "r", 2, None));
    assert_eq!(late.by(sleep(Duration::from_secs(1))).await, Fate::Late(1));
}

/// The store is where points are kept, not its queue.
#[tokio::test(start_paused = true)]
async fn with_the_store_queued_is_delivered() {
    let bench = Bench::new(settings("store", HOUR), |ship| ship.takes = Duration::from_secs(9));
    let began = Instant::now();
    let receipt = bench.ask(Level::Queued, |points| reading(points, "r", 1, None));
    assert_eq!(fate(receipt).await, Fate::Kept);
    assert_eq!(began.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_delivery_shares_with_nobody_and_learns_of_his_own() {
    let bench = Bench::new(settings("influxdb", HOUR), |ship| ship.abhors = Some("bad"));
    let ask = |names: &[&str]| {
        bench.ask(Level::Delivered, |points| names.iter().for_each(|n| reading(points, n, 1, None)))
    };
    bench.send(0, |points| reading(points, "bad.before", 1, None));
    let receipts = [ask(&["a", "b"]), ask(&["c", "bad", "d"]), ask(&["e"])];
    bench.send(0, |points| reading(points, "bad.behind", 1, None));
    let fates = [Fate::Kept, lost("rejected", 1, Some("400")), Fate::Kept];
    for (receipt, expected) in receipts.into_iter().zip(fates) {
        assert_eq!(fate(receipt).await, expected);
    }
    let book = bench.book();
    assert_eq!(bench.end().await.len(), 5);
    assert_eq!(book.dropped.counts(), [("rejected", 3)]);
}

#[tokio::test(start_paused = true)]
async fn aggregated_points_have_arrived_with_their_window() {
    let config = "flush = \"10s\"\nmax_series = 2\nspool = false";
    let bench = Bench::new(settings("influxdb", config), |_| {});
    let began = Instant::now();
    let ask = |level, name: &str| bench.ask(level, |points| count(points, name, 1.0));
    let kept = [ask(Level::Delivered, "a"), ask(Level::Queued, "b"), ask(Level::Delivered, "a")];
    let refused = ask(Level::Queued, "c");
    assert_eq!(fate(refused).await, lost("series_limit", 1, None));
    assert!(began.elapsed().is_zero(), "nothing else to wait for");
    for receipt in kept {
        assert_eq!(fate(receipt).await, Fate::Kept);
        assert_eq!(began.elapsed().as_millis() / 100, 97, "it began at .3 s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_on_the_way_is_told() {
    // A full inbox.
    let bench = Bench::new(settings("stdout", HOUR), |_| {});
    (0..64).for_each(|n| bench.send(0, |points| reading(points, "r", n, None)));
    let receipt = bench.ask(Level::Queued, |points| reading(points, "r", 64, None));
    assert_eq!(fate(receipt).await, lost("inbox_full", 1, None));
    // What the encoder has no word for.
    let unsaid = |points: &mut Points| {
        points.begin("r").finish(Measure::Reading(Number::F64(f64::NAN)), None, "");
        reading(points, "r", 1, None);
    };
    sleep(Duration::from_millis(1)).await;
    let receipt = bench.ask(Level::Delivered, unsaid);
    assert_eq!(fate(receipt).await, lost("not_finite", 1, None));
    // A full queue.
    let config = format!("{HOUR}memory = \"1B\"\nwhen_full = \"drop_newest\"");
    let bench = Bench::new(settings("stdout", &config), never);
    let ask = || bench.ask(Level::Queued, |points| reading(points, "r", 1, None));
    assert_eq!(fate(ask()).await, Fate::Kept, "one is taken in any case");
    assert_eq!(fate(ask()).await, lost("queue_full", 1, None));
    // A queue that drops what was there before.
    let config = format!("{HOUR}memory = \"1B\"");
    let bench = Bench::new(settings("stdout", &config), never);
    let first = bench.ask(Level::Delivered, |points| reading(points, "r", 1, None));
    sleep(Duration::from_secs(1)).await;
    bench.ask(Level::Delivered, |points| reading(points, "r", 2, None));
    assert_eq!(fate(first).await, lost("queue_full", 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_stop_tells_who_waits() {
    let mut bench = Bench::new(settings("influxdb", "flush = \"1h\""), never);
    let receipts = [
        bench.ask(Level::Queued, |points| count(points, "in.a.window", 1.0)),
        bench.ask(Level::Delivered, |points| reading(points, "in.the.queue", 1, Some(1))),
    ];
    sleep(Duration::from_secs(1)).await;
    let inbox = bench.ask(Level::Delivered, |points| reading(points, "in.the.inbox", 1, Some(1)));
    bench.running.abandon().await;
    for receipt in receipts.into_iter().chain([inbox]) {
        assert_eq!(fate(receipt).await, lost("shutdown", 1, None));
    }
}

/// Nobody can be told of datagrams; they may fill the queue after a promise, and not break it.
#[tokio::test(start_paused = true)]
async fn a_promise_holds_whatever_comes_in_between() {
    let config =
        format!("{HOUR}memory = \"2KiB\"\nwhen_full = \"refuse\"\nbatch = {{ points = 1 }}");
    let bench = Bench::new(settings("stdout", &config), never);
    let room = bench.lane.reserve(100).unwrap();
    assert!(room.is_some());
    for n in 0..50 {
        bench.send(0, |points| reading(points, "udp", n, None));
    }
    sleep(Duration::from_millis(1)).await;
    let before = dropped(&bench.book(), "queue_full");
    assert!(before > 0, "the queue is full");
    bench.give(Terms { slip: None, room }, |points| reading(points, "http", 1, None));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(dropped(&bench.book(), "queue_full"), before);
    assert_eq!(bench.demand(|points| reading(points, "http", 2, None)), Err(Full));
    assert_eq!(bench.book().handed.get(), 51, "nothing of it was kept");
}

/// Room is given to those who come first, and not twice.
#[tokio::test(start_paused = true)]
async fn room_is_promised_once() {
    let config = format!("{HOUR}memory = \"8KiB\"\nwhen_full = \"refuse\"");
    let bench = Bench::new(settings("stdout", &config), never);
    let first = bench.lane.reserve(100_000).unwrap();
    assert!(first.is_some(), "an empty queue takes anything");
    assert_eq!(bench.lane.reserve(1).unwrap_err(), Full);
    drop(first);
    let small: Vec<_> = (0..100).map_while(|_| bench.lane.reserve(1000).ok()).collect();
    assert_eq!(small.len(), 8);
    drop(small);
    let many = |points: &mut Points| (0..1000).for_each(|n| reading(points, "r", n, None));
    assert_eq!(bench.demand(many), Ok(()), "larger than the queue, but alone");
    assert_eq!(bench.demand(|points| reading(points, "r", 1, None)), Err(Full));
}

/// Line protocol has no words for a timer that is not summed up: nobody encodes it to find that out.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_said_is_refused_where_it_is_received() {
    let (settings, state) = (settings("influxdb", HOUR), State::new(Arc::default(), 1));
    let (record, clock) = (Record::default(), Clock::starting_at(UnixNanos::from_secs(1000)));
    let encode = Box::new(protocols::influxdb::Encoder::new(Default::default()));
    let ship = Box::new(Scripted::new(&record));
    let (lane, running) = spawn(settings, Arc::clone(&state), encode, ship, clock);
    let bench = Bench { lane, running, state, record, clock };
    let receipt = bench.ask(Level::Delivered, |points| {
        points.begin("t").finish(Measure::Timing { ms: 1.0, rate: 1.0 }, None, "");
        points.begin("s").finish(Measure::Set("m"), None, "");
        points.begin("g").finish(Measure::GaugeShift(1.0), None, "");
    });
    let book = bench.book();
    assert_eq!((book.handed.get(), book.inbox.get(), dropped(&book, "unrepresentable")), (3, 0, 3));
    assert_eq!(fate(receipt).await, lost("unrepresentable", 3, None));
    bench.send(0, |points| {
        points.begin("t").finish(Measure::Timing { ms: 1.0, rate: 1.0 }, None, "");
        points.begin("t").finish(Measure::Gauge(1.0), None, "");
        count(points, "t", 2.0);
    });
    // Nor does it take a nanosecond from a point of its series.
    assert_eq!(bench.end().await, ["t value=1 1000000000000", "t count=2 1000000000001"]);
    assert_eq!(dropped(&book, "unrepresentable"), 4);
}
