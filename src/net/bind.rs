//! The sockets that an address to listen on means.
//!
//! | written | bound |
//! |---|---|
//! | `udp://127.0.0.1:8125`, `tcp://[::1]:8125` | that address |
//! | `tcp://:8125`, `tcp://[::]:8125` | both families on one socket; IPv4 alone on a host without IPv6 |
//! | `udp://localhost:8125` | 127.0.0.1 and, where there is IPv6, ::1 |
//! | `tcp://name:8125` | every address that the name has now |
//! | `unixgram:///run/x.sock`, `unix:///run/x.sock` | a datagram or a stream socket in the file system |
//!
//! Port 0 lets the kernel choose. Nothing is opened here.

use crate::units::{Address, HostPort};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// One socket to open for an address of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) address: SocketAddr,
    pub(super) without_ipv6: WithoutIpv6,
}

/// What to do on a host that has no IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutIpv6 {
    Fail,
    Skip,
    Instead(SocketAddr),
}

/// The sockets to open; asks the resolver (and waits for it) if the host is a name.
pub(super) fn spots(address: &Address) -> io::Result<Vec<Spot>> {
    let Some(HostPort { host, port }) = address.host_port() else { return Ok(Vec::new()) };
    let port = *port;
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    Ok(match (host.as_str(), address) {
        ("" | "[::]", _) => vec![Spot::both_families(port)],
        ("localhost", _) => Spot::loopbacks(port).to_vec(),
        (_, Ok(address)) => vec![Spot::just(SocketAddr::new(address, port))],
        (name, Err(_)) => {
            let mut addresses: Vec<_> = (name, port).to_socket_addrs()?.collect();
            addresses.sort();
            addresses.dedup();
            addresses.into_iter().map(Spot::just).collect()
        }
    })
}

impl Spot {
    fn just(address: SocketAddr) -> Self {
        Self { address, without_ipv6: WithoutIpv6::Fail }
    }

    fn both_families(port: u16) -> Self {
        let instead = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        Self {
            address: SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            without_ipv6: WithoutIpv6::Instead(instead),
        }
    }

    fn loopbacks(port: u16) -> [Self; 2] {
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        [
            Self::just(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Self { address: SocketAddr::new(six, port), without_ipv6: WithoutIpv6::Skip },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_means_its_sockets() {
        let check = |text: &str, expected: &[&str]| {
            let spots = spots(&text.parse().unwrap()).unwrap();
            let got: Vec<_> = spots.iter().map(|spot| spot.address.to_string()).collect();
            assert_eq!(got, expected, "{text}");
        };
        check("udp://0.0.0.0:1", &["0.0.0.0:1"]);
        check("udp://:1", &["[::]:1"]);
        check("udp://[::]:1", &["[::]:1"]);
        check("tcp://localhost:1", &["127.0.0.1:1", "[::1]:1"]);
        check("tcp://[::1]:1", &["[::1]:1"]);
        check("unix:///x", &[]);
    }
}
