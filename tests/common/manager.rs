//! A service manager, as far as the binary sees of one.
//!
//! It binds the sockets, keeps them, and starts the binary by way of a shell, which alone can put
//! a process's own number into its `LISTEN_PID`.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::Command;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Daemon, with_output_in};
use super::eventually::eventually;

/// What the service manager is to the binary.
pub struct Manager {
    pub udp: UdpSocket,
    pub http: TcpListener,
    pub admin: TcpListener,
    /// Whether it wants to be told how things go.
    pub listens: bool,
    pub client: UdpSocket,
    /// Descriptors of all that is handed in, with names; a process that is started has them too.
    handed: Vec<(&'static str, RawFd)>,
    directory: TempDir,
}

impl Manager {
    pub fn new() -> Manager {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        // As ReceiveBuffer= does; without the privilege, the usual one has to do.
        let _ = setsockopt(&udp, sockopt::RcvBufForce, &(4 << 20));
        let (http, admin) = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).into();
        let gram = UnixDatagram::bind(file("gram")).unwrap();
        let stream = UnixListener::bind(file("stream")).unwrap();
        let handed = vec![
            ("udp", inherited(&udp)),
            ("stream", inherited(&stream)),
            ("admin", inherited(&admin)),
            ("gram", inherited(&gram)),
            ("http", inherited(&http)),
        ];
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        Manager { udp, http, admin, listens: false, client, handed, directory }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn udp_address(&self) -> SocketAddr {
        self.udp.local_addr().unwrap()
    }

    /// All sockets, and a backend that prints what comes.
    pub fn config(&self) -> String {
        self.config_to("kind = 'stdout'\nflush = '10ms'")
    }

    /// All sockets, and this backend.
    pub fn config_to(&self, backend: &str) -> String {
        format!(
            "[admin]\nbind = '{}'\n\
             [listeners.statsd]\nprotocol = 'statsd'\n\
             bind = ['udp://{}', 'unixgram://{}']\n\
             [listeners.api]\nprotocol = 'http'\nbind = ['unix://{}', 'tcp://{}']\n\
             [backends.b]\n{backend}\n[[routes]]\nto = ['b']\n",
            self.admin.local_addr().unwrap(),
            self.udp_address(),
            self.file("gram").display(),
            self.file("stream").display(),
            self.http.local_addr().unwrap(),
        )
    }

    /// Starts a process that is meant, and waits until it is ready.
    pub async fn start(&self, config: &str) -> Process {
        let mut process = self.launch(config, "$$");
        eventually("the gateway is ready", async || {
            process.daemon.assert_alive();
            lines(&process.daemon.log()).iter().any(|line| line["message"] == "ready")
        })
        .await;
        process
    }

    /// Starts a process with sockets that are meant for this one.
    pub fn launch(&self, config: &str, listen_pid: &str) -> Process {
        fs::write(self.file("pointsman.toml"), config).unwrap();
        let (names, fds): (Vec<_>, Vec<_>) = self.handed.iter().copied().unzip();
        let moves: Vec<_> = (3..).zip(&fds).map(|(to, from)| format!("{to}<&{from}-")).collect();
        let script =
            format!("exec {}; export LISTEN_PID={listen_pid}; exec \"$@\"", moves.join(" "));
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_pointsman")]);
        command.args(["run", "--log-format", "json", "--config"]);
        command.arg(self.file("pointsman.toml")).arg("--data-dir").arg(self.file("data"));
        command.env("LISTEN_FDS", fds.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        if self.listens {
            command.env("NOTIFY_SOCKET", self.file("notify")).env("WATCHDOG_USEC", "200000");
        }
        let output = self.file("stdout");
        with_output_in(&mut command, &output);
        Process { daemon: Daemon::spawn("pointsman", &mut command, self.file("log")), output }
    }

    /// What the kernel has thrown away of the datagrams that were sent here.
    pub fn dropped(&self) -> usize {
        loop {
            if let Some((_, dropped)) = in_kernel(self.udp_address()) {
                return dropped;
            }
        }
    }
}

/// One process of many, on the same sockets.
pub struct Process {
    pub daemon: Daemon,
    /// What it prints.
    pub output: PathBuf,
}

/// How many bytes wait in a UDP socket, and how many datagrams found no room there. `None` if it
/// is not known: the kernel's table may skip a row while sockets come and go elsewhere.
pub fn in_kernel(socket: SocketAddr) -> Option<(usize, usize)> {
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let local = format!(":{:04X}", socket.port());
    let mut rows = table.lines().map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1].ends_with(&local))?;
    let waiting = usize::from_str_radix(row[4].split_once(':')?.1, 16).ok()?;
    Some((waiting, row.last()?.parse().ok()?))
}

/// Another descriptor, which a process that is started has too; out of the way of its first ones.
fn inherited(socket: &impl AsFd) -> RawFd {
    fcntl(socket, FcntlArg::F_DUPFD(100)).unwrap()
}

/// The lines of a log that are JSON.
pub fn lines(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
