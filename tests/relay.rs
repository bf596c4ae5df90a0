//! statsd lines to a statsd server: what needs no change arrives as it was sent, what needs some
//! arrives changed, all in the order of sending, in datagrams that are as full as they may be.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use common::{Gateway, StatsdJs, StatsdOptions, UdpSink, all_to, eventually};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

#[tokio::test]
async fn lines_that_need_no_change_keep_their_place_among_those_that_do() {
    let sink = UdpSink::start().await;
    let gateway = Gateway::start(&relay_to(&format!("udp://{}", sink.address()))).await;
    let sent: Vec<String> = (0..200).flat_map(numbered).collect();
    let expected: Vec<String> = (0..200).flat_map(numbered_as_sent_on).collect();
    send(&gateway, &sent).await;
    // Datagrams that were cut where others are not; no line is lost by that.
    eventually("all lines", async || sink.lines().len() >= expected.len()).await;
    assert_eq!(sink.lines(), expected);
    let points = expected.len() as u64;
    let book = gateway.book("old").await;
    assert_eq!((book["handed"].as_u64(), book["delivered"].as_u64()), (Some(points), Some(points)));
}

/// One of each: as it is, several values, a value that not all servers read, tags in the name, an
/// end of another system, and again as it is.
fn numbered(n: u32) -> Vec<String> {
    let line = |text: &str| text.replace('N', &n.to_string());
    ["a.N:1.50|ms|@0.1|#k:v", "b.N:1:2|c", "c.N:1e3|c", "d.N;k=v:7|g", "e.N:x:y|s\r", "f.N:-5|g"]
        .map(line)
        .to_vec()
}

fn numbered_as_sent_on(n: u32) -> Vec<String> {
    let line = |text: &str| text.replace('N', &n.to_string());
    let lines = ["a.N:1.50|ms|@0.1|#k:v", "b.N:1|c", "b.N:2|c", "c.N:1000|c", "d.N:7|g|#k:v"];
    lines.into_iter().chain(["e.N:x:y|s", "f.N:-5|g"]).map(line).collect()
}

/// A real server reads datagrams that were put together anew.
#[tokio::test]
async fn the_old_server_gets_each_line_once() {
    let statsd = StatsdJs::start(StatsdOptions::default()).await;
    let gateway = Gateway::start(&relay_to(&format!("udp://{}", statsd.address()))).await;
    let sent: Vec<String> = (0..500).map(|n| format!("hits.{}:{n}|c", n % 7)).collect();
    send(&gateway, &sent).await;
    let heard = || -> Vec<String> {
        let packets = statsd.packets();
        packets
            .iter()
            .flat_map(|packet| packet.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    eventually("statsd has all lines", async || heard().len() >= sent.len()).await;
    assert_eq!(heard(), sent);
    let flush = statsd.finish().await;
    let counters = flush["counters"].as_object().unwrap();
    let total: f64 = (0..7).map(|n| counters[&format!("hits.{n}")].as_f64().unwrap()).sum();
    assert_eq!(total, f64::from((0..500).sum::<u32>()));
}

/// Under load a datagram lacks less than a line. The socket is one at which senders wait, so that
/// none is lost.
#[tokio::test]
async fn datagrams_are_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let server = UnixDatagram::bind(&path).unwrap();
    let gateway = Gateway::start(&relay_to(&format!("unixgram://{}", path.display()))).await;
    let lines: Vec<String> = (0..20_000).map(|n| format!("some.name.{n}:{}|c", n * n)).collect();
    let heard = tokio::task::spawn_blocking(move || heard_by(&server, 20_000));
    let mut stream = TcpStream::connect(gateway.addr("statsd", "tcp")).await.unwrap();
    stream.write_all((lines.join("\n") + "\n").as_bytes()).await.unwrap();
    let heard = heard.await.unwrap();
    let all: Vec<&str> = heard.iter().flat_map(|datagram| datagram.lines()).collect();
    assert_eq!(all, lines);
    let longest = lines.iter().map(|line| line.len() + 1).max().unwrap();
    let full = heard.iter().filter(|datagram| datagram.len() + longest > 1432).count();
    // The last datagram of a payload, of which there are few, is what is left.
    assert!(full * 10 >= heard.len() * 9, "{full} of {}", heard.len());
    assert!(heard.iter().all(|datagram| datagram.len() <= 1432));
}

/// Datagrams until so many lines are there.
fn heard_by(server: &UnixDatagram, lines: usize) -> Vec<String> {
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut heard, mut count) = (Vec::new(), 0);
    let mut buffer = [0; 2048];
    while count < lines {
        let length = server.recv(&mut buffer).unwrap();
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        count += text.lines().count();
        heard.push(text);
    }
    heard
}

/// A few lines a datagram, in order.
async fn send(gateway: &Gateway, lines: &[String]) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(gateway.addr("statsd", "udp")).await.unwrap();
    for datagram in lines.chunks(7) {
        socket.send(datagram.join("\n").as_bytes()).await.unwrap();
    }
}

fn relay_to(address: &str) -> String {
    let listeners = "[admin]\nbind = '127.0.0.1:0'\n[listeners.statsd]\nprotocol = 'statsd'\n\
                     bind = ['udp://127.0.0.1:0', 'tcp://127.0.0.1:0']\n";
    let backend = format!(
        "[backends.old]\nkind = 'statsd'\naddress = '{address}'\nflush = '50ms'\nspool = false\n"
    );
    [listeners, &backend, &all_to(&["old"])].concat()
}
