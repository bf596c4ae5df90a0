//! A wall clock that jumps by hours: nothing is lost, nothing comes twice, nothing stands still.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Sends a counter, a gauge's shift and a reading ten times a second while the clock jumps by so
/// many seconds every three, to a backend that is away half of the time; restarts at each jump, if
/// asked.
async fn jump(steps: &[i64], restarts: bool) {
    let clock = Clock::stepped(UnixNanos::from_millis(1_000_000_300));
    let data = tempfile::tempdir().unwrap();
    let record = Record::default();
    let settings = settings("influxdb", "flush = \"1s\"\nretry = { max = \"2s\" }");
    let begin = || {
        let state = State::new(Arc::default(), 4);
        state.open_windows(&settings, data.path(), clock.now());
        let (lane, running) = start(settings.clone(), &state, &record, clock, |ship| {
            ship.script = (0..4).map(|_| again(None)).collect();
        });
        (state, lane, running)
    };
    let (mut state, mut lane, mut running) = begin();
    let mut sent = 0;
    for step in [0].iter().chain(steps) {
        clock.step(*step);
        if restarts {
            drop(lane);
            running.drained().await;
            balanced(&state.book);
            (state, lane, running) = begin();
        }
        for _ in 0..30 {
            send(&lane, clock, 0, |points| {
                count(points, "c", 1.0);
                points.begin("g").finish(Measure::GaugeShift(1.0), None, "");
                reading(points, "r", sent, None);
            });
            sent += 1;
            sleep(Duration::from_millis(100)).await;
            balanced(&state.book);
            assert!(state.book.windows.get() <= 80, "a window lasts for ever after {step}");
            let oldest = state.book.oldest_seconds(clock.now());
            assert!((0.0..=1e6).contains(&oldest), "{oldest} after {step}");
        }
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!(state.book.held(), 0, "all is delivered, however the clock stands");
    assert_eq!(state.book.oldest_seconds(clock.now()), 0.0);
    drop(lane);
    running.drained().await;
    check(&record.lines(), sent, restarts);
}

/// A row that is written again is the same window's, in a database that keeps the last.
fn check(lines: &[String], sent: i64, restarts: bool) {
    let split = |line: &String| {
        let (name, rest) = line.split_once(' ').unwrap();
        let (time, fields) = rest.split_once(' ').unwrap();
        ((name.to_owned(), time.parse::<i64>().unwrap()), fields.to_owned())
    };
    let rows: BTreeMap<_, _> = lines.iter().map(split).collect();
    assert!(restarts || rows.len() == lines.len(), "a row overwrote another: {lines:?}");
    let of = |name: &'static str| rows.iter().filter(move |((of, _), _)| of == name);
    let counts = of("c").map(|(_, fields)| value(fields, "count="));
    assert_eq!(counts.sum::<u64>(), sent.unsigned_abs(), "{lines:?}");
    let readings: BTreeSet<i64> = of("r").map(|(_, value)| value.parse().unwrap()).collect();
    assert_eq!(readings, (0..sent).collect());
    let last = lines.iter().rfind(|line| line.starts_with("g ")).unwrap();
    assert!(last.ends_with(&format!(" value={sent}")), "{last}");
}

const HOUR: i64 = 3600;

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_by_hours() {
    jump(&[5 * HOUR, 7 * HOUR + 1], false).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_by_hours() {
    jump(&[-5 * HOUR, -HOUR - 1, -2], false).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_to_and_fro() {
    jump(&[5 * HOUR, -5 * HOUR, 2, -2, -3, 3, -3 * HOUR, 3 * HOUR], false).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_while_nobody_is_there() {
    jump(&[5 * HOUR, -HOUR, HOUR + 1, -9 * HOUR], true).await;
}
