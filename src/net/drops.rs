//! What the kernel says it threw away: the column `drops` of its table of UDP sockets.
//!
//! The number counts from when the socket was made, and wraps at 32 bits.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// The row of a socket in the table; 0, which no socket has, if that cannot be known.
pub(crate) fn inode(socket: &impl AsRawFd) -> u64 {
    let found = fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd()));
    found.map_or(0, |found| found.ino())
}

/// Datagrams that came for the socket and found no room.
pub(crate) fn of(inode: u64) -> Option<u32> {
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    tables.iter().find_map(|table| in_table(&fs::read_to_string(table).ok()?, inode))
}

fn in_table(table: &str, inode: u64) -> Option<u32> {
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace();
        let same = columns.nth(9)?.parse() == Ok(inode);
        columns.nth(2)?.parse().ok().filter(|_| same)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_kernel_is_read_by_inode() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n \
            1203: 0100007F:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 0\n \
            1204: 0100007F:1FBE 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 1234\n";
        assert_eq!(in_table(table, 4711), Some(0));
        assert_eq!(in_table(table, 4712), Some(1234));
        assert_eq!(in_table(table, 4713), None);
        assert_eq!(in_table("", 4712), None);
    }
}
