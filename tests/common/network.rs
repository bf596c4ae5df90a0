//! A network of a test's own, made of the kernel's namespaces: ports that nobody else uses, a
//! resolver of one's choice, a neighbour at the other end of a cable, mounts that nobody else sees.
//!
//! The whole test runs inside, with every task and every process that it starts. All of it goes
//! away with the thread; nothing on this host is changed. Only root may do this: without the
//! right, the test says so and is skipped.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;

/// Runs a test in an empty network of its own. Loopback is up; `/etc/resolv.conf` says that the
/// resolver is at 127.0.0.1:53, where the test may put one.
pub fn in_own_network<T: Future<Output = ()>>(test: impl FnOnce() -> T + Send + 'static) {
    let inside = thread::spawn(|| {
        if let Err(reason) = move_out() {
            eprintln!("skipped: no network of one's own may be made here ({reason})");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = inside.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Moves this thread, and what it starts from now on, into a network and mounts of their own.
fn move_out() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|error| error.to_string())?;
    run("ip link set lo up")?;
    run("mount --make-rprivate /")?;
    let resolver = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(resolver.path(), "nameserver 127.0.0.1\noptions timeout:1\n").unwrap();
    // The mount keeps the file when its name has gone.
    run(&format!("mount --bind {} /etc/resolv.conf", resolver.path().display()))
}

/// Another network, which is reached over a cable.
pub struct Neighbour {
    /// Bound over there, in the order asked for,
    pub sockets: Vec<UdpSocket>,
    /// and so are these, at the same addresses.
    pub listeners: Vec<TcpListener>,
}

impl Neighbour {
    /// Lays a cable between this network, where it has the addresses `here`, and a new one, where
    /// it has the addresses `there` (`10.9.0.2/24`), and binds sockets for UDP and TCP at its far
    /// end.
    pub async fn start(here: &[&str], there: &[&str], bind: &[SocketAddr]) -> Neighbour {
        let owned = |addresses: &[&str]| addresses.iter().map(|one| (*one).to_owned()).collect();
        let (here, there): (Vec<String>, Vec<String>) = (owned(here), owned(there));
        let (tell_id, id) = oneshot::channel();
        let (laid, cable) = oneshot::channel();
        let (hand_over, bound) = oneshot::channel();
        let bind = bind.to_vec();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            tell_id.send(gettid()).unwrap();
            cable.blocking_recv().unwrap();
            bring_up("far", &there);
            let sockets = |address: &SocketAddr| {
                let udp = std::net::UdpSocket::bind(address).unwrap();
                let tcp = std::net::TcpListener::bind(address).unwrap();
                udp.set_nonblocking(true).unwrap();
                tcp.set_nonblocking(true).unwrap();
                (udp, tcp)
            };
            hand_over.send(bind.iter().map(sockets).collect::<Vec<_>>()).unwrap();
        });
        let id = id.await.unwrap();
        run("ip link add near type veth peer name far").unwrap();
        run(&format!("ip link set far netns {id}")).unwrap();
        laid.send(()).unwrap();
        bring_up("near", &here);
        let bound = bound.await.unwrap().into_iter();
        let (sockets, listeners) = bound
            .map(|(udp, tcp)| {
                (UdpSocket::from_std(udp).unwrap(), TcpListener::from_std(tcp).unwrap())
            })
            .unzip();
        Neighbour { sockets, listeners }
    }

    /// From now on what is sent to this address of the neighbour gets lost without a word, as in a
    /// cable that is cut behind the next switch.
    pub fn cut(address: &str) {
        run(&format!("ip neigh replace {address} lladdr {NOBODY} dev near nud permanent")).unwrap();
    }

    /// The cable is mended.
    pub fn mend(address: &str) {
        run(&format!("ip neigh del {address} dev near")).unwrap();
    }
}

fn bring_up(device: &str, addresses: &[String]) {
    for address in addresses {
        // Without `nodad` an IPv6 address is of no use for a second or two.
        let nodad = if address.contains(':') { "nodad" } else { "" };
        run(&format!("ip addr add {address} dev {device} {nodad}")).unwrap();
    }
    run(&format!("ip link set {device} up")).unwrap();
}

fn run(command: &str) -> Result<(), String> {
    let mut words = command.split_ascii_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    let said = || format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(said)
}

/// A card that is not there.
const NOBODY: &str = "02:00:00:00:00:01";
