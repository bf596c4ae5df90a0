//! What the kernel says about sockets: whether one is there, and for how many datagrams it had no
//! room.

use crate::address::Address;
use anyhow::Result;
use std::fs;
use std::net::SocketAddr;

/// Datagrams dropped so far by the sockets bound to this port, all of them together.
pub fn dropped(bound: SocketAddr) -> Result<u64> {
    let table = if bound.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
    Ok(drops_of_port(&fs::read_to_string(table)?, bound.port()))
}

/// Whether somebody listens there.
pub fn is_bound(address: &Address) -> Result<bool> {
    let ipv6 = if address.socket().is_ipv4() { "" } else { "6" };
    let (protocol, state) = match address {
        Address::Udp(_) => ("udp", UNCONNECTED),
        Address::Tcp(_) | Address::Http { .. } => ("tcp", LISTENING),
    };
    let table = fs::read_to_string(format!("/proc/net/{protocol}{ipv6}"))?;
    Ok(has_port(&table, address.socket().port(), state))
}

/// A row has the state fourth.
fn has_port(table: &str, port: u16, state: &str) -> bool {
    let local = format!(":{port:04X}");
    let mut rows = table.lines().map(|row| row.split_ascii_whitespace());
    rows.any(|mut row| {
        row.nth(1).is_some_and(|at| at.ends_with(&local)) && row.nth(1) == Some(state)
    })
}

/// A row has the local address as `0100007F:1F90` second, and the drops last.
fn drops_of_port(table: &str, port: u16) -> u64 {
    let local = format!(":{port:04X}");
    table
        .lines()
        .map(|row| row.split_ascii_whitespace())
        .filter_map(|mut row| {
            row.nth(1)?.ends_with(&local).then(|| row.last()?.parse::<u64>().ok())?
        })
        .sum()
}

/// As the kernel numbers the states of TCP, which it lends to UDP.
const UNCONNECTED: &str = "07";
const LISTENING: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn listeners_are_told_from_connections() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert!(is_bound(&Address::Udp(udp.local_addr().unwrap())).unwrap());
        assert!(is_bound(&Address::Tcp(tcp.local_addr().unwrap())).unwrap());
        assert!(!is_bound(&Address::Tcp(client.local_addr().unwrap())).unwrap());
    }

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
   76: 0100007F:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 8123 2 0000000000000000 40
   77: 0100007F:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 8124 2 0000000000000000 2
   80: 0100007F:1F90 0100007F:1FBD 07 00000000:00000000 00:00000000 00000000     0        0 8125 2 0000000000000000 9
";

    #[test]
    fn drops_of_all_sockets_of_a_port_are_added() {
        assert_eq!(drops_of_port(TABLE, 8125), 42);
        assert_eq!(drops_of_port(TABLE, 8080), 9);
        assert_eq!(drops_of_port(TABLE, 1), 0);
    }
}
