//! `pointsman submit`: files of points to a gateway, interrupted and not, in constant memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    API, Answer, FakeHttp, Gateway, Influxd, all_to, api_to_influxdb, eventually_within, size,
};
use rand::RngExt;
use serde_json::Value;

const BLACKHOLE: &str = "[backends.b]\nkind = 'blackhole'\n";

async fn gateway() -> Gateway {
    Gateway::start(&[API, BLACKHOLE, &all_to(&["b"])].concat()).await
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.addr("api", "tcp"))
}

/// The command, deaf to what the tester's own environment says.
fn command(to: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.env_remove("POINTSMAN_URL").env_remove("POINTSMAN_TOKEN_FILE").stdin(Stdio::null());
    command.args(["submit", "--to", to]).args(arguments);
    command
}

async fn submit(to: &str, arguments: &[&str]) -> Output {
    let mut command = command(to, arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn report(to: &str, arguments: &[&str]) -> (i32, Value) {
    let output = submit(to, &[arguments, &["--report", "json"]].concat()).await;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report)
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_submitted_and_the_report_says_what_was_wrong() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let table = write(
        dir.path(),
        "times.csv",
        "time,compile,ok\n1414000000000,12.5,true\n,,\n1414000001000,1e400,\n1414000002000,1,,7\n",
    );
    let lines = "{\"name\":\"a\",\"value\":1}\nnonsense\n{\"name\":\"a\",\"value\":NaN}\n{\"name\":\"b\",\"x\":1}";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(lines.as_bytes()).unwrap();
    let lines = write(dir.path(), "stats.jsonl.gz", packed.finish().unwrap());
    let (code, report) = report(&url(&gateway), &[&table, &lines]).await;
    assert_eq!(code, 1, "{report}");
    assert_eq!((&report["accepted"], &report["refused"]), (&4.into(), &3.into()), "{report}");
    let [table, lines] = [0, 1].map(|file| &report["files"][file]);
    assert_eq!((&table["skipped_rows"], &table["surplus_cells"]), (&1.into(), &1.into()));
    assert_eq!(table["errors"][0]["line"], 4, "{table}");
    assert!(table["errors"][0]["error"].as_str().unwrap().contains("not a finite number"));
    assert_eq!((&lines["errors"][0]["line"], &lines["errors"][1]["line"]), (&2.into(), &3.into()));
    assert_eq!(lines["bytes"], 75, "decompressed");
    assert_eq!(gateway.ledger().await["listeners"]["api"]["received"], 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_submitted_is_not_submitted_again() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    let to = url(&gateway);
    let received = async || gateway.ledger().await["listeners"]["api"]["received"].clone();
    for _ in 0..2 {
        let (code, report) = report(&to, &[&file]).await;
        assert_eq!((code, &report["accepted"]), (0, &1.into()), "{report}");
        assert_eq!(received().await, 1);
    }
    fs::remove_file(format!("{file}.pointsman-progress")).unwrap();
    assert_eq!(report(&to, &[&file]).await.0, 0, "the gateway knows the keys, too");
    assert_eq!(received().await, 1);
    File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .write_all(b"{\"name\":\"a\",\"value\":2}")
        .unwrap();
    let (_, grown) = report(&to, &[&file]).await;
    assert_eq!((received().await, &grown["accepted"]), (2.into(), &2.into()), "{grown}");
    let output = submit(&to, &[&file, "--prefix", "p/"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("other options"), "{output:?}");
    let (_, again) = report(&to, &[&file, "--prefix", "p/", "--again"]).await;
    assert_eq!((received().await, &again["accepted"]), (4.into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_is_waited_out_under_the_same_key() {
    let script = [
        Answer::status(503).header("retry-after", "0"),
        Answer::reset(),
        Answer::status(429),
        Answer::status(204),
    ];
    let fake = FakeHttp::start(script).await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n");
    let token = write(dir.path(), "token", "s3cret\n");
    let output = submit(&fake.url(), &[&file, "--token-file", &token, "--prefix", "t/"]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!format!("{output:?}").contains("s3cret"));
    let received = fake.received();
    assert_eq!(received.len(), 4);
    let key = received[0].header("idempotency-key").unwrap().to_owned();
    for request in &received {
        assert_eq!((&*request.method, &*request.target), ("PUT", "/v1/points?details"));
        assert_eq!(request.body, "{\"name\":\"t/a\",\"fields\":{\"a\":1}}\n");
        assert_eq!(request.header("authorization"), Some("Bearer s3cret"));
        assert_eq!(request.header("idempotency-key"), Some(&*key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_goes_in_halves() {
    let fake = FakeHttp::judging(|request| match request.body.lines().count() {
        0..=2 => Answer::status(204),
        _ => Answer::status(413),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n2\n3\n4\n5\n6\n7\n");
    let (code, report) = report(&fake.url(), &[&file]).await;
    assert_eq!((code, &report["accepted"]), (0, &7.into()), "{report}");
    let bodies = fake.received().into_iter().filter(|request| request.body.lines().count() < 3);
    let bodies: String = bodies.map(|request| request.body).collect();
    let expected = (1..8).map(|n| format!("{{\"name\":\"a\",\"fields\":{{\"a\":{n}}}}}\n"));
    assert_eq!(bodies, expected.collect::<String>());
}

/// Interrupted between two halves, it goes on with the same halves under the same keys, though the
/// gateway would take all at once by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_are_the_same_after_an_interruption() {
    let seen = AtomicUsize::new(0);
    let fake = FakeHttp::judging(move |_| match seen.fetch_add(1, Ordering::Relaxed) {
        0 => Answer::status(413),
        2 => Answer::status(401),
        _ => Answer::status(204),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n2\n3\n4\n5\n6\n7\n");
    assert_eq!(report(&fake.url(), &[&file]).await.0, 1);
    let (code, report) = report(&fake.url(), &[&file]).await;
    assert_eq!((code, &report["accepted"]), (0, &7.into()), "{report}");
    let sent = fake.received().into_iter().map(|request| {
        let key = request.header("idempotency-key").unwrap().to_owned();
        (key, request.body.lines().count(), request.body)
    });
    let sent: Vec<_> = sent.collect();
    assert_eq!(sent.iter().map(|(_, lines, _)| *lines).collect::<Vec<_>>(), [7, 3, 4, 3, 4]);
    assert_eq!(sent[1..3], sent[3..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_or_has_no_hope_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let odd = write(dir.path(), "a.txt", "");
    let twice = write(dir.path(), "twice.csv", "a,a\n1,2\n");
    let fine = write(dir.path(), "fine.csv", "a\n1\n");
    let fake = FakeHttp::judging(|_| Answer::status(401)).await;
    for (arguments, code, says) in [
        (&[&*odd][..], 2, "say --format jsonl or --format csv"),
        (
            &[&*fine, "--token-file", "/no/such/file"],
            2,
            "the token file /no/such/file cannot be read: ",
        ),
        (&["/no/such/file.csv"], 1, "No such file"),
        (&[&*twice], 1, "line 1: the column \"a\" stands twice"),
        (&[&*fine], 1, "the gateway asks for credentials"),
    ] {
        let output = submit(&fake.url(), arguments).await;
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(says), "{told}");
    }
    let nowhere = submit("http://127.0.0.1:1", &[&fine, "--timeout", "300ms"]).await;
    let told = String::from_utf8_lossy(&nowhere.stdout);
    assert!(told.contains("given up: ") && nowhere.status.code() == Some(1), "{told}");
}

/// Standard input, and an answer that waits for the backend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standard_input_waits_for_delivery() {
    let influx = Influxd::start().await;
    influx.create_database("d").await;
    let gateway = Gateway::start(&api_to_influxdb(&influx.url(), "")).await;
    let mut command = command(&url(&gateway), &["-", "--format", "csv", "--series", "s", "--wait"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a,text\n1,x\n2,\n").unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(influx.rows("d", "SELECT * FROM s").await.len(), 2, "they are there already");
}

/// A large table, killed and begun again at chance moments while InfluxDB is fed: no point is
/// missing or counted twice, memory does not grow with the file, and it is sent faster than the
/// server takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_submission_doubles_nothing() {
    let influx = Influxd::start().await;
    influx.create_database("d").await;
    let spool = format!("spool = {{ max_size = '{}' }}", size("1GiB", "8GiB"));
    let gateway = Gateway::start(&api_to_influxdb(&influx.url(), &spool)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("large.csv");
    let rows = large_table(&file, size(8 << 20, 1 << 30));
    let bytes = fs::metadata(&file).unwrap().len();
    let (to, path) = (url(&gateway), file.to_str().unwrap());
    let (began, mut peak, mut kills) = (Instant::now(), 0, 0);
    loop {
        let life = Duration::from_millis(rand::rng().random_range(50..size(400, 8000)));
        let life = if kills < size(4, 8) { life } else { Duration::from_secs(3600) };
        let mut child = command(&to, &[path, "--timeout", "10m"]).spawn().unwrap();
        let started = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if started.elapsed() > life {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            peak = peak.max(peak_bytes(child.id()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        match ended {
            Some(status) => break assert!(status.success()),
            None => kills += 1,
        }
    }
    let sent = began.elapsed();
    let (_, report) = report(&to, &[path]).await;
    assert_eq!(report["accepted"], rows, "{report}");
    let ledger = gateway.ledger().await;
    assert_eq!(ledger["listeners"]["api"]["received"], rows, "no point came twice");
    eventually_within(Duration::from_secs(3600), "all is delivered", async || {
        gateway.book("influx").await["delivered"] == rows
    })
    .await;
    let delivered = began.elapsed();
    let count = influx.rows("d", "SELECT count(a) FROM large").await;
    assert_eq!(count[0]["count"], rows, "and every one is there");
    let rate = |took: Duration| rows as f64 / took.as_secs_f64();
    eprintln!(
        "{} MiB, {rows} points, killed {kills} times: sent in {sent:.1?} ({:.0} points/s), delivered \
         after {delivered:.1?} ({:.0} points/s), {} MiB in memory at the most",
        bytes >> 20,
        rate(sent),
        rate(delivered),
        peak >> 20
    );
    assert!(peak < 64 << 20, "{peak} bytes");
}

/// Writes a table of so many bytes; answers how many rows it has.
fn large_table(path: &Path, bytes: u64) -> u64 {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let (mut written, mut rows) = (0, 0);
    writeln!(file, "time,tag.task,a,b,c,text").unwrap();
    while written < bytes {
        let time = 1_700_000_000_000 + rows;
        let row = format!("{time},t{},{rows},{}.5,true,\"some, text\"\n", rows % 100, rows % 1000);
        file.write_all(row.as_bytes()).unwrap();
        (written, rows) = (written + row.len() as u64, rows + 1);
    }
    file.flush().unwrap();
    rows
}

/// The most that a process has had in memory; 0 if it has ended.
fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
}
