//! `pointsman logs`: a log goes through as it came, whatever becomes of the points in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{API, Answer, FakeHttp, Gateway, all_to, size};
use serde_json::Value;

fn command(to: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    for variable in ["POINTSMAN_URL", "POINTSMAN_TOKEN_FILE", "TASK_ID", "RUN_ID"] {
        command.env_remove(variable);
    }
    command.args(["logs", "--to", to]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn logs(to: &str, arguments: &[&str], log: impl AsRef<[u8]>) -> Output {
    let (mut command, log) = (command(to, arguments), log.as_ref().to_vec());
    let run = move || {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feeding = thread::spawn(move || stdin.write_all(&log));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap().unwrap();
        output
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const LOG: &str = "\x1b[1mmake all\x1b[0m\r\n\
    [taskcluster-task:stat] {\"name\":\"a\",\"value\":1}\n\
    \x1b[32m[taskcluster-task:stat] {\"name\":\"b\",\"ok\":true}\x1b[0m\r\n\
    [taskcluster-task:stat] {\"name\":\"c\"}\n\
    [taskcluster-task:stat] c=1\n\
    see [taskcluster-task:stat] {\"name\":\"d\",\"value\":1}\n\
    [taskcluster-task:stat] {\"name\":\"e\",\"value\":1}";

/// Whoever has it in a script would wait for points for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_no_line_can_begin_with_is_told() {
    for (mark, is_found) in [("STAT", true), ("\x1b[1mSTAT", true), ("ST\nAT", false)] {
        let log = format!("{mark} {{\"name\":\"a\",\"value\":1}}\n");
        let output = logs("http://127.0.0.1:1", &["--prefix", mark, "--grace", "0s"], &log).await;
        let told = told(&output);
        assert_eq!(told.contains("1 not sent"), is_found, "{told}");
        assert_eq!(told.contains("no line can begin with this --prefix"), !is_found, "{told}");
    }
}

/// It is busy enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_asks_for_much_time_has_it() {
    let wish = |_: &_| Answer::status(503).header("retry-after", "86400");
    let gateway = FakeHttp::judging(wish).await;
    let output = logs(&gateway.url(), &["--grace", "1s"], LOG).await;
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), LOG.as_bytes()));
    assert!(told(&output).contains("4 not sent"), "{}", told(&output));
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_of_a_log_reach_the_gateway() {
    let config = [API, "[backends.out]\nkind = 'stdout'\n", &all_to(&["out"])].concat();
    let mut gateway = Gateway::start(&config).await;
    let to = format!("http://{}", gateway.addr("api", "tcp"));
    let output = logs(&to, &["--series-prefix", "task-statistics/"], LOG).await;
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), LOG.as_bytes()));
    let expected = "pointsman logs: 3 points accepted, 1 refused, 1 without an object\n\
                    pointsman logs: the point has no value and no field: {\"name\":\"c\"}\n";
    assert_eq!(told(&output), expected);
    let bad = mark(1).replace(":1}", ":NaN}") + "[taskcluster-task:stat] {\"nome\":\"\u{9b}2J\"}\n";
    let output = logs(&to, &["--task", "t"], &bad).await;
    let expected = "pointsman logs: 0 points accepted, 2 refused\n\
                    pointsman logs: the JSON is broken at column";
    let told = told(&output);
    assert!(told.starts_with(expected), "{told}");
    assert!(
        told.contains(":NaN}\n") && told.contains("there is no `name`: {\"nome\":\"\\u{9b}2J\"}"),
        "{told}"
    );
    gateway.terminate().await;
    for name in ["task-statistics/a", "task-statistics/b", "task-statistics/e"] {
        assert!(gateway.stdout().contains(&format!("\"name\":\"{name}\"")), "{}", gateway.stdout());
    }
}

/// A log of points with these numbers, with a line that is none and one that is no point in between.
fn numbered(numbers: std::ops::Range<u64>) -> String {
    let lines = numbers.map(|number| match number % 7 {
        3 => "make all\n[taskcluster-task:stat] {\"name\":1}\n".to_owned() + &mark(number),
        _ => mark(number),
    });
    lines.collect()
}

/// A gateway, and the command that reads a log of run 0 of task T.
async fn counting_once(more: &'static [&'static str]) -> (Gateway, impl AsyncFn(String) -> String) {
    let config = [API, "[backends.out]\nkind = 'stdout'\n", &all_to(&["out"])].concat();
    let gateway = Gateway::start(&config).await;
    let to = format!("http://{}", gateway.addr("api", "tcp"));
    let read = async move |log: String| {
        let arguments = [&["--task", "T", "--run", "0", "--grace", "20s"], more].concat();
        told(&logs(&to, &arguments, log).await)
    };
    (gateway, read)
}

/// The numbers of all points that went out.
async fn numbers(gateway: &mut Gateway) -> Vec<u64> {
    gateway.terminate().await;
    let mut numbers: Vec<_> = gateway.stdout().lines().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Whole, cut off, longer, by two readers at once, and once more over a restart of the gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_read_again_counts_once() {
    let (mut gateway, read) = counting_once(&[]).await;
    let (short, middle, whole) = (numbered(0..5), numbered(0..150), numbered(0..400));
    assert!(read(short.clone()).await.contains("5 points accepted, 1 refused"));
    let again = read(short.clone()).await;
    assert!(again.contains("5 points accepted (5 of them when they were sent before)"), "{again}");
    let longer = read(middle.clone()).await;
    assert!(longer.contains("150 points accepted (5 of them when"), "{longer}");
    tokio::join!(read(whole.clone()), read(whole.clone()), read(middle));
    let shorter = read(short).await;
    assert!(shorter.contains("accepted (5 of them"), "{shorter}");
    let all = read(whole).await;
    assert!(all.contains("400 points accepted (400 of them when they were sent before)"), "{all}");
    assert!(numbers(&mut gateway).await.into_iter().eq(0..400), "each of them, once");
}

/// Line by line, as a task writes them, and then in one go; and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_log_came_makes_no_difference() {
    let config = [API, "[backends.out]\nkind = 'stdout'\n", &all_to(&["out"])].concat();
    let mut gateway = Gateway::start(&config).await;
    let to = format!("http://{}", gateway.addr("api", "tcp"));
    let arguments = ["--once", "--grace", "20s"];
    let read = async |task: &str, pieces: Vec<String>| {
        let mut command = command(&to, &arguments);
        command.env("TASK_ID", task).env("RUN_ID", "1");
        #[allow(clippy::disallowed_methods)] // A task takes its time, on a thread of its own.
        let run = move || {
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            for piece in pieces {
                stdin.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            drop(stdin);
            told(&child.wait_with_output().unwrap())
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let slowly = |numbers: std::ops::Range<u64>| numbers.map(|n| numbered(n..n + 1)).collect();
    for (task, first, then) in
        [("A", slowly(0..20), vec![numbered(0..30)]), ("B", vec![numbered(0..20)], slowly(0..30))]
    {
        assert!(read(task, first).await.contains("20 points accepted,"));
        let told = read(task, then).await;
        assert!(told.contains("30 points accepted (20 of them when"), "{told}");
    }
    let twice = (0..30).flat_map(|number| [number; 2]);
    assert!(numbers(&mut gateway).await.into_iter().eq(twice), "each of both tasks, once");
}

/// What was sent as this log was another one: nothing is lost silently, and a name mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_log_of_the_same_run_needs_a_name() {
    let (mut gateway, read) = counting_once(&[]).await;
    assert!(read(numbered(0..5)).await.contains("5 points accepted"));
    let told = read(numbered(100..103)).await;
    assert!(told.contains("0 points accepted") && told.contains("3 unsettled"), "{told}");
    assert!(told.contains("tell it from that with --log"), "{told}");
    let to = format!("http://{}", gateway.addr("api", "tcp"));
    let arguments = ["--task", "T", "--run", "0", "--log", "tests"];
    assert!(self::told(&logs(&to, &arguments, numbered(100..103)).await).contains("3 points"));
    let without = self::told(&logs(&to, &["--once"], numbered(200..201)).await);
    assert!(
        without.contains("neither --task nor $TASK_ID") && without.contains("1 point accepted")
    );
    let numbers = numbers(&mut gateway).await;
    assert!(numbers.into_iter().eq((0..5).chain(100..103).chain(200..201)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_goes_in_halves() {
    let fake = FakeHttp::judging(|request| match request.body.contains("long") {
        true => Answer::status(413),
        false => Answer::status(204),
    })
    .await;
    let mark = "[taskcluster-task:stat]";
    let log =
        ["one", "two", "long", "four"].map(|name| format!("{mark} {{\"name\":\"{name}\"}}\n"));
    let output = logs(&fake.url(), &[], log.concat()).await;
    let told = told(&output);
    assert!(
        output.status.success() && told.contains("longer than what the gateway takes"),
        "{told}"
    );
    let taken = fake.received().into_iter().filter(|request| !request.body.contains("long"));
    let lines: Vec<_> =
        taken.flat_map(|taken| taken.body.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(lines, ["one", "two", "four"].map(|name| format!("{{\"name\":\"{name}\"}}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_points_is_just_a_log() {
    let log = b"x\0\xff\n\n\x1b]0;title\x07\x1b[31mtoken=s3cret\x1b[0m\rprogress\r\x1b[2K\n no end";
    let output = logs("http://127.0.0.1:1", &[], log).await;
    assert_eq!((output.status.code(), &*told(&output)), (Some(0), ""));
    assert_eq!(output.stdout, log);
    assert_eq!(logs("http://127.0.0.1:1", &[], "").await.stdout, b"");
}

/// Away, dead, wrong: the log is whole, and over after the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gateway_holds_up_a_log() {
    let silent = FakeHttp::judging(|_| Answer::hang()).await;
    let guarded = FakeHttp::judging(|_| Answer::status(401)).await;
    for (to, arguments, says) in [
        ("http://127.0.0.1:1", &["--grace", "100ms"][..], "4 not sent"),
        (&silent.url(), &["--grace", "100ms"], "4 not sent"),
        (&guarded.url(), &[], "the gateway asks for credentials"),
        ("udp://127.0.0.1:1", &[], "is no address of a gateway"),
        (&silent.url(), &["--token-file", "/no/such/file"], "the token file /no/such/file"),
    ] {
        let began = Instant::now();
        let output = logs(to, arguments, LOG).await;
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), LOG.as_bytes()), "{to}");
        assert!(told(&output).contains(says), "{}", told(&output));
        assert!(began.elapsed() < Duration::from_secs(2), "{to}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_who_is_gone_ends_it() {
    let mut child = command("http://127.0.0.1:1", &["--grace", "0s"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(LOG.as_bytes());
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(1));
}

/// What is lost of a log is told, and is no success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_not_whole_is_told() {
    let program = env!("CARGO_BIN_EXE_pointsman");
    for (redirections, code, says) in [
        ("> /dev/null", 0, ""),
        ("1<> /dev/null", 0, ""),
        (">&-", 1, "standard output: "),
        ("> /dev/full", 1, "standard output: No space left"),
        ("> /dev/null < /", 1, "standard input: Is a directory"),
        ("> /dev/null <&-", 1, "standard input: "),
        ("> /dev/null < /dev/null", 0, ""),
    ] {
        let command = format!("echo x | '{program}' logs --grace 36500d {redirections}");
        let run = move || Command::new("bash").args(["-c", &command]).output().unwrap();
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let told = told(&output);
        assert_eq!(output.status.code(), Some(code), "{redirections}: {told}");
        assert!(told.contains(says) && told.is_empty() == says.is_empty(), "{told}");
    }
}

/// A large log, whose gateway is away half of the time: it is not changed by a byte, hardly slower
/// than through `cat`, and every point in it arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_log_passes_unchanged_at_the_speed_of_a_pipe() {
    let blocks = size(64, 5 << 10);
    let bare = tokio::task::spawn_blocking(move || pass(&mut Command::new("cat"), blocks));
    let (bare, _) = bare.await.unwrap();
    let gateway = Unsteady::start().await;
    let mut command = command(&gateway.url, &["--grace", "10s"]);
    let passing = tokio::task::spawn_blocking(move || pass(&mut command, blocks));
    let received = gateway.waver_until(|| passing.is_finished()).await;
    let (took, summary) = passing.await.unwrap();
    let rate = |took: Duration| blocks as f64 / 1024.0 / took.as_secs_f64();
    eprintln!(
        "{blocks} MiB: {:.2} GiB/s, through cat {:.2} GiB/s: {:.0}%; {}",
        rate(took),
        rate(bare),
        100.0 * rate(took) / rate(bare),
        summary.trim()
    );
    assert!(summary.contains(&format!("{blocks} points accepted\n")), "{summary}");
    let mut numbers: Vec<_> = received.values().flat_map(|body| body.lines()).map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..blocks).collect::<Vec<_>>());
}

fn number(line: &str) -> u64 {
    let point: Value = serde_json::from_str(line).unwrap();
    point["value"].as_u64().unwrap()
}

/// A server that goes and comes back.
struct Unsteady {
    server: FakeHttp,
    url: String,
}

impl Unsteady {
    async fn start() -> Self {
        let server = FakeHttp::start([]).await;
        let url = server.url();
        Self { server, url }
    }

    /// Goes and comes, as often as not; answers what came, by key.
    async fn waver_until(self, over: impl Fn() -> bool) -> BTreeMap<String, String> {
        let (address, mut server) = (self.server.address(), self.server);
        let mut received = BTreeMap::new();
        loop {
            let ends = over();
            tokio::time::sleep(Duration::from_millis(250)).await;
            for request in server.received() {
                let key = request.header("idempotency-key").unwrap().to_owned();
                received.insert(key, request.body);
            }
            if ends {
                return received;
            }
            drop(server);
            tokio::time::sleep(Duration::from_millis(250)).await;
            server = FakeHttp::start_at(address, []).await;
        }
    }
}

/// Passes so many MiB through a command, each with a point before it; answers how long that took,
/// and what was said on standard error. Panics if a byte is not as it was.
fn pass(command: &mut Command, blocks: u64) -> (Duration, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let began = Instant::now();
    let feeding = thread::spawn(move || feed(stdin, blocks));
    compare(stdout, blocks);
    let took = began.elapsed();
    feeding.join().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success());
    (took, told)
}

fn feed(mut stdin: ChildStdin, blocks: u64) {
    let block = block();
    for number in 0..blocks {
        stdin.write_all(mark(number).as_bytes()).unwrap();
        stdin.write_all(&block).unwrap();
    }
}

/// Reads as much at once as there is, and compares it with what was fed.
fn compare(mut stdout: ChildStdout, blocks: u64) {
    let (block, mut buffer) = (block(), vec![0; 1 << 20]);
    let mut fed = (0..blocks).flat_map(|number| [Some(mark(number)), None]);
    let (mut present, mut at) = (Vec::new(), 0);
    loop {
        let len = stdout.read(&mut buffer).unwrap();
        let mut got = &buffer[..len];
        while !got.is_empty() {
            if at == present.len() {
                at = 0;
                present = fed.next().unwrap().map_or_else(|| block.clone(), String::into_bytes);
            }
            let both = got.len().min(present.len() - at);
            assert!(got[..both] == present[at..at + both], "the log was changed");
            (got, at) = (&got[both..], at + both);
        }
        if len == 0 {
            return assert!(fed.next().is_none() && at == present.len(), "the log was cut");
        }
    }
}

fn mark(number: u64) -> String {
    format!("[taskcluster-task:stat] {{\"name\":\"n\",\"value\":{number}}}\n")
}

/// 1 MiB of a usual log.
fn block() -> Vec<u8> {
    let line = |n: usize| {
        format!("[task 2026-12-01T03:00:00.{n:06}Z] TEST-PASS | dom/test_{n}.html | took {n}ms\n")
    };
    let mut block: String = (0..).map(line).take(16_000).collect();
    block.truncate((1 << 20) - 1);
    block.push('\n');
    block.into_bytes()
}
