//! What the kernel says about UDP sockets: the datagrams that it had no room for.

use anyhow::Result;
use std::fs;
use std::net::SocketAddr;

/// Datagrams dropped so far by the sockets bound to this port, all of them together.
pub fn dropped(bound: SocketAddr) -> Result<u64> {
    let table = if bound.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
    Ok(drops_of_port(&fs::read_to_string(table)?, bound.port()))
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

#[cfg(test)]
mod tests {
    use super::*;

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
