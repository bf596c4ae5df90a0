//! A gateway for one case of the fault corpus: every listener is open, and whatever comes in is
//! caught twice, raw and in windows of a second.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, timeout};

use super::eventually::PATIENCE;
use super::gateway::Gateway;

/// A running gateway whose listeners are called `statsd`, `tsdb` and `api`.
pub struct Case {
    pub gateway: Gateway,
}

impl Case {
    /// Starts it with these sections added: limits of a listener, further backends and routes.
    pub async fn start(more: &str) -> Case {
        Case { gateway: Gateway::start(&Case::config(more)).await }
    }

    /// The configuration that [`Case::start`] uses.
    pub fn config(more: &str) -> String {
        format!("{LISTENERS}{CAPTURE}{more}")
    }

    /// Sends datagrams to the listener `statsd`, in order.
    pub async fn datagrams<D: AsRef<[u8]>>(&self, datagrams: impl IntoIterator<Item = D>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for datagram in datagrams {
            let datagram = datagram.as_ref();
            socket.send_to(datagram, self.gateway.addr("statsd", "udp")).await.unwrap();
        }
    }

    pub async fn connect(&self, listener: &str) -> TcpStream {
        let stream = TcpStream::connect(self.gateway.addr(listener, "tcp")).await.unwrap();
        // Each write is a segment of its own.
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends bytes over a connection of their own, ends it, and returns all that was answered.
    pub async fn exchange(&self, listener: &str, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect(listener).await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await
    }

    /// Waits until a listener has received so many points and refused what is expected, by
    /// reason, and until all of it is delivered; then every book must balance. Returns them.
    pub async fn books(&self, listener: &str, received: u64, rejected: Value) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ledger = self.gateway.ledger().await;
            let book = &ledger["listeners"][listener];
            let arrived = book["received"] == received && book["rejected"] == rejected;
            if (arrived && is_settled(&ledger)) || Instant::now() > deadline {
                assert_eq!((&book["received"], &book["rejected"]), (&received.into(), &rejected));
                assert_balanced(&ledger);
                assert!(is_settled(&ledger), "something is still under way: {ledger}");
                return ledger;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was caught raw: `name{key=value} kind value @rate`.
    pub fn raw(&self) -> Vec<String> {
        self.caught(false).iter().map(|row| format!("{} {}", series(row), measure(row))).collect()
    }

    /// The same in the order of the alphabet, for what arrives over several connections.
    pub fn raw_sorted(&self) -> Vec<String> {
        let mut raw = self.raw();
        raw.sort();
        raw
    }

    /// What was caught raw with its time in nanoseconds: `name{key=value} value time`.
    pub fn timed(&self) -> Vec<String> {
        let timed = |row: &Value| format!("{} {} {}", series(row), row["value"], row["time"]);
        self.caught(false).iter().map(timed).collect()
    }

    /// The columns of the windows of a series, in order.
    pub fn windows(&self, of: &str) -> Vec<Value> {
        let rows = self.caught(true).into_iter().filter(|row| series(row) == of);
        rows.map(|mut row| row["fields"].take()).collect()
    }

    /// The sum of a column over the windows of a series.
    pub fn sum(&self, of: &str, column: &str) -> f64 {
        self.windows(of).iter().filter_map(|fields| fields[column].as_f64()).sum()
    }

    /// A column in the last window of a series.
    pub fn last(&self, of: &str, column: &str) -> Value {
        self.windows(of).pop().unwrap_or_else(|| panic!("no window of {of}"))[column].take()
    }

    /// The series that windows were made for, each once.
    pub fn window_series(&self) -> Vec<String> {
        let rows = self.caught(true).into_iter().map(|row| (series(&row), ()));
        rows.collect::<BTreeMap<_, _>>().into_keys().collect()
    }

    fn caught(&self, in_windows: bool) -> Vec<Value> {
        let stdout = self.gateway.stdout();
        let whole = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let rows = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter_map(|mut row| {
            let name = row["name"].as_str().unwrap();
            let own = name.strip_prefix(WINDOWS).map(str::to_owned);
            if own.is_some() != in_windows {
                return None;
            }
            row["name"] = own.unwrap_or_else(|| name.to_owned()).into();
            Some(row)
        })
        .collect()
    }
}

/// Reads what a peer sends until it closes; panics if it does not.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset ends it as well.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the peer closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every book must balance.
pub fn assert_balanced(ledger: &Value) {
    for books in [&ledger["listeners"], &ledger["backends"]] {
        for (name, book) in books.as_object().unwrap() {
            assert_eq!(book["balanced"], true, "{name}: {book}");
        }
    }
}

/// Whether every book balances and nothing is under way.
fn is_settled(ledger: &Value) -> bool {
    let all = |books: &Value, holds: fn(&Value) -> bool| {
        books.as_object().unwrap().values().all(|book| book["balanced"] == true && holds(book))
    };
    all(&ledger["listeners"], |_| true)
        && all(&ledger["backends"], |book| book["held"]["total"] == 0)
}

fn series(row: &Value) -> String {
    let mut series = row["name"].as_str().unwrap().to_owned();
    let Some(tags) = row["tags"].as_object() else { return series };
    let spell = |(key, value): (&String, &Value)| match value.as_str() {
        Some(value) => format!("{key}={value}"),
        None => key.clone(),
    };
    let tags: Vec<_> = tags.iter().map(spell).collect();
    let _ = write!(series, "{{{}}}", tags.join(","));
    series
}

fn measure(row: &Value) -> String {
    let mut text = row["kind"].as_str().unwrap().to_owned();
    for key in ["value", "change", "member", "fields"] {
        match &row[key] {
            Value::Null => {}
            Value::String(value) => text = format!("{text} {value}"),
            value => text = format!("{text} {value}"),
        }
    }
    match &row["rate"] {
        Value::Null => text,
        rate => format!("{text} @{rate}"),
    }
}

/// Before the names of what was caught in windows.
const WINDOWS: &str = "windows/";

const LISTENERS: &str = r#"
[listeners.statsd]
protocol = "statsd"
bind = ["udp://127.0.0.1:0", "tcp://127.0.0.1:0"]

[listeners.tsdb]
protocol = "opentsdb"
bind = ["tcp://127.0.0.1:0"]

[listeners.api]
protocol = "http"
bind = ["tcp://127.0.0.1:0"]

[admin]
bind = "127.0.0.1:0"
"#;

const CAPTURE: &str = r#"
[backends.raw]
kind = "stdout"
flush = "50ms"

[backends.windows]
kind = "stdout"
aggregate = true
flush = "1s"
# Or rows of gauges would be under way at every full second.
expire = { gauge = "0s" }

[[routes]]
name = "raw"
to = ["raw"]

[[routes]]
name = "windows"
to = ["windows"]
rewrite = { name = "windows/${name}" }
"#;
