//! `pointsman submit`: files of points to a gateway, interrupted and not, in constant memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
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
async fn an_array_is_told_how_to_become_lines() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.json", "[\n  {\"name\": \"a\", \"value\": 1},\n  {}\n]\n");
    let (code, report) = report(&url(&gateway), &[&file, "--prefix", "p/"]).await;
    let first = &report["files"][0]["errors"][0];
    assert_eq!((code, &first["line"]), (1, &1.into()), "{report}");
    assert!(first["error"].as_str().unwrap().contains("`jq -c '.[]'`"), "{report}");
    let file = write(dir.path(), "b.json", "{\n  \"name\": \"b\",\n  \"value\": 1\n}\n");
    let (code, report) = self::report(&url(&gateway), &[&file, "--prefix", "p/"]).await;
    let first = &report["files"][0]["errors"][0];
    assert_eq!((code, &first["line"]), (1, &1.into()), "{report}");
    assert!(first["error"].as_str().unwrap().contains("`jq -c .`"), "{report}");
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

fn append(file: &str, text: &str) {
    File::options().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
}

async fn received(gateway: &Gateway) -> Value {
    gateway.ledger().await["listeners"]["api"]["received"].clone()
}

/// What changes the points is in the keys, so other points are never taken for these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_options_are_other_requests() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n");
    let (to, progress) = (url(&gateway), format!("{file}.pointsman-progress"));
    // Each time as if no answer had come, nor could anything be kept.
    for (count, options) in
        [&[][..], &["--prefix", "p/"], &["--series", "s"], &["--series", "s", "--prefix", "p/"]]
            .into_iter()
            .enumerate()
    {
        let arguments = [&[&*file][..], options].concat();
        let (code, report) = report(&to, &arguments).await;
        assert_eq!((code, &report["unsettled"]), (0, &0.into()), "{report}");
        assert_eq!(received(&gateway).await, count + 1);
        fs::remove_file(&progress).unwrap();
    }
    // The same points under another name of the file's are the same.
    let (code, _) = report(&to, &[&file, "--wait"]).await;
    assert_eq!(code, 1, "whoever waits now did not ask for that before");
    assert_eq!(received(&gateway).await, 4);
}

/// A key that is known otherwise says so, and how to mend it; nothing is called settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_other_lines_is_told() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n");
    let other = write(dir.path(), "b.csv", "a\n1\n");
    let (to, at) = (url(&gateway), format!("{file}.pointsman-progress"));
    assert_eq!(report(&to, &[&file]).await.0, 0);
    let mut progress: Value = serde_json::from_slice(&fs::read(&at).unwrap()).unwrap();
    progress["offset"] = 0.into();
    progress["line"] = 0.into();
    progress["asked"]["points"]["prefix"] = "p/".into();
    fs::write(&at, serde_json::to_vec(&progress).unwrap()).unwrap();
    let output = submit(&to, &[&file, &other, "--prefix", "p/"]).await;
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("other options") && told.contains("--again"), "{told}");
    assert!(!told.contains("unsettled") && told.contains("b.csv: 1 point accepted"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_have_changed_are_named() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "a\n1\n");
    let to = url(&gateway);
    assert_eq!(report(&to, &[&file, "--prefix", "p/"]).await.0, 0);
    let (code, changed) = report(&to, &[&file, "--series", "s"]).await;
    let problem = changed["files"][0]["problem"].as_str().unwrap();
    assert!(code == 1 && problem.contains("(--prefix \"p/\", --series \"a\")"), "{problem}");
    let (code, _) = report(&to.replace("http://", ""), &[&file, "--prefix", "p/", "--wait"]).await;
    assert_eq!(code, 0, "the same address, and all is there already");
    assert_eq!(received(&gateway).await, 1);
}

/// What a file ends with is submitted as it is, and once more if it turns out to be another line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_line_of_a_file_may_be_written_on() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    let to = url(&gateway);
    let mut written = 1;
    for (more, code, accepted, refused) in [
        ("", 0, 1, 0),
        ("{\"name\":\"a\",\"value\":2}", 0, 2, 0),
        ("", 0, 2, 0),
        ("\n{\"name\":\"a\",\"va", 1, 2, 1),
        ("", 1, 2, 1),
        ("lue\":3", 1, 2, 1),
        ("}\r", 0, 3, 0),
        ("\n", 0, 3, 0),
        ("{\"name\":\"a\",\"value\":4}\n{\"name\":\"a\",\"value\":5}", 0, 5, 0),
    ] {
        append(&file, more);
        let (ended, report) = report(&to, &[&file]).await;
        let counts = (ended, &report["accepted"], &report["refused"]);
        assert_eq!(counts, (code, &accepted.into(), &refused.into()), "{more:?}: {report}");
        written += more.len() as u64;
        assert_eq!(received(&gateway).await, accepted, "{more:?}");
        let bytes = fs::metadata(&file).unwrap().len();
        assert_eq!(report["bytes"], bytes, "{written}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_written_anew_and_longer_is_another() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let rows = |first: u32, count: u32| {
        let rows = (first..first + count).map(|n| format!("{},1\n", 1_700_000_000 + n));
        rows.collect::<String>()
    };
    let head = "time,a\n".to_owned();
    let file = write(dir.path(), "a.csv", head.clone() + &rows(0, 1000));
    let to = url(&gateway);
    assert_eq!(report(&to, &[&file]).await.1["accepted"], 1000);
    write(dir.path(), "a.csv", head + &rows(0, 500) + &rows(5000, 600));
    let (code, report) = report(&to, &[&file]).await;
    assert_eq!((code, &report["accepted"]), (0, &1100.into()), "{report}");
    assert_eq!(received(&gateway).await, 2100);
}

/// Pipes of all sorts are read as standard input is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_read_only_once_is_read_once() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let lines = write(dir.path(), "lines", "{\"name\":\"a\",\"value\":1}\n");
    let fifo = dir.path().join("fifo.csv");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let program = env!("CARGO_BIN_EXE_pointsman");
    let submit = format!("'{program}' submit --to {} --report json", url(&gateway));
    let fifo = fifo.display();
    for (count, command) in [
        format!("{submit} - < '{lines}'"),
        format!("{submit} /dev/stdin < '{lines}'"),
        format!("cat '{lines}' | {submit} /dev/stdin"),
        format!("{submit} <(gzip -c '{lines}')"),
        format!("printf 'a\\n1\\n' > '{fifo}' & {submit} '{fifo}'"),
    ]
    .iter()
    .enumerate()
    {
        let mut bash = Command::new("bash");
        bash.args(["-c", command]).env_remove("POINTSMAN_URL").env_remove("POINTSMAN_TOKEN_FILE");
        let output = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["files"][0]["resumable"], false, "{command}");
        assert_eq!(received(&gateway).await, count + 1, "{command}");
    }
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 2, "nothing is kept beside them");
    let nowhere = format!("'{program}' submit --to 127.0.0.1:1 --timeout 0s - < '{lines}'");
    let output = Command::new("bash").args(["-c", &nowhere]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A name that is no text, one that is too long for another beside it, no place for notes, and
/// notes among the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_and_places_are_no_trouble() {
    use std::os::unix::ffi::OsStrExt as _;
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let to = url(&gateway);
    let odd = std::ffi::OsStr::from_bytes(b"\xff.jsonl");
    let long = "l".repeat(249) + ".jsonl";
    for name in [odd, long.as_ref()] {
        fs::write(dir.path().join(name), "{\"name\":\"a\",\"value\":1}\n").unwrap();
    }
    let file = write(dir.path(), "a.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    for _ in 0..2 {
        let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut command = command(&to, &[]);
        command.args(files);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(received(&gateway).await, 3);
    }
    let output = submit(&to, &[&file, "--again", "--state", &file]).await;
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches("an interruption would start anew").count(), 1, "{told}");
}

/// Others may write where the file lies, and a process may have to keep its files short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_in_the_place_of_progress_holds_nobody_up() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let to = url(&gateway);
    let file = write(dir.path(), "a\n\x1b[2J.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    let progress = PathBuf::from(format!("{file}.pointsman-progress"));
    nix::unistd::mkfifo(&progress, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for what in ["a pipe", "a device"] {
        let output = submit(&to, &[&file]).await;
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told.contains(what) && told.contains("say --state DIR"), "{told}");
        assert!(
            told.contains("/a\\n\\u{1b}[2J.jsonl: 0 points") && !told.contains('\x1b'),
            "{told}"
        );
        fs::remove_file(&progress).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &progress).unwrap();
    }
    fs::remove_file(&progress).unwrap();
    let program = env!("CARGO_BIN_EXE_pointsman");
    let mut bash = Command::new("bash");
    bash.args(["-c", "ulimit -f 0; exec \"$@\" 2>&1 | cat; exit \"${PIPESTATUS[0]}\"", "bash"]);
    bash.args([program, "submit", "--to", &to, &file]);
    let output = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("would start anew"), "{output:?}");
    assert_eq!(received(&gateway).await, 1);
}

/// Of a file that breaks off what can be read is sent, and the rest when it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_file_that_breaks_off_is_gone_on_with() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let line = "{\"name\":\"a\",\"value\":1}\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(line.repeat(1000).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let (first, second) = packed.split_at(packed.len() / 2);
    let file = write(dir.path(), "a.jsonl.gz", first);
    let (code, broken) = report(&url(&gateway), &[&file]).await;
    assert!(code == 1 && broken["accepted"].as_u64().unwrap() > 400, "{broken}");
    assert!(broken["files"][0]["problem"].is_string(), "{broken}");
    File::options().append(true).open(&file).unwrap().write_all(second).unwrap();
    let (code, whole) = report(&url(&gateway), &[&file]).await;
    assert_eq!((code, &whole["accepted"]), (0, &1000.into()), "{whole}");
    assert_eq!(received(&gateway).await, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absurd_durations_are_survived_or_refused() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    for (timeout, code) in [("36500d", 0), ("1e300d", 2), ("1e9999d", 2), ("NaNs", 2), ("-1s", 2)] {
        let timeout = format!("--timeout={timeout}");
        let output = submit(&url(&gateway), &[&file, &timeout]).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

/// A report that nobody could be told is no success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_cannot_be_written_is_no_success() {
    let gateway = gateway().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.jsonl", "{\"name\":\"a\",\"value\":1}\n");
    let program = env!("CARGO_BIN_EXE_pointsman");
    let to = url(&gateway);
    for (command, code) in [
        (format!("submit --to {to} '{file}' > /dev/null"), 0),
        (format!("submit --to {to} '{file}' > /dev/full"), 1),
        (format!("submit --to {to} '{file}' >&-"), 1),
        ("default-config > /dev/full".to_owned(), 1),
        ("default-config >&-".to_owned(), 1),
        ("default-config 1<> /dev/null".to_owned(), 0),
        ("check >&-".to_owned(), 1),
        ("check 2>&-".to_owned(), 0),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("'{program}' {command}")]).stdout(Stdio::null());
        let output = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.contains("standard output: "), code == 1, "{command}: {told}");
    }
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
    let nowhere = submit("http://127.0.0.1:1/?t=S3CR3T", &[&fine, "--timeout", "300ms"]).await;
    let told = String::from_utf8_lossy(&nowhere.stdout);
    assert_eq!(nowhere.status.code(), Some(1), "{told}");
    assert!(told.contains("http://127.0.0.1:1/v1/points: given up: "), "{told}");
    assert!(!told.contains("S3CR3T"), "{told}");
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
