//! A real RabbitMQ, from Debian's packages: a node of its own name, cookie, ports and directory, and
//! its own `epmd`, all on loopback; nothing of it is left when the test ends.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use tempfile::TempDir;

use super::certificates::{Authority, Issued};
use super::daemon::{Daemon, with_output_in};
use super::eventually::{eventually, eventually_within};
use super::tools;

/// The broker.
pub struct RabbitMq {
    // Declared before the directory, so that the processes are dead when its files are removed.
    node: Daemon,
    _epmd: Daemon,
    ports: Ports,
    directory: TempDir,
}

#[derive(Clone, Copy)]
struct Ports {
    amqp: u16,
    amqps: u16,
    epmd: u16,
    /// Where nodes would talk to each other.
    nodes: u16,
}

/// Somebody who publishes, and is told when the broker has what was published on its disk.
pub struct Publisher {
    _connection: Connection,
    channel: Channel,
}

impl RabbitMq {
    /// One whose user is `pointsman`, with the password `secret`; it speaks TLS as well, with a
    /// certificate for 127.0.0.1 that this authority has signed.
    pub async fn start(authority: &Authority) -> RabbitMq {
        let directory = tempfile::tempdir().unwrap();
        let ports = Ports::free();
        let Issued { cert, key } = authority.issue(&["127.0.0.1"]);
        for (name, content) in [("ca.pem", authority.pem()), ("cert.pem", cert), ("key.pem", key)] {
            fs::write(directory.path().join(name), content).unwrap();
        }
        fs::write(directory.path().join("rabbitmq.conf"), configuration(directory.path(), ports))
            .unwrap();
        fs::write(directory.path().join("plugins"), "[].\n").unwrap();
        let cookie = directory.path().join(".erlang.cookie");
        fs::write(&cookie, "cookieofatest").unwrap();
        fs::set_permissions(cookie, Permissions::from_mode(0o400)).unwrap();
        let epmd = epmd(directory.path(), ports);
        let node = node(directory.path(), ports);
        let mut broker = RabbitMq { node, _epmd: epmd, ports, directory };
        broker.wait_until_ready().await;
        broker
    }

    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.ports.amqp)
    }

    pub fn secure_url(&self) -> String {
        format!("amqps://127.0.0.1:{}", self.ports.amqps)
    }

    /// Pulls the plug, and starts it again on the same ports and data.
    pub async fn restart(&mut self) {
        self.node.kill9();
        self.node = node(self.directory.path(), self.ports);
        self.wait_until_ready().await;
    }

    /// A publisher to these topic exchanges, which are made if they are not there.
    pub async fn publisher(&self, exchanges: &[&str]) -> Publisher {
        let url = format!("amqp://pointsman:secret@127.0.0.1:{}/%2f", self.ports.amqp);
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        for exchange in exchanges {
            let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
            let (name, kind) = ((*exchange).into(), ExchangeKind::Topic);
            channel.exchange_declare(name, kind, options, FieldTable::default()).await.unwrap();
        }
        Publisher { _connection: connection, channel }
    }

    async fn wait_until_ready(&mut self) {
        let output = self.directory.path().join("output");
        eventually_within(BOOT, "RabbitMQ has started", async || {
            self.node.assert_alive();
            fs::read_to_string(&output).is_ok_and(|text| text.contains("startup complete"))
        })
        .await;
    }
}

impl Publisher {
    /// Publishes under a routing key, and under further ones as a task's routes are.
    pub async fn publish(&self, exchange: &str, key: &str, routes: &[&str], payload: &str) {
        let copies = routes.iter().map(|route| AMQPValue::LongString(LongString::from(*route)));
        let copies = FieldArray::from(copies.collect::<Vec<_>>());
        let mut headers = FieldTable::default();
        headers.insert("CC".into(), AMQPValue::FieldArray(copies));
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers);
        let options = BasicPublishOptions::default();
        let (exchange, key) = (exchange.into(), key.into());
        let published =
            self.channel.basic_publish(exchange, key, options, payload.as_bytes(), properties);
        published.await.unwrap().await.unwrap();
    }

    /// How many messages lie in a queue that nobody has been sent, and how many listen there.
    pub async fn queue(&self, name: &str) -> (u32, u32) {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(name.into(), options, FieldTable::default()).await;
        let queue = queue.unwrap();
        (queue.message_count(), queue.consumer_count())
    }

    /// Waits until nothing lies in a queue and nobody holds anything back: whoever listens has gone.
    pub async fn is_empty_without_listeners(&self, name: &str) {
        eventually(&format!("{name} is left empty"), async || self.queue(name).await == (0, 0))
            .await;
    }
}

impl Ports {
    /// As the system gives them. All are held until the last is known.
    fn free() -> Ports {
        let held = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [amqp, amqps, epmd, nodes] = held.each_ref().map(|it| it.local_addr().unwrap().port());
        Ports { amqp, amqps, epmd, nodes }
    }
}

fn configuration(directory: &Path, ports: Ports) -> String {
    let Ports { amqp, amqps, .. } = ports;
    let directory = directory.display();
    format!(
        "listeners.tcp.1 = 127.0.0.1:{amqp}\n\
         listeners.ssl.1 = 127.0.0.1:{amqps}\n\
         ssl_options.cacertfile = {directory}/ca.pem\n\
         ssl_options.certfile = {directory}/cert.pem\n\
         ssl_options.keyfile = {directory}/key.pem\n\
         default_user = pointsman\n\
         default_pass = secret\n\
         log.console = true\n\
         log.console.level = info\n\
         log.file = false\n\
         disk_free_limit.absolute = 50MB\n"
    )
}

/// The directory of nodes, which would otherwise stay behind as a daemon.
fn epmd(directory: &Path, ports: Ports) -> Daemon {
    let mut command = Command::new(runtime().join("epmd"));
    command.args(["-address", "127.0.0.1", "-port"]).arg(ports.epmd.to_string());
    with_output_in(&mut command, &directory.join("epmd.output"));
    Daemon::spawn("epmd", &mut command, directory.join("epmd.log"))
}

/// Erlang's own loader becomes the node, so that our child is the node itself.
fn node(directory: &Path, ports: Ports) -> Daemon {
    let server = tools::installed("rabbitmq/server");
    let plugins = server.join("plugins");
    let mut command = Command::new(runtime().join("erlexec"));
    command
        .args(["-noinput", "-s", "rabbit", "boot", "-boot", "start_sasl", "+W", "w"])
        .args(["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"])
        .args(["-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"])
        .args(["-kernel", "inet_dist_use_interface", "{127,0,0,1}"])
        .env("ROOTDIR", tools::installed("rabbitmq/erlang"))
        .env("BINDIR", runtime())
        .env("EMU", "beam")
        .env("PROGNAME", "erl")
        .env("HOME", directory)
        .env("PATH", path_with(&runtime()))
        .env("ERL_LIBS", &plugins)
        .env("ERL_EPMD_PORT", ports.epmd.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_HOME", &server)
        .env("RABBITMQ_PLUGINS_DIR", &plugins)
        .env("RABBITMQ_NODENAME", format!("test{}@localhost", ports.amqp))
        .env("RABBITMQ_DIST_PORT", ports.nodes.to_string())
        .env("RABBITMQ_LOGS", "-")
        .current_dir(directory);
    for (name, file) in [
        ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced.config"),
        ("RABBITMQ_CONF_ENV_FILE", "rabbitmq-env.conf"),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
        ("RABBITMQ_FEATURE_FLAGS_FILE", "feature_flags"),
        ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
        ("RABBITMQ_LOG_BASE", "log"),
        ("RABBITMQ_MNESIA_BASE", "mnesia"),
        ("RABBITMQ_PID_FILE", "pid"),
    ] {
        command.env(name, directory.join(file));
    }
    with_output_in(&mut command, &directory.join("output"));
    Daemon::spawn("rabbitmq", &mut command, directory.join("log.stderr"))
}

/// Where the binaries of Erlang's runtime are.
fn runtime() -> PathBuf {
    let erlang = tools::installed("rabbitmq/erlang");
    let mut inside = fs::read_dir(&erlang).unwrap().map(|entry| entry.unwrap().path());
    let is_runtime =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("erts-");
    inside.find(is_runtime).expect("Erlang has a runtime").join("bin")
}

fn path_with(first: &Path) -> String {
    format!("{}:{}", first.display(), std::env::var("PATH").unwrap_or_default())
}

const PERSISTENT: u8 = 2;
/// It takes five seconds of a core, if it has one.
const BOOT: Duration = Duration::from_secs(90);
