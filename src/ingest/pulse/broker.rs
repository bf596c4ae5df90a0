//! The broker: a connection, a durable queue of our own, its bindings, and messages one by one.
//!
//! The queue and its bindings are declared each time, which changes nothing where they are as they
//! should be. Nothing here comes back by itself: whoever was cut off connects anew.

use super::carrier::{self, Carrier, Kit};
use super::config::Broker;
use crate::tls;
use futures_core::Stream as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties, Consumer};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Where messages come from.
#[derive(Debug)]
pub(super) struct Source {
    uri: AMQPUri,
    tls: tls::Client,
    queue: String,
    exchanges: Vec<String>,
    binding: String,
    prefetch: u16,
}

/// A connection on which messages come.
pub(super) struct Line {
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
    /// Severs the stream when this is dropped, whatever else happens.
    _severing: DropGuard,
}

impl Source {
    /// The broker of a configuration that was judged, for messages of tasks with that route.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn new(broker: &Broker, route: &str) -> Result<Self, String> {
        let mut uri = address(&broker.url)?;
        uri.authority.userinfo.username.clone_from(&broker.username);
        let password = broker.password.as_ref().map_or("", |password| password.expose());
        password.clone_into(&mut uri.authority.userinfo.password);
        uri.query.heartbeat = Some(HEARTBEAT_SECS);
        // A broker may say that its frames have no end, and the client makes room for some of them.
        uri.query.frame_max = Some(FRAME_BYTES);
        let settings = broker.tls.clone().unwrap_or_default();
        let (tls, _) = tls::Client::load(&settings).map_err(|problem| problem.to_string())?;
        Ok(Self {
            uri,
            tls,
            queue: broker.queue_name(),
            exchanges: broker.exchanges.clone(),
            binding: format!("route.{route}.#"),
            prefetch: broker.prefetch,
        })
    }

    /// What looks for new certificates.
    pub(super) const fn tls(&self) -> &tls::Client {
        &self.tls
    }

    /// Connects, declares the queue, and has messages sent.
    pub(super) async fn attach(&self) -> Result<Line, String> {
        let sever = CancellationToken::new();
        let severing = sever.clone().drop_guard();
        let connecting = carrier::connect(&self.uri, &self.tls, &sever);
        let stream = timeout(CONNECT_WAIT, connecting).await.map_err(|_| LATE)?;
        let stream = stream.map_err(|error| error.to_string())?;
        let attaching = self.attach_over(stream, severing);
        let attached = timeout(ANSWER_WAIT, attaching).await.map_err(|_| LATE)?;
        attached.map_err(|error| error.to_string())
    }

    async fn attach_over(&self, stream: Carrier, severing: DropGuard) -> lapin::Result<Line> {
        // The client asks for it once. It must not connect again by itself: its source does that.
        let stream = Mutex::new(Some(stream));
        let take = async move |_: AMQPUri, _| match stream.lock() {
            Ok(mut stream) => stream.take().map(AsyncTcpStream::Plain).ok_or_else(gone),
            Err(_) => Err(gone()),
        };
        let properties = ConnectionProperties::default().with_connection_name("pointsman".into());
        let runtime = carrier::kit();
        let connection =
            Connection::connector::<Kit>(self.uri.clone(), runtime, take, properties).await?;
        let channel = connection.create_channel().await?;
        let (durable, queue) = (QueueDeclareOptions::durable(), || self.queue.as_str().into());
        channel.queue_declare(queue(), durable, FieldTable::default()).await?;
        for exchange in &self.exchanges {
            let (exchange, key) = (exchange.as_str().into(), self.binding.as_str().into());
            let options = QueueBindOptions::default();
            channel.queue_bind(queue(), exchange, key, options, FieldTable::default()).await?;
        }
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        let consumer =
            channel.basic_consume(queue(), TAG.into(), options, FieldTable::default()).await?;
        Ok(Line { connection, channel, consumer, _severing: severing })
    }
}

impl Line {
    /// The next message; an error, or none, if there will be no more.
    pub(super) async fn next(&mut self) -> Option<lapin::Result<Delivery>> {
        let consumer = &mut self.consumer;
        poll_fn(|cx| Pin::new(&mut *consumer).poll_next(cx)).await
    }

    /// Stops the broker from sending more messages.
    pub(super) async fn pause(&self) {
        // If that fails the connection is broken, and nothing more comes over it either.
        let _ = timeout(CLOSE_WAIT, self.channel.basic_cancel(TAG.into(), CANCEL)).await;
    }

    /// Says good-bye. What was not acknowledged goes to somebody else.
    pub(super) async fn close(self) {
        let _ = timeout(CLOSE_WAIT, self.connection.close(200, "the listener stops".into())).await;
    }
}

/// Reads the broker's address: where it says no virtual host, or `/`, that is `/`.
///
/// # Errors
///
/// It is none; nothing of it is repeated.
pub(super) fn address(url: &str) -> Result<AMQPUri, String> {
    let parsed = reqwest::Url::parse(url).map_err(|_| "this is not a URL")?;
    let mut uri: AMQPUri = url.parse().map_err(|_| "this is not an AMQP URL")?;
    // Of addresses the client takes none from a URL.
    parsed.host_str().ok_or("there is no host")?.clone_into(&mut uri.authority.host);
    if uri.vhost.is_empty() {
        "/".clone_into(&mut uri.vhost);
    }
    Ok(uri)
}

fn gone() -> lapin::Error {
    io::Error::from(io::ErrorKind::NotConnected).into()
}

/// Unique in our channel.
const TAG: &str = "pointsman";
const CANCEL: BasicCancelOptions = BasicCancelOptions { nowait: false };
/// A broker that is silent for twice as long is gone.
const HEARTBEAT_SECS: u16 = 30;
/// As large as a RabbitMQ's, unless it is told otherwise.
const FRAME_BYTES: u32 = 128 << 10;
const CONNECT_WAIT: Duration = Duration::from_secs(15);
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// A stop has not much time left.
const CLOSE_WAIT: Duration = Duration::from_millis(250);
const LATE: &str = "it does not answer in time";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[test]
    fn addresses_of_brokers() {
        let check = |url: &str, host: &str, port: u16, vhost: &str| {
            let uri = address(url).unwrap();
            let found = (uri.authority.host.as_str(), uri.authority.port, uri.vhost.as_str());
            assert_eq!(found, (host, port, vhost), "{url}");
        };
        check("amqps://pulse.example.com", "pulse.example.com", 5671, "/");
        check("amqps://pulse.example.com/", "pulse.example.com", 5671, "/");
        check("amqp://127.0.0.1:1234/%2F", "127.0.0.1", 1234, "/");
        check("amqp://[::1]/tasks", "[::1]", 5672, "tasks");
        for url in ["", "pulse.example.com", "https://pulse.example.com", "amqp://"] {
            assert!(address(url).is_err(), "{url}");
        }
    }

    /// 0 stands for no limit.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_are_no_larger_than_there_is_room_for() {
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let source = source_of(&broker);
        let talk = async {
            let mut stream = broker.accept().await.unwrap().0;
            stream.read_exact(&mut [0; 8]).await.unwrap();
            let start = [&[0, 10, 0, 10, 0, 9, 0, 0, 0, 0][..], b"\0\0\0\x05PLAIN\0\0\0\x05en_US"];
            say(&mut stream, &start.concat()).await;
            hear(&mut stream).await;
            say(&mut stream, &[0, 10, 0, 30, 0, 0, 0, 0, 0, 0, 0, 60]).await;
            hear(&mut stream).await
        };
        let tuned = tokio::select! {
            tuned = talk => tuned,
            attached = source.attach() => panic!("{:?}", attached.err()),
        };
        assert_eq!(tuned[..4], [0, 10, 0, 31]);
        assert_eq!(tuned[6..10], (128_u32 << 10).to_be_bytes(), "{tuned:?}");
    }

    fn source_of(broker: &TcpListener) -> Source {
        let url = format!("amqp://{}", broker.local_addr().unwrap());
        let section = json!({ "url": url, "username": "u", "password": "p" });
        Source::new(&serde_json::from_value(section).unwrap(), "statistics").unwrap()
    }

    /// A method, in a frame of channel 0.
    async fn say(stream: &mut TcpStream, method: &[u8]) {
        let len = u32::try_from(method.len()).unwrap().to_be_bytes();
        let frame = [&[1, 0, 0][..], &len, method, &[0xce]].concat();
        stream.write_all(&frame).await.unwrap();
    }

    async fn hear(stream: &mut TcpStream) -> Vec<u8> {
        let mut head = [0; 7];
        stream.read_exact(&mut head).await.unwrap();
        let len = u32::from_be_bytes(head[3..].try_into().unwrap()) as usize;
        let mut rest = vec![0; len + 1];
        stream.read_exact(&mut rest).await.unwrap();
        rest
    }

    /// The client's thread ends as well, or the listener would gather them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_broker_that_says_nothing_is_left() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let source = source_of(&silent);
        let (attached, accepted) =
            tokio::join!(timeout(Duration::from_millis(300), source.attach()), silent.accept());
        assert!(attached.is_err(), "it waits for longer than this");
        let mut stream = accepted.unwrap().0;
        let mut said = Vec::new();
        let end = timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await;
        assert!(end.is_ok(), "the stream ends");
        assert!(said.starts_with(b"AMQP"));
    }
}
