//! Lines that go out as they came: in order among points, counted as points, and never changed.

use super::*;
use protocols::statsd::{Encoder, TagDialect};

fn relay(config: &str, scripted: impl FnOnce(&mut Scripted)) -> Bench {
    let clock = Clock::starting_at(UnixNanos::from_millis(1_000_300));
    let settings = settings("statsd", config);
    let state = State::new(Arc::default(), settings.shards);
    let record = Record::default();
    let mut ship = Scripted::new(&record);
    scripted(&mut ship);
    let encode = Box::new(Encoder::new(TagDialect::Dogstatsd, 20));
    let (lane, running) = spawn(settings, Arc::clone(&state), encode, Box::new(ship), clock);
    Bench { lane, running, state, record, clock }
}

fn via(route: &str) -> Arc<Via> {
    Arc::new(Via { route: route.into(), rewrite: None })
}

/// Hands the text over as one receiving task does: what begins with `!` as a point of that name,
/// all other lines as they are.
fn hand_out(bench: &Bench, terms: Terms<'_>, text: &str) {
    let origin = Origin::new("edge", Protocol::Statsd);
    let mut front = bench.lane.front(0, bench.clock.now(), &origin, terms);
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        match line.strip_prefix('!') {
            Some(name) => {
                let mut points = Points::new();
                count(&mut points, name, 1.0);
                front.take(&points.point(0).unwrap(), 0, &via("points"));
            }
            None => assert!(front.relay(line.as_bytes(), &via("lines"))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lines_and_points_keep_their_order() {
    let bench = relay("", |_| {});
    hand_out(&bench, Terms::default(), "a:1|c\nb:1.50|ms|@0.1\r\n!c|d\n!e\nf:x|s\n!g");
    hand_out(&bench, Terms::default(), "!h\ni:1|c");
    let (book, record) = (bench.book(), bench.record.clone());
    let expected =
        ["a:1|c", "b:1.50|ms|@0.1", "c_d:1|c", "e:1|c", "f:x|s", "g:1|c", "h:1|c", "i:1|c"];
    assert_eq!(bench.end().await, expected);
    assert_eq!((book.handed.get(), book.delivered.get()), (8, 8));
    let waybills = record.0.lock().unwrap().waybills.clone();
    let legs = waybills[0].legs().iter().map(|leg| {
        let origin = leg.origin.as_ref().unwrap();
        (leg.lines, origin.kind, origin.via.as_ref().unwrap().route.to_string())
    });
    let (line, point) = ((None, "lines".to_owned()), (Some(protocols::Kind::Counter), "points"));
    let line = |count: u32| (count, line.0, line.1.clone());
    let point = |count: u32| (count, point.0, point.1.to_owned());
    let expected = [line(2), point(2), line(1), point(2), line(1)];
    assert_eq!(legs.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lane_relays_only_what_it_would_have_written() {
    let bench = relay("", |_| {});
    let origin = Origin::new("edge", Protocol::Statsd);
    let mut front = bench.lane.front(0, bench.clock.now(), &origin, Terms::default());
    assert!(front.relay(b"exactly.20.bytes:1|c", &via("all")));
    assert!(!front.relay(b"more.than.that.is:1|c", &via("all")));
    front.close();
    let book = bench.book();
    assert_eq!(bench.end().await, ["exactly.20.bytes:1|c"]);
    assert_eq!(book.handed.get(), 1);
    for (kind, config) in [("stdout", ""), ("influxdb", ""), ("stdout", "aggregate = true")] {
        let other = Bench::new(settings(kind, config), |_| {});
        assert_eq!(other.lane.verbatim(), None, "{kind}");
        let mut front = other.lane.front(0, other.clock.now(), &origin, Terms::default());
        assert!(!front.relay(b"a:1|c", &via("all")), "{kind}");
    }
}

/// What never gets to the backend is counted, and whoever waits for it is told.
#[tokio::test(start_paused = true)]
async fn lines_that_are_lost_are_counted_as_points() {
    let mut bench = relay("", |_| {});
    let (slip, mut receipt) = Slip::new(Level::Delivered);
    hand_out(&bench, Terms { slip: Some(&slip), room: None }, "a:1|c\nb:1|c\n!c");
    drop(slip);
    let book = bench.book();
    assert_eq!(book.inbox.get(), 3);
    assert_eq!(bench.running.abandon().await, 3);
    assert_eq!((book.held(), dropped(&book, "shutdown")), (0, 3));
    balanced(&book);
    let fate = receipt.by(sleep(Duration::from_secs(1))).await;
    let Fate::Lost(losses) = fate else { panic!("{fate:?}") };
    assert_eq!((losses[0].reason, losses[0].points), ("shutdown", 3));

    let bench = relay("", |_| {});
    for _ in 0..=INBOX {
        hand_out(&bench, Terms::default(), "a:1|c\nb:1|c");
    }
    let book = bench.book();
    assert_eq!(dropped(&book, "inbox_full"), 2);
    assert_eq!(bench.end().await.len(), 2 * INBOX);
}

proptest! {
    /// However lines come, and however small payloads are: what goes out is what went in, line for
    /// line, in payloads that are no larger than they may be.
    #[test]
    fn whatever_goes_in_comes_out(
        parcels in prop::collection::vec(prop::collection::vec("!?[a-z]{1,8}", 0..30), 1..8),
        points in 1u32..40, bytes in 1u64..300,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        let texts: Vec<_> = parcels.iter().map(|lines| lines.join("\n")).collect();
        let written = |line: &String| match line.strip_prefix('!') {
            Some(name) => format!("{name}:1|c"),
            None => line.clone(),
        };
        let expected: Vec<_> = parcels.iter().flatten().map(written).collect();
        let (lines, attempts) = runtime.block_on(async {
            let config = format!("batch = {{ points = {points}, bytes = \"{bytes}B\" }}");
            let bench = relay(&config, |_| {});
            let record = bench.record.clone();
            for text in &texts {
                hand_out(&bench, Terms::default(), text);
            }
            (bench.end().await, record.attempts())
        });
        for (_, length) in attempts {
            prop_assert!(length as u64 <= bytes || length <= 13, "{length} bytes");
        }
        prop_assert_eq!(lines, expected);
    }
}
