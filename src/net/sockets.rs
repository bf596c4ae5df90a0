//! The pool of bound sockets: the app owns one, listeners work on copies of what it holds.
//!
//! A socket belongs to its address, not to a listener or a configuration. A reload asks for
//! everything again ([`Sockets::bind_all`]): what is already open is handed out once more, as
//! another descriptor of the same socket, so no datagram and no waiting connection is lost;
//! what is new is opened before anything old is let go ([`Sockets::let_go`]). All or nothing:
//! when one address cannot be had, the pool is as it was.
//!
//! A plain bind comes first, so a port that another program holds is an error even where that
//! program would share it. Only our own sockets are joined (`SO_REUSEPORT`, set afterwards):
//! those of one address when `sockets` asks for several, and an old one that overlaps a new
//! one (`0.0.0.0:8125` becoming `127.0.0.1:8125`) until it is let go.
//!
//! Sockets that were handed in ([`HandedIn`]) are ready before anything is bound. A listener that wants
//! exactly such an address gets that socket, and as many of them as were handed in. The option `sockets`
//! adds none to them, since what waits in a socket of our own is lost when we end.

use super::bind::{Spot, WithoutIpv6, spots};
use super::handed_in::HandedIn;
use super::socket::{Socket, lacks_ipv6};
use super::socket_file::SocketFile;
use crate::units::{Address, Size, Transport};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tracing::info;

/// All sockets that are bound.
#[derive(Debug, Default)]
pub struct Sockets {
    held: BTreeMap<Key, Held>,
    /// What was handed in and nobody has asked for yet.
    ready: Vec<HandedIn>,
    /// What the last `bind_all` asked for; the rest goes at the next `let_go`.
    wanted: Vec<Key>,
}

/// One address that a listener asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of the listener, for its log and errors.
    pub listener: Arc<str>,
    /// Where the configuration says so (`listeners.statsd.bind`), for errors.
    pub key: String,
    /// The address.
    pub address: Address,
    /// The receive buffer asked of the kernel for datagrams.
    pub receive_buffer: Option<Size>,
    /// How many UDP sockets share the port.
    pub sockets: u32,
}

/// One socket of a listener.
#[derive(Debug)]
pub struct Bound {
    /// The name of the listener.
    pub listener: Arc<str>,
    /// The address it has in the end, port and all: `udp://127.0.0.1:40123`.
    pub address: String,
    /// The socket, non-blocking.
    pub socket: Socket,
    /// Whether somebody else has bound it, who will hand it to our successor, too.
    pub handed_in: bool,
}

/// Why a listener cannot have an address.
#[derive(Debug, thiserror::Error)]
#[error("listener `{listener}` cannot listen on {address}: {problem}{hint}")]
pub struct BindError {
    /// The name of the listener.
    pub listener: Arc<str>,
    /// The address, as configured.
    pub address: String,
    problem: String,
    hint: String,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl Sockets {
    /// A pool that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A pool that these sockets lie ready in.
    pub fn with(ready: Vec<HandedIn>) -> Self {
        Self { ready, ..Self::default() }
    }

    /// All the sockets that are wanted, in that order, old or new. Asks the resolver for
    /// hosts that are names, and waits for it.
    ///
    /// # Errors
    ///
    /// The first address that cannot be had; then the pool is unchanged.
    pub fn bind_all(&mut self, wanted: &[Wanted]) -> Result<Vec<Bound>, BindError> {
        let ready = self.ready.iter().map(Some).collect();
        let mut round = Round { pool: &self.held, ready, keys: Vec::new(), fresh: BTreeMap::new() };
        let places = round.claim(wanted)?;
        let bound = places
            .into_iter()
            .map(|(want, key)| round.socket(want, &key).map_err(|error| want.error(error)))
            .collect::<Result<Vec<_>, _>>()?;
        let Round { keys, fresh, ready, .. } = round;
        let mut left = ready.iter().map(Option::is_some).collect::<Vec<_>>().into_iter();
        self.ready.retain(|_| left.next().unwrap_or(false));
        self.held.extend(fresh);
        self.wanted = keys;
        Ok(bound.into_iter().flatten().collect())
    }

    /// Turns new datagrams away from the sockets that the last [`bind_all`](Self::bind_all) did not ask
    /// for. Where another socket shares the port, they go there; those that have come can be read before
    /// [`let_go`](Self::let_go). Sockets that were handed in still receive: they are not ours, and the
    /// next process may want what comes.
    pub fn turn_away(&self) {
        let leaving = self.held.iter().filter(|(key, _)| !self.wanted.contains(key));
        let ours = leaving.filter(|(_, held)| !held.handed_in);
        ours.filter_map(|(_, held)| held.socket.as_ref()).for_each(Socket::turn_away);
    }

    /// Closes what the last [`bind_all`](Self::bind_all) did not ask for, what was handed in
    /// for nobody included. Descriptors that listeners still have keep a socket open until
    /// they end too.
    pub fn let_go(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        self.held.retain(|key, _| wanted.contains(key));
        self.wanted = wanted;
        self.ready.drain(..).for_each(HandedIn::dismiss);
    }
}

/// What makes two requests mean the same socket. Port 0 means a port of one's own, so there
/// the listener is part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    address: Address,
    spot: usize,
    index: u32,
    owner: Option<Arc<str>>,
}

#[derive(Debug)]
struct Held {
    /// `None`: this host has no IPv6, and the address can do without; or all the sockets that
    /// were handed in for the address are taken.
    socket: Option<Socket>,
    name: String,
    handed_in: bool,
    _file: Option<SocketFile>,
}

/// One call of `bind_all`.
struct Round<'a> {
    pool: &'a BTreeMap<Key, Held>,
    /// What was handed in, each at its place until it is taken.
    ready: Vec<Option<&'a HandedIn>>,
    keys: Vec<Key>,
    fresh: BTreeMap<Key, Held>,
}

impl<'a> Round<'a> {
    /// Lists the sockets behind all that is wanted; nobody can want what another has.
    fn claim<'w>(&mut self, wanted: &'w [Wanted]) -> Result<Vec<(&'w Wanted, Key)>, BindError> {
        let mut places = Vec::new();
        for want in wanted {
            let spots = match want.address.host_port() {
                Some(_) => spots(&want.address).map_err(|error| want.error(error))?.len(),
                None => 1,
            };
            for (spot, index) in want.indices(spots) {
                let owner = want.has_own_port().then(|| want.listener.clone());
                let key = Key { address: want.address.clone(), spot, index, owner };
                if self.keys.contains(&key) {
                    return Err(
                        want.error(io::Error::other("it stands in the configuration twice"))
                    );
                }
                self.keys.push(key.clone());
                places.push((want, key));
            }
        }
        Ok(places)
    }

    fn socket(&mut self, want: &Wanted, key: &Key) -> io::Result<Option<Bound>> {
        if let Some(held) = self.pool.get(key) {
            return held.share(want);
        }
        let held = match want.address.path() {
            Some(path) => self.file(want, path)?,
            None => self.network(want, key)?,
        };
        let bound = held.share(want)?;
        self.fresh.insert(key.clone(), held);
        Ok(bound)
    }

    fn file(&mut self, want: &Wanted, path: &Path) -> io::Result<Held> {
        let transport = want.address.transport();
        match self.take(|ready| ready.is_file(transport, path)) {
            Some(ready) => Held::handed_in(ready),
            None => Held::file(&want.address, path),
        }
    }

    fn network(&mut self, want: &Wanted, key: &Key) -> io::Result<Held> {
        let spots = spots(&want.address)?;
        let spot = spots.get(key.spot).ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        let spot = self.with_port(*spot, key);
        match self.open(want, key, spot.address) {
            Err(error) if lacks_ipv6(&error) => match spot.without_ipv6 {
                WithoutIpv6::Fail => Err(error),
                WithoutIpv6::Skip => {
                    info!(listener = %want.listener, address = %spot.address, "no IPv6 on this host");
                    Ok(Held::nothing())
                }
                WithoutIpv6::Instead(address) => {
                    info!(listener = %want.listener, %address, "no IPv6 on this host, IPv4 alone");
                    self.open(want, key, address)
                }
            },
            opened => opened,
        }
    }

    /// The second socket of an address with port 0 takes the port that the first was given.
    fn with_port(&self, spot: Spot, key: &Key) -> Spot {
        if spot.address.port() != 0 {
            return spot;
        }
        let first = self.relatives(key).find_map(|held| held.port()).unwrap_or(0);
        let at = |mut address: SocketAddr| {
            address.set_port(first);
            address
        };
        let without_ipv6 = match spot.without_ipv6 {
            WithoutIpv6::Instead(address) => WithoutIpv6::Instead(at(address)),
            other => other,
        };
        Spot { address: at(spot.address), without_ipv6 }
    }

    fn open(&mut self, want: &Wanted, key: &Key, address: SocketAddr) -> io::Result<Held> {
        let transport = want.address.transport();
        if let Some(ready) = self.take(|ready| ready.is_at(transport, address)) {
            return Held::handed_in(ready);
        }
        if self.relatives(key).any(|held| held.handed_in && held.is_at(address)) {
            info!(listener = %want.listener, %address, "handed in, so no further socket joins it");
            return Ok(Held::nothing());
        }
        match Held::network(transport, address, false) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let ours: Vec<_> = self.joinable(key, address.port()).collect();
                if ours.is_empty() {
                    return Err(self.holder(transport, address.port()).unwrap_or(error));
                }
                for held in &ours {
                    held.join()?;
                }
                Held::network(transport, address, true)
            }
            opened => opened,
        }
    }

    /// Takes the first of what was handed in that fits.
    fn take(&mut self, fits: impl Fn(&HandedIn) -> bool) -> Option<&'a HandedIn> {
        self.ready.iter_mut().find(|place| place.is_some_and(&fits)).and_then(Option::take)
    }

    /// The error that a port cannot be had because a socket that was handed in has it.
    fn holder(&self, transport: Transport, port: u16) -> Option<io::Error> {
        let ready = self.ready.iter().flatten().find(|ready| ready.has_port(transport, port));
        let held = self.pool.values().chain(self.fresh.values());
        let mut taken = held.filter(|held| held.handed_in && held.has_port(transport, port));
        let name = match ready {
            Some(ready) => ready.name(),
            None => taken.next()?.name.clone(),
        };
        let text = format!("the port belongs to {name}, which was handed in; write that address");
        Some(io::Error::other(text))
    }

    /// Sockets of the same address that this round or an earlier one has opened.
    fn relatives(&self, key: &Key) -> impl Iterator<Item = &Held> {
        let same = |other: &Key| other.address == key.address && other.owner == key.owner;
        self.pool.iter().chain(&self.fresh).filter(move |(other, _)| same(other)).map(|(_, h)| h)
    }

    /// Our own sockets at a port that may be shared with: the same address's, and those that
    /// are about to go. What was handed in is not ours to share.
    fn joinable(&self, key: &Key, port: u16) -> impl Iterator<Item = &Held> {
        let transport = key.address.transport();
        let leaving = self.pool.iter().filter(move |(old, held)| {
            old.address.transport() == transport
                && held.port() == Some(port)
                && !self.keys.contains(old)
        });
        let all = self.relatives(key).chain(leaving.map(|(_, held)| held));
        all.filter(|held| !held.handed_in)
    }
}

impl Wanted {
    /// Whether the kernel chooses the port.
    fn has_own_port(&self) -> bool {
        self.address.host_port().is_some_and(|place| place.port == 0)
    }

    fn indices(&self, spots: usize) -> impl Iterator<Item = (usize, u32)> + use<> {
        let sockets = match self.address.transport() {
            Transport::Udp => self.sockets.max(1),
            _ => 1,
        };
        (0..spots).flat_map(move |spot| (0..sockets).map(move |index| (spot, index)))
    }

    fn error(&self, source: io::Error) -> BindError {
        let (problem, hint) = match source.kind() {
            ErrorKind::AddrInUse => (
                "another program is using it".to_owned(),
                format!("; stop that program, or choose another address under `{}`", self.key),
            ),
            ErrorKind::PermissionDenied => (
                "the system does not allow it".to_owned(),
                format!("; choose a port above 1023 or another path under `{}`", self.key),
            ),
            ErrorKind::AddrNotAvailable => (
                "this host has no such address".to_owned(),
                format!("; change it under `{}`", self.key),
            ),
            _ => (source.to_string(), format!("; see `{}`", self.key)),
        };
        let address = self.address.to_string();
        BindError { listener: self.listener.clone(), address, problem, hint, source }
    }
}

impl Held {
    fn network(transport: Transport, address: SocketAddr, join: bool) -> io::Result<Self> {
        let socket = Socket::open(transport, address, join)?;
        let local = socket.local_address().unwrap_or(address);
        let name = format!("{transport}://{local}");
        Ok(Self { socket: Some(socket), name, handed_in: false, _file: None })
    }

    fn handed_in(ready: &HandedIn) -> io::Result<Self> {
        let socket = Some(ready.share()?);
        Ok(Self { socket, name: ready.name(), handed_in: true, _file: None })
    }

    fn nothing() -> Self {
        Self { socket: None, name: String::new(), handed_in: false, _file: None }
    }

    fn file(address: &Address, path: &Path) -> io::Result<Self> {
        SocketFile::make_way(path)?;
        let socket = Socket::open_file(address.transport(), path)?;
        let file = Some(SocketFile::open_to_all(path)?);
        let name = address.to_string();
        Ok(Self { socket: Some(socket), name, handed_in: false, _file: file })
    }

    fn share(&self, want: &Wanted) -> io::Result<Option<Bound>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let bound = Bound {
            listener: want.listener.clone(),
            address: self.name.clone(),
            socket: socket.try_clone()?,
            handed_in: self.handed_in,
        };
        if self.handed_in {
            return Ok(Some(bound));
        }
        if let Some((asked, given)) = bound.socket.ask_buffer(want.receive_buffer)? {
            let hint = (given < asked).then_some("raise net.core.rmem_max to get more");
            let Bound { listener, address, .. } = &bound;
            info!(%listener, address, asked, given, hint, "receive buffer");
        }
        Ok(Some(bound))
    }

    fn port(&self) -> Option<u16> {
        Some(self.socket.as_ref()?.local_address()?.port())
    }

    fn is_at(&self, address: SocketAddr) -> bool {
        self.socket.as_ref().and_then(Socket::local_address) == Some(address)
    }

    fn has_port(&self, transport: Transport, port: u16) -> bool {
        self.socket.as_ref().map(Socket::transport) == Some(transport) && self.port() == Some(port)
    }

    fn join(&self) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), Socket::join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn wanted(listener: &str, address: &str) -> Wanted {
        Wanted {
            listener: listener.into(),
            key: format!("listeners.{listener}.bind"),
            address: address.parse().unwrap(),
            receive_buffer: None,
            sockets: 1,
        }
    }

    fn port(address: &str) -> u16 {
        address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Binds one address in a pool of its own; answers the pool and the port.
    fn bound(address: &str) -> (Sockets, u16) {
        let mut sockets = Sockets::new();
        let bound = sockets.bind_all(&[wanted("a", address)]).unwrap();
        let port = port(&bound[0].address);
        (sockets, port)
    }

    #[test]
    fn port_zero_becomes_a_port() {
        let (_sockets, port) = bound("udp://127.0.0.1:0");
        assert_ne!(port, 0);
    }

    #[test]
    fn the_same_socket_is_handed_out_again() {
        let mut sockets = Sockets::new();
        let want = [wanted("a", "udp://127.0.0.1:0"), wanted("a", "tcp://127.0.0.1:0")];
        let first = sockets.bind_all(&want).unwrap();
        let again = sockets.bind_all(&want).unwrap();
        let addresses = |bound: &[Bound]| -> Vec<String> {
            bound.iter().map(|bound| bound.address.clone()).collect()
        };
        assert_eq!(addresses(&first), addresses(&again));
        let address = first[0].address.strip_prefix("udp://").unwrap();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"kept", address).unwrap();
        drop(first);
        let Socket::Udp(socket, _) = &again[0].socket else { panic!("not UDP") };
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
    }

    #[test]
    fn a_port_in_use_is_an_error_with_a_way_out() {
        for (mine, theirs) in [("udp", "udp"), ("tcp", "tcp")] {
            let (_held, port) = bound(&format!("{theirs}://127.0.0.1:0"));
            let address = format!("{mine}://127.0.0.1:{port}");
            let error = Sockets::new().bind_all(&[wanted("statsd", &address)]).unwrap_err();
            let text = error.to_string();
            for part in ["`statsd`", &address, "another program", "listeners.statsd.bind"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    #[test]
    fn what_cannot_be_had_changes_nothing() {
        let (mut sockets, port) = bound("tcp://127.0.0.1:0");
        let (_other, taken) = bound("tcp://127.0.0.1:0");
        let fails =
            [wanted("b", "udp://127.0.0.1:0"), wanted("c", &format!("tcp://127.0.0.1:{taken}"))];
        assert!(sockets.bind_all(&fails).is_err());
        sockets.let_go();
        assert_eq!(sockets.held.len(), 1);
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
    }

    #[test]
    fn a_narrower_address_on_the_same_port_is_no_conflict_with_ourselves() {
        for transport in ["udp", "tcp"] {
            let (mut sockets, port) = bound(&format!("{transport}://0.0.0.0:0"));
            for host in ["127.0.0.1", "0.0.0.0", "[::]", "127.0.0.1"] {
                let address = format!("{transport}://{host}:{port}");
                sockets.bind_all(&[wanted("a", &address)]).unwrap();
                sockets.let_go();
                assert_eq!(sockets.held.len(), 1, "{address}");
            }
        }
    }

    #[test]
    fn several_sockets_share_one_port_and_nobody_else_gets_in() {
        let mut sockets = Sockets::new();
        let want = Wanted { sockets: 3, ..wanted("a", "udp://127.0.0.1:0") };
        let bound = sockets.bind_all(&[want]).unwrap();
        assert_eq!(bound.len(), 3);
        assert!(bound.iter().all(|other| other.address == bound[0].address));
        let address = format!("udp://127.0.0.1:{}", port(&bound[0].address));
        assert!(Sockets::new().bind_all(&[wanted("b", &address)]).is_err());
        let target = bound[0].address.strip_prefix("udp://").unwrap();
        for _ in 0..200 {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", target).unwrap();
        }
        let shares = bound.iter().map(|bound| {
            let Socket::Udp(socket, _) = &bound.socket else { panic!("not UDP") };
            std::iter::repeat_with(|| socket.recv(&mut [0])).take_while(Result::is_ok).count()
        });
        let shares: Vec<_> = shares.collect();
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), 200);
    }

    #[test]
    fn a_socket_that_leaves_hears_no_more_and_keeps_what_it_heard() {
        let mut sockets = Sockets::new();
        let three = Wanted { sockets: 3, ..wanted("a", "udp://127.0.0.1:0") };
        let old = sockets.bind_all(std::slice::from_ref(&three)).unwrap();
        let target = old[0].address.strip_prefix("udp://").unwrap();
        let send = || {
            for _ in 0..100 {
                UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", target).unwrap();
            }
        };
        let heard = |bound: &Bound| {
            let Socket::Udp(socket, _) = &bound.socket else { panic!("not UDP") };
            std::iter::repeat_with(|| socket.recv(&mut [0])).take_while(Result::is_ok).count()
        };
        send();
        let kept = sockets.bind_all(&[Wanted { sockets: 1, ..three }]).unwrap();
        sockets.turn_away();
        send();
        let leaving: usize = old[1..].iter().map(heard).sum();
        assert_eq!((kept.len(), heard(&kept[0]) + leaving), (1, 200));
        send();
        assert_eq!((heard(&kept[0]), old[1..].iter().map(heard).sum::<usize>()), (100, 0));
    }

    #[test]
    fn an_address_stands_once() {
        let (_free, port) = bound("tcp://127.0.0.1:0");
        let address = format!("tcp://127.0.0.1:{port}");
        let twice = [wanted("a", &address), wanted("b", &address)];
        let error = Sockets::new().bind_all(&twice).unwrap_err().to_string();
        assert!(error.contains("`b`") && error.contains("twice"), "{error}");
    }

    #[test]
    fn localhost_is_both_loopbacks_at_one_port() {
        let mut sockets = Sockets::new();
        let bound = sockets.bind_all(&[wanted("a", "udp://localhost:0")]).unwrap();
        let ports: Vec<_> = bound.iter().map(|bound| port(&bound.address)).collect();
        assert!(bound[0].address.starts_with("udp://127.0.0.1:"));
        assert!(ports.iter().all(|other| *other == ports[0]));
    }
}
