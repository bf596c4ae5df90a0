//! Under a service manager a restart loses nothing: sockets are handed in, each process takes up
//! where the one before it left off, and the manager hears how it goes.
//!
//! The manager is this test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Ended, Manager, Process, eventually, lines};
use nix::sys::signal::Signal;
use pointsman::config::Inputs;
use pointsman::plan::Plan;
use serde_json::Value;

#[tokio::test]
async fn activation_restarts_lose_no_datagram_and_refuse_no_client() {
    let manager = Manager::new();
    let senders = [
        Sender::start("udp", manager.udp_sender()),
        Sender::start("gram", manager.gram_sender()),
        Sender::start("stream", manager.stream_sender()),
        Sender::start("http", manager.http_sender()),
    ];
    let mut came: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..RESTARTS {
        let mut process = manager.start(&manager.config()).await;
        eventually("all four are heard", async || {
            let heard = process.heard();
            senders.iter().all(|sender| heard.get(sender.name).map_or(0, Vec::len) > 20)
        })
        .await;
        // They go on while this one ends and nobody is there.
        process.end_into(&mut came).await;
    }
    let mut process = manager.start(&manager.config()).await;
    let sent: BTreeMap<_, _> = senders.map(Sender::stop).into_iter().collect();
    let mut udp = 0;
    eventually("what was left has come", async || {
        let heard = process.heard();
        let so_far =
            |name: &str| came.get(name).map_or(0, Vec::len) + heard.get(name).map_or(0, Vec::len);
        udp = so_far("udp") + manager.dropped();
        udp >= sent["udp"].len() && so_far("gram") >= sent["gram"].len()
    })
    .await;
    process.end_into(&mut came).await;

    let dropped = manager.dropped();
    assert_eq!(came["udp"].len() + dropped, sent["udp"].len(), "dropped {dropped}");
    for (name, came) in &mut came {
        came.sort_unstable();
        let all = came.len();
        came.dedup();
        // Only a client that was not answered asks again.
        let asks = matches!(name.as_str(), "http" | "stream");
        assert!(asks || came.len() == all, "{name} came twice");
        let lost: Vec<_> = sent[name].iter().filter(|n| came.binary_search(n).is_err()).collect();
        let allowed = if name == "udp" { dropped } else { 0 };
        assert_eq!(lost.len(), allowed, "{name} of {}: {lost:?}", sent[name].len());
    }
    assert!(manager.file("gram").exists() && manager.file("stream").exists());
}

#[tokio::test]
async fn activation_waits_in_the_socket_for_the_next_process() {
    let manager = Manager::new();
    for run in 1..=3_u64 {
        // Nobody is there.
        for number in 0..50 {
            let line = format!("udp:{number}|g");
            manager.client.send_to(line.as_bytes(), manager.udp_address()).unwrap();
        }
        let mut process = manager.start(&manager.config()).await;
        eventually("they have waited", async || {
            process.heard().get("udp").map(Vec::len) == Some(50)
        })
        .await;
        let log = process.daemon.log();
        for transport in ["udp", "tcp", "unixgram", "unix"] {
            let handed = |line: &Value| {
                let address = line["address"].as_str().unwrap_or_default();
                line["message"] == "handed in" && address.starts_with(&format!("{transport}://"))
            };
            assert!(lines(&log).iter().any(handed), "{transport} in run {run}: {log}");
        }
        process.end_into(&mut BTreeMap::new()).await;
    }
    assert_eq!(manager.dropped(), 0);
}

#[tokio::test]
async fn activation_of_a_socket_that_no_listener_wants_is_told_once() {
    let manager = Manager::new();
    let config = manager.config();
    let without = config.replace(&format!("'unix://{}', ", manager.file("stream").display()), "");
    assert_ne!(config, without);
    let mut process = manager.start(&without).await;
    process.daemon.signal(Signal::SIGHUP);
    eventually("it has reloaded", async || process.daemon.log().contains("reloaded")).await;
    let log = process.daemon.log();
    let unwanted: Vec<_> = lines(&log)
        .into_iter()
        .filter(|line| line["message"].as_str().is_some_and(|said| said.contains("no listener")))
        .collect();
    assert_eq!(unwanted.len(), 1, "{log}");
    assert_eq!((&unwanted[0]["level"], &unwanted[0]["name"]), (&"WARN".into(), &"stream".into()));
    process.end_into(&mut BTreeMap::new()).await;
    assert!(manager.file("stream").exists());
}

#[tokio::test]
async fn activation_meant_for_another_process_is_not_taken() {
    let manager = Manager::new();
    let mut process = manager.launch(&manager.config(), "1");
    let status = eventually("it ends", async || process.daemon.exited()).await;
    assert_eq!(status.code(), Some(1));
    let log = process.daemon.log();
    assert!(log.contains("another program is using it") && !log.contains("handed in"), "{log}");
}

#[tokio::test]
async fn notify_hears_of_ready_reload_watchdog_and_stop() {
    let mut manager = Manager::new();
    let notify = UnixDatagram::bind(manager.file("notify")).unwrap();
    notify.set_nonblocking(true).unwrap();
    manager.listens = true;
    let mut process = manager.start(&manager.config()).await;
    let mut heard = Heard(&notify);
    let ready = heard.until("READY=1").await;
    assert_eq!(ready, "READY=1\nSTATUS=2 listeners, 1 route, 1 backend");
    assert_eq!(heard.until("WATCHDOG=1").await, "WATCHDOG=1");

    for (config, says) in
        [(manager.config(), "2 listeners"), ("nonsense".to_owned(), "the reload changed nothing")]
    {
        fs::write(manager.file("pointsman.toml"), config).unwrap();
        process.daemon.signal(Signal::SIGHUP);
        let reloading = heard.until("RELOADING=1").await;
        let stamp = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(stamp.unwrap().parse::<u64>().unwrap() > 0);
        let ready = heard.until("READY=1").await;
        assert!(ready.contains(&format!("\nSTATUS={says}")), "{ready}");
        assert_eq!(ready.lines().count(), 2, "{ready}");
    }
    heard.until("WATCHDOG=1").await;
    process.end_into(&mut BTreeMap::new()).await;
    heard.until("STOPPING=1").await;
}

#[test]
fn activation_as_packaged_hands_in_what_the_configuration_wants() {
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let unit = fs::read_to_string(packaged.join("pointsman.socket")).unwrap();
    let address = |line: &str| match line.split_once('=')? {
        ("ListenDatagram", place) => Some(format!("udp://{place}")),
        ("ListenStream", place) => Some(format!("tcp://{place}")),
        _ => None,
    };
    let handed_in: BTreeSet<_> = unit.lines().filter_map(address).collect();
    let files = vec![packaged.join("pointsman.toml")];
    let planned = Plan::load(&Inputs { files, ..Inputs::default() }).unwrap();
    assert_eq!(planned.warnings.lines(), [""; 0]);
    let listeners = planned.plan.listeners.into_values();
    let wanted: BTreeSet<_> = listeners.flat_map(|listener| listener.bind).collect();
    assert_eq!(handed_in, wanted);
}

/// Senders, which answer whether a number was taken.
impl Manager {
    fn udp_sender(&self) -> impl FnMut(u64) -> bool + Send + use<> {
        let (client, to) = (self.client.try_clone().unwrap(), self.udp_address());
        move |number| client.send_to(format!("udp:{number}|g").as_bytes(), to).is_ok()
    }

    /// Waits when nobody reads, so what is sent is never lost on the way.
    fn gram_sender(&self) -> impl FnMut(u64) -> bool + Send + use<> {
        let client = UnixDatagram::unbound().unwrap();
        client.connect(self.file("gram")).unwrap();
        client.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        move |number| client.send(format!("gram:{number}|g").as_bytes()).is_ok()
    }

    /// As [`Manager::http_sender`], by the file.
    fn stream_sender(&self) -> impl FnMut(u64) -> bool + Send + use<> {
        let path = self.file("stream");
        move |number| {
            let stream = UnixStream::connect(&path).expect("somebody always listens");
            stream.set_read_timeout(Some(ANSWER)).unwrap();
            is_answered(stream, &format!("{{\"name\":\"stream\",\"value\":{number}}}"))
        }
    }

    /// One connection a request, and 204 or it is asked again.
    fn http_sender(&self) -> impl FnMut(u64) -> bool + Send + use<> {
        let address = self.http.local_addr().unwrap();
        move |number| {
            let stream = TcpStream::connect(address).expect("somebody always listens");
            stream.set_read_timeout(Some(ANSWER)).unwrap();
            is_answered(stream, &format!("{{\"name\":\"http\",\"value\":{number}}}"))
        }
    }
}

fn is_answered(mut stream: impl Read + Write, body: &str) -> bool {
    let head = "POST /v1/points HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ";
    let request = format!("{head}{}\r\n\r\n{body}", body.len());
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 204")
}

/// Sends numbers until it is stopped; a number that is refused is tried again.
struct Sender {
    name: &'static str,
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Sender {
    // It hopes for nothing: so many a second, in a thread of its own.
    #[allow(clippy::disallowed_methods)]
    fn start(name: &'static str, mut send: impl FnMut(u64) -> bool + Send + 'static) -> Sender {
        let enough = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&enough);
        let thread = thread::spawn(move || {
            let mut sent = Vec::new();
            while !told.load(Ordering::Relaxed) {
                thread::sleep(PACE);
                let number = sent.len() as u64;
                if send(number) {
                    sent.push(number);
                }
            }
            sent
        });
        Sender { name, enough, thread }
    }

    fn stop(self) -> (String, Vec<u64>) {
        self.enough.store(true, Ordering::Relaxed);
        (self.name.to_owned(), self.thread.join().unwrap())
    }
}
impl Process {
    /// The numbers that came out, by the names they came under.
    fn heard(&self) -> BTreeMap<String, Vec<u64>> {
        read(&self.output)
    }

    /// Ends it and adds up what it said.
    async fn end_into(&mut self, came: &mut BTreeMap<String, Vec<u64>>) {
        let Ended { status, log } = self.daemon.terminate().await;
        assert!(status.success(), "{log}");
        for (name, numbers) in self.heard() {
            came.entry(name).or_default().extend(numbers);
        }
    }
}

fn read(output: &Path) -> BTreeMap<String, Vec<u64>> {
    let text = fs::read_to_string(output).unwrap();
    let mut heard: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let point: Value = serde_json::from_str(line).unwrap();
        let name = point["name"].as_str().unwrap().to_owned();
        heard.entry(name).or_default().push(point["value"].as_f64().unwrap() as u64);
    }
    heard
}

/// Reads what the manager is told, in order.
struct Heard<'a>(&'a UnixDatagram);

impl Heard<'_> {
    /// Skips to the first message that begins so.
    async fn until(&mut self, begin: &str) -> String {
        eventually(begin, async || {
            let mut buffer = [0; 4096];
            while let Ok(length) = self.0.recv(&mut buffer) {
                let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if said.starts_with(begin) {
                    return Some(said);
                }
            }
            None
        })
        .await
    }
}

const RESTARTS: usize = 5;

/// A client waits for an answer while one process ends and the next one starts.
const ANSWER: Duration = Duration::from_secs(20);

/// Fast enough that something is always on its way, slow enough for the kernel's buffers.
const PACE: Duration = Duration::from_millis(2);
