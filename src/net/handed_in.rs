//! Sockets that whoever started this process bound for it: socket activation.
//!
//! The service manager passes descriptors from 3 on and says in `LISTEN_FDS` how many there
//! are, in `LISTEN_PID` for whom, and in `LISTEN_FDNAMES` what it calls them. It keeps its own
//! descriptors, so what arrives while nobody reads waits in the kernel for the next process.
//!
//! Hence three things are never done to such a socket: its address is not unbound, nothing is
//! turned away from it, and no other socket is made to share its port. Its receive buffer and
//! the owner and mode of its file are the manager's business, too.

use super::drops;
use super::socket::Socket;
use crate::units::Transport;
use listenfd::ListenFd;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tracing::{info, warn};

/// A socket that was bound by somebody else.
#[derive(Debug)]
pub struct HandedIn {
    socket: Socket,
    /// What the manager calls it.
    label: String,
}

impl HandedIn {
    /// What this process was given. To be called once, before there is a second thread,
    /// because it takes `LISTEN_FDS` and `LISTEN_PID` out of the environment; the names stay,
    /// which mean nothing without those.
    pub fn from_environment() -> Vec<Self> {
        // Without it the descriptors would be somebody else's.
        if env::var_os("LISTEN_PID").is_none_or(|pid| pid.is_empty()) {
            return Vec::new();
        }
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut given = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..given.len() {
            let label = names.next().unwrap_or_default().to_owned();
            match take(&mut given, index) {
                Ok(socket) => sockets.push(Self { socket, label }),
                Err(problem) => {
                    warn!(index, name = label, %problem, "a descriptor that was handed in is closed");
                }
            }
        }
        sockets
    }

    /// Whether it is the socket of this address of the network.
    pub(super) fn is_at(&self, transport: Transport, address: SocketAddr) -> bool {
        self.socket.transport() == transport && self.socket.local_address() == Some(address)
    }

    /// Whether it is the socket of this file.
    pub(super) fn is_file(&self, transport: Transport, path: &Path) -> bool {
        self.socket.transport() == transport && self.socket.local_path().as_deref() == Some(path)
    }

    /// Whether it has that port, at whatever address.
    pub(super) fn has_port(&self, transport: Transport, port: u16) -> bool {
        self.socket.transport() == transport
            && self.socket.local_address().is_some_and(|local| local.port() == port)
    }

    /// The socket, for a listener that wants its address.
    pub(super) fn share(&self) -> io::Result<Socket> {
        let (buffer, dropped) = (self.socket.buffer(), self.socket.lost());
        info!(address = self.name(), name = self.label, buffer, dropped, "handed in");
        self.socket.try_clone()
    }

    /// Closes it. Where the manager keeps it, what arrives there is read by nobody.
    pub(super) fn dismiss(self) {
        warn!(
            address = self.name(),
            name = self.label,
            "a socket was handed in that no listener wants; it is closed"
        );
    }

    /// As a configuration writes it.
    pub(super) fn name(&self) -> String {
        self.socket.name()
    }
}

/// Takes a descriptor of which nothing is known yet, or closes it.
fn take(given: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let socket = if let Ok(Some(socket)) = given.take_udp_socket(index) {
        // Earlier losses are told when the socket is taken, and not counted once more by each
        // process that has it.
        let before = drops::of(drops::inode(&socket)).unwrap_or(0);
        Socket::Udp(socket, std::sync::Arc::new(before.into()))
    } else if let Ok(Some(listener)) = given.take_tcp_listener(index) {
        Socket::Tcp(listener)
    } else if let Ok(Some(socket)) = given.take_unix_datagram(index) {
        Socket::Unixgram(socket)
    } else if let Ok(Some(listener)) = given.take_unix_listener(index) {
        Socket::Unix(listener)
    } else {
        if let Ok(Some(fd)) = given.take_raw_fd(index) {
            nix::unistd::close(fd)?;
        }
        return Err(io::Error::other("it is no UDP, TCP or Unix socket"));
    };
    socket.adopt()?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BindError, Bound, Sockets, Wanted};
    use crate::units::Address;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    fn wanted(address: &str) -> Wanted {
        Wanted {
            listener: "a".into(),
            key: "listeners.a.bind".to_owned(),
            address: address.parse().unwrap(),
            receive_buffer: None,
            sockets: 1,
        }
    }

    fn handed_in(socket: Socket) -> HandedIn {
        socket.adopt().unwrap();
        HandedIn { socket, label: "test".to_owned() }
    }

    /// A socket as the manager binds it, and another descriptor of it, which the manager keeps.
    fn manager(address: &str) -> (HandedIn, Socket) {
        let address: Address = address.parse().unwrap();
        let socket = match address.path() {
            Some(path) => Socket::open_file(address.transport(), path),
            None => {
                let place = address.host_port().unwrap().to_string().parse().unwrap();
                Socket::open(address.transport(), place, false)
            }
        };
        let socket = socket.unwrap();
        (handed_in(socket.try_clone().unwrap()), socket)
    }

    fn port(name: &str) -> u16 {
        name.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn flags(bound: &[Bound]) -> Vec<bool> {
        bound.iter().map(|bound| bound.handed_in).collect()
    }

    /// Asks for `wants` where `given` was handed in, `PORT` being its port.
    fn ask(given: &str, wants: &str) -> Result<Vec<Bound>, BindError> {
        let (ready, _kept) = manager(given);
        let wants = wants.replace("PORT", &port(&ready.name()).to_string());
        Sockets::with(vec![ready]).bind_all(&[wanted(&wants)])
    }

    #[test]
    fn an_address_takes_the_socket_that_was_handed_in_for_it() {
        for (given, wants) in [
            ("udp://127.0.0.1:0", "udp://127.0.0.1:PORT"),
            ("tcp://127.0.0.1:0", "tcp://127.0.0.1:PORT"),
            ("udp://0.0.0.0:0", "udp://0.0.0.0:PORT"),
            ("tcp://[::]:0", "tcp://[::]:PORT"),
            ("tcp://[::]:0", "tcp://:PORT"),
        ] {
            let bound = ask(given, wants).unwrap_or_else(|error| panic!("{wants}: {error}"));
            assert_eq!(flags(&bound), [true], "{given} {wants}");
        }
    }

    #[test]
    fn another_address_takes_none() {
        // Addresses that nobody else uses: a port free for UDP may be some client's for TCP.
        for (given, wants) in [
            ("udp://127.77.0.3:0", "tcp://127.77.0.3:PORT"),
            ("udp://127.77.0.3:0", "udp://127.77.0.3:0"),
            ("udp://127.77.0.3:0", "udp://127.77.0.4:PORT"),
        ] {
            assert_eq!(flags(&ask(given, wants).unwrap()), [false], "{given} {wants}");
        }
    }

    #[test]
    fn an_address_that_overlaps_is_told_whose_port_it_is() {
        for (given, wants) in
            [("udp://0.0.0.0:0", "udp://127.0.0.1:PORT"), ("tcp://[::]:0", "tcp://0.0.0.0:PORT")]
        {
            let error = ask(given, wants).unwrap_err().to_string();
            assert!(error.contains("was handed in; write that address"), "{error}");
        }
    }

    #[test]
    fn a_socket_that_leaves_at_a_reload_keeps_hearing_for_the_next_process() {
        let (ready, kept) = manager("udp://127.0.0.1:0");
        let target = kept.local_address().unwrap();
        let mut sockets = Sockets::with(vec![ready]);
        sockets.bind_all(&[wanted(&format!("udp://{target}"))]).unwrap();
        sockets.bind_all(&[]).unwrap();
        sockets.turn_away();
        sockets.let_go();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"later", target).unwrap();
        let Socket::Udp(kept, _) = kept else { panic!("not UDP") };
        assert_eq!(kept.recv(&mut [0; 16]).unwrap(), 5);
    }

    #[test]
    fn as_many_sockets_as_were_handed_in() {
        let (ready, kept) = manager("udp://127.0.0.1:0");
        let address = ready.name();
        kept.join().unwrap();
        let twin = Socket::open(Transport::Udp, kept.local_address().unwrap(), true).unwrap();
        let mut sockets = Sockets::with(vec![ready, handed_in(twin)]);
        let three = Wanted { sockets: 3, ..wanted(&address) };
        let bound = sockets.bind_all(std::slice::from_ref(&three)).unwrap();
        assert_eq!(flags(&bound), [true, true]);
        sockets.let_go();
        assert_eq!(flags(&sockets.bind_all(&[three]).unwrap()), [true, true], "after a reload");
    }

    #[test]
    fn what_fails_takes_nothing_and_what_nobody_wants_is_closed() {
        let (ready, kept) = manager("tcp://127.0.0.1:0");
        // An address that nobody else uses, since its port is let go and asked for again.
        let (unwanted, other) = manager("tcp://127.77.0.5:0");
        let (address, unwanted_name) = (ready.name(), unwanted.name());
        drop(other);
        let mut sockets = Sockets::with(vec![ready, unwanted]);
        let (_taken, holds) = manager("tcp://127.0.0.1:0");
        let fails = [wanted(&address), wanted(&holds.name())];
        assert!(sockets.bind_all(&fails).is_err());
        assert_eq!(flags(&sockets.bind_all(&[wanted(&address)]).unwrap()), [true]);
        sockets.let_go();
        let free = Sockets::new().bind_all(&[wanted(&unwanted_name)]).unwrap();
        assert_eq!(flags(&free), [false]);
        drop(kept);
    }

    #[test]
    fn a_file_that_was_handed_in_stays() {
        let directory = tempfile::tempdir().unwrap();
        for scheme in ["unix", "unixgram"] {
            let path = directory.path().join(scheme);
            let address = format!("{scheme}://{}", path.display());
            let (ready, kept) = manager(&address);
            let mut sockets = Sockets::with(vec![ready]);
            let bound = sockets.bind_all(&[wanted(&address)]).unwrap();
            assert_eq!((flags(&bound), &*bound[0].address), (vec![true], &*address));
            drop((sockets, bound));
            assert!(path.exists(), "{scheme}");
            drop(kept);
        }
    }

    #[test]
    fn a_receive_buffer_that_was_handed_in_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unixgram://{}", directory.path().join("x").display());
        let (ready, kept) = manager(&address);
        let before = kept.buffer();
        Sockets::with(vec![ready]).bind_all(&[wanted(&address)]).unwrap();
        assert_eq!(kept.buffer(), before);
    }

    #[test]
    fn a_connection_is_no_listener() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let connection = Socket::Unix(std::os::fd::OwnedFd::from(ours).into());
        assert!(connection.adopt().is_err());
        let datagrams = UnixDatagram::unbound().unwrap();
        assert!(Socket::Unixgram(datagrams).adopt().is_ok());
    }
}
