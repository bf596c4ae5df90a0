//! What a lane makes of what its backend answers: order, delays, parts, refusals and suspects.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_dead_backend_keeps_the_newest_and_its_neighbour_gets_all() {
    let dead = Bench::new(settings("stdout", "memory = \"4KiB\"\nflush = \"100ms\""), |ship| {
        ship.takes = Duration::from_secs(3600);
    });
    let well = Bench::new(settings("stdout", "flush = \"100ms\""), |_| {});
    for n in 0..1000 {
        for bench in [&dead, &well] {
            bench.send(0, |points| reading(points, "r", n, Some(n)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(well.end().await.len(), 1000);
    let book = dead.book();
    balanced(&book);
    assert!(dropped(&book, "queue_full") > 0 && book.retries.get() > 0);
    assert!(book.queued_bytes.get() <= 4096);
    let Bench { lane, mut running, .. } = dead;
    drop(lane);
    let held = book.held();
    assert_eq!(running.abandon().await, held);
    assert_eq!((book.held(), dropped(&book, "shutdown")), (0, held));
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn order_is_kept_under_retry() {
    let bench = Bench::new(settings("stdout", "batch = { points = 10 }"), |ship| {
        ship.script = [Outcome::Delivered, Outcome::Delivered, again(None), again(None)].into();
    });
    bench.send(0, |points| (0..100).for_each(|n| reading(points, "s", n, Some(n))));
    let book = bench.book();
    let lines = bench.end().await;
    let expected: Vec<_> = (0..100).map(|n| format!("s {} {n}", n * 1_000_000_000i64)).collect();
    assert_eq!(lines, expected);
    assert_eq!(book.retries.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_says_when_to_come_back() {
    let bench = Bench::new(settings("stdout", "retry = { max = \"5s\" }"), |ship| {
        ship.script = [again(Some(2)), again(None), again(Some(2_000_000_000))].into();
    });
    bench.send(0, |points| reading(points, "r", 1, Some(1)));
    let record = bench.record.clone();
    assert_eq!(bench.end().await.len(), 1);
    let at: Vec<_> = record.attempts().iter().map(|(at, _)| *at).collect();
    let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_secs(2) && waits[0] <= Duration::from_millis(2101));
    assert!(waits[1] <= Duration::from_millis(201));
    assert!(waits[2] >= Duration::from_secs(5) && waits[2] < Duration::from_millis(5002));
}

#[tokio::test(start_paused = true)]
async fn a_large_payload_is_halved_and_the_size_is_learnt() {
    let bench = Bench::new(settings("stdout", "batch = { points = 1000 }"), |ship| {
        ship.largest = 2048;
    });
    let name = "n".repeat(50);
    bench.send(0, |points| (0..100).for_each(|n| reading(points, &name, n, Some(1))));
    sleep(Duration::from_secs(3)).await;
    let refused = |record: &Record| record.attempts().iter().filter(|(_, n)| *n > 2048).count();
    let first = refused(&bench.record);
    assert!((1..=3).contains(&first));
    bench.send(0, |points| {
        (0..100).for_each(|n| reading(points, &name, 100 + n, Some(1)));
        reading(points, &"x".repeat(3000), 0, Some(1));
    });
    let (book, record) = (bench.book(), bench.record.clone());
    let lines = bench.end().await;
    assert_eq!(lines.len(), 200);
    assert!(lines.iter().enumerate().all(|(n, line)| line.ends_with(&format!(" {n}"))));
    assert_eq!(refused(&record), first + 1, "only the lone large record was tried");
    assert_eq!(book.dropped.counts(), [("too_large", 1)]);
}

#[tokio::test(start_paused = true)]
async fn one_bad_record_costs_a_few_attempts_and_no_neighbour() {
    let bench = Bench::new(settings("stdout", ""), |ship| ship.abhors = Some("bad"));
    let name = |n| if n == 3210 { "bad" } else { "r" };
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, name(n), n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    let lines = bench.end().await;
    let values = lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap());
    assert!(values.eq((0..5000).filter(|n| *n != 3210)), "one is gone and order is kept");
    assert_eq!(book.dropped.counts(), [("rejected", 1)]);
    assert!(record.attempts().len() <= 2 * 13 + 1, "{}", record.attempts().len());
}

#[tokio::test(start_paused = true)]
async fn a_payload_full_of_bad_records_costs_a_bounded_number_of_attempts() {
    let bench = Bench::new(settings("stdout", ""), |ship| ship.abhors = Some("bad"));
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, "bad", n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    assert_eq!(bench.end().await, [""; 0]);
    assert_eq!(book.dropped.counts(), [("rejected", 5000)]);
    assert_eq!(record.attempts().len(), 2 * 64 + 1);
}

/// Delivers 5000 points of which those are bad; answers the book and how many attempts it took.
async fn some_are_refused(is_bad: impl Fn(i64) -> bool) -> (Arc<BackendBook>, usize) {
    let bench = Bench::new(settings("influxdb", ""), |ship| {
        (ship.refuses, ship.idempotent) = (Some("bad"), true);
    });
    let name = |n| if is_bad(n) { "bad" } else { "r" };
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, name(n), n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    let lines: std::collections::BTreeSet<_> = bench.end().await.into_iter().collect();
    let bad = (0..5000).filter(|n| is_bad(*n)).count();
    assert_eq!(lines.len(), 5000 - bad, "every good one is there");
    assert_eq!(book.delivered.get(), 5000 - bad as u64);
    assert_eq!(book.dropped.counts(), [("partial", bad as u64)]);
    (book, record.attempts().len())
}

#[tokio::test(start_paused = true)]
async fn which_records_were_refused_is_found() {
    let (_, attempts) = some_are_refused(|n| n % 700 == 6).await;
    assert!((9..=2 * 8 * 13 + 1).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn when_all_are_refused_nobody_is_asked_again() {
    let (_, attempts) = some_are_refused(|_| true).await;
    assert_eq!(attempts, 1);
    let (_, attempts) = some_are_refused(|n| n >= 2500).await;
    assert!(attempts <= 2 * 13 + 1, "only where the border runs: {attempts}");
}

#[tokio::test(start_paused = true)]
async fn what_is_spent_on_finding_them_is_bounded_and_their_number_is_right() {
    let (_, attempts) = some_are_refused(|n| n % 9 == 0).await;
    assert_eq!(attempts, 2 * 512 + 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_reason() {
    let bench = Bench::new(settings("stdout", "batch = { points = 4 }"), |ship| {
        let (reason, detail) = ("rejected", "bad".to_owned());
        let partial = Outcome::Partial { rejected: 1, reason: "partial", detail: detail.clone() };
        ship.script = [partial, Outcome::Rejected { reason, detail }].into();
    });
    bench.send(0, |points| {
        (0..8).for_each(|n| reading(points, "r", n, Some(n)));
        points.begin("r").finish(Measure::Reading(Number::F64(f64::NAN)), None, "");
    });
    let book = bench.book();
    bench.end().await;
    assert_eq!(book.delivered.get(), 3);
    assert_eq!(book.dropped.counts(), [("not_finite", 1), ("partial", 1), ("rejected", 4)]);
}

/// A lane whose backend fails at what holds `bad`, and at all for so many seconds.
fn failing(seconds: u64, scripted: impl FnOnce(&mut Scripted)) -> Bench {
    let config = "retry = { max = \"1s\", suspect_after = \"2s\" }\nbatch = { points = 100 }";
    Bench::new(settings("influxdb", config), |ship| {
        (ship.fails, ship.idempotent) = (Some("bad"), true);
        ship.takes = Duration::from_millis(5);
        ship.ill_until = Some(Instant::now() + Duration::from_secs(seconds));
        scripted(ship);
    })
}

/// What a backend has in the end that has no use for points that are repeated: in this order it has
/// last been sent them.
fn in_the_end(lines: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut last: Vec<_> =
        lines.into_iter().rev().filter(|line| seen.insert(line.clone())).collect();
    last.reverse();
    last
}

/// The numbers of what was delivered, in order.
fn numbers(lines: &[String]) -> Vec<i64> {
    lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_fails_at_for_good_is_found_and_others_go_on() {
    let bench = failing(0, |_| {});
    let name = |n| if n == 17 || n == 60 { "bad" } else { "r" };
    bench.send(0, |points| (0..100).for_each(|n| reading(points, name(n), n, Some(n))));
    for second in 1..15 {
        sleep(Duration::from_secs(1)).await;
        bench.send(0, |points| reading(points, "r", 100 + second, Some(second)));
    }
    sleep(Duration::from_secs(2)).await;
    let (book, record) = (bench.book(), bench.record.clone());
    assert_eq!(book.held(), 0);
    let kept = numbers(&in_the_end(bench.end().await));
    assert_eq!(kept, (0..115).filter(|n| ![17, 60, 100].contains(n)).collect::<Vec<_>>());
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 2)]);
    assert!(record.attempts().len() < 100, "{}", record.attempts().len());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_failures_costs_nothing_and_keeps_order() {
    let bench = failing(20, |_| {});
    for n in 0..40 {
        bench.send(0, |points| (0..10).for_each(|m| reading(points, "r", 10 * n + m, Some(n))));
        sleep(Duration::from_millis(700)).await;
    }
    let book = bench.book();
    assert_eq!(numbers(&in_the_end(bench.end().await)), (0..400).collect::<Vec<_>>());
    assert_eq!((book.delivered.get(), book.dropped.total()), (400, 0));
}

/// An outage ends in the very moment between the attempts at a suspect and at its witness, some of
/// which is refused. Answers what was sent.
async fn gets_well_at_the_witness(
    refuses: Option<&'static str>,
) -> (Vec<String>, Arc<BackendBook>) {
    let bench = failing(0, |ship| (ship.well_at, ship.refuses) = (Some("witness"), refuses));
    for (n, name) in (0..).zip(["suspect", "witness", "next"]) {
        bench.send(0, |points| {
            reading(points, &format!("first_{name}"), 100 * n, Some(0));
            (1..100).for_each(|m| reading(points, name, 100 * n + m, Some(0)));
        });
    }
    let book = bench.book();
    (bench.end().await, book)
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_between_a_suspect_and_its_witness_keeps_order() {
    let (sent, book) = gets_well_at_the_witness(None).await;
    let expected = (100..200).chain(0..100).chain(100..200).chain(200..300);
    assert_eq!(
        numbers(&sent),
        expected.collect::<Vec<_>>(),
        "the witness comes once more, in its turn"
    );
    assert_eq!((book.delivered.get(), book.dropped.total()), (300, 0));
}

#[tokio::test(start_paused = true)]
async fn a_witness_that_is_taken_in_part_keeps_order_too() {
    let (sent, book) = gets_well_at_the_witness(Some("first_witness")).await;
    assert_eq!(numbers(&sent[..199]), (101..200).chain(0..100).collect::<Vec<_>>());
    let expected = (0..300).filter(|n| *n != 100);
    assert_eq!(numbers(&in_the_end(sent)), expected.collect::<Vec<_>>());
    assert_eq!((book.delivered.get(), book.dropped.counts()), (299, vec![("partial", 1)]));
}

#[tokio::test(start_paused = true)]
async fn who_sends_bad_records_all_the_time_holds_up_nobody() {
    let bench = failing(0, |_| {});
    let book = bench.book();
    for n in 0..60 {
        bench.send(0, |points| {
            (0..50).for_each(|m| reading(points, if m == 7 { "bad" } else { "r" }, n, Some(m)));
        });
        sleep(Duration::from_secs(1)).await;
        assert!(book.held() < 50 * 6, "{n}: {}", book.held());
    }
    for n in 60..64 {
        bench.send(0, |points| reading(points, "r", n, Some(1)));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(in_the_end(bench.end().await).len(), 60 * 49 + 4);
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 60)]);
}

#[tokio::test(start_paused = true)]
async fn shippers_side_by_side_find_what_their_backend_fails_at() {
    let (clock, record) = (Clock::starting_at(UnixNanos(0)), Record::default());
    let state = State::new(Arc::default(), 1);
    let ships = (0..3).map(|_| {
        let takes = Duration::from_millis(50);
        let (fails, idempotent) = (Some("bad"), true);
        Box::new(Scripted { takes, fails, idempotent, ..Scripted::new(&record) }) as Box<dyn Ship>
    });
    let config = "retry = { max = \"1s\", suspect_after = \"2s\" }\nbatch = { points = 20 }";
    let settings = settings("influxdb", config);
    let (lane, mut running) =
        spawn_many(settings, Arc::clone(&state), Box::new(Lines), ships.collect(), clock);
    let name = |n| if n % 33 == 5 { "bad" } else { "r" };
    for n in 0..300 {
        send(&lane, clock, 0, |points| reading(points, name(n), n, Some(n)));
        sleep(Duration::from_millis(100)).await;
    }
    for n in 300..310 {
        send(&lane, clock, 0, |points| reading(points, "r", n, Some(n)));
        sleep(Duration::from_secs(1)).await;
    }
    drop(lane);
    running.drained().await;
    let bad = (0..300).filter(|n| n % 33 == 5).count();
    assert_eq!(state.book.dropped.counts(), [("rejected_permanent", bad as u64)]);
    let kept: std::collections::BTreeSet<_> = numbers(&record.lines()).into_iter().collect();
    assert_eq!(kept.len(), 310 - bad);
    balanced(&state.book);
}

#[tokio::test(start_paused = true)]
async fn alone_in_line_nobody_is_given_up() {
    let bench = failing(0, |_| {});
    bench.send(0, |points| reading(points, "bad", 1, Some(1)));
    sleep(Duration::from_secs(600)).await;
    let book = bench.book();
    assert_eq!((book.held(), book.dropped.total()), (1, 0));
    for n in 0..3 {
        bench.send(0, |points| reading(points, "r", n, Some(1)));
        sleep(Duration::from_millis(1500)).await;
    }
    assert_eq!(numbers(&in_the_end(bench.end().await)), [0, 1, 2]);
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 1)]);
}
