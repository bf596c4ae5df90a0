//! A child process that serves: started with its output in a file, killed on drop.
//!
//! Which ports it got is read from `/proc`, so that any server can be given port 0, whether or
//! not it says in its log what became of it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually::eventually;

/// A running server. Its log is printed when the test that owns it fails.
pub struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// How a daemon ended, and all it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub log: String,
}

impl Daemon {
    /// Starts the command with its standard error going to the file `log`, and its standard
    /// output too unless the command already says where that goes.
    pub fn spawn(name: &'static str, command: &mut Command, log: PathBuf) -> Daemon {
        let file = File::create(&log).expect("the log file can be made");
        let child = command.stdin(Stdio::null()).stderr(file).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{name} does not start ({error}): run scripts/install-test-tools.sh")
        });
        Daemon { name, child, log }
    }

    /// Its process, for a look at `/proc`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Where it listens on 127.0.0.1 for `transport`, `"tcp"` or `"udp"`; waits until it does.
    pub async fn address(&mut self, transport: &str) -> SocketAddr {
        let what = format!("{} listens on {transport}", self.name);
        eventually(&what, async || {
            self.assert_alive();
            listening(self.child.id(), transport).into_iter().next()
        })
        .await
    }

    /// How much of it is in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most of it that ever was in memory.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, label: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(label)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Panics with the log if the process has ended.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.exited() {
            panic!("{} ended with {status}:\n{}", self.name, self.log());
        }
    }

    /// Its exit status, once it has one.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("a child of ours can be signalled");
    }

    /// Whether it has blocked this signal, or has a handler for it.
    pub fn survives(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let survives = |mask: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
        };
        survives("SigBlk:") || survives("SigCgt:")
    }

    /// Stops it in its tracks: its sockets stay open, and nobody answers.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on after [`Daemon::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Asks it to end, and waits until it has.
    pub async fn terminate(&mut self) -> Ended {
        self.signal(Signal::SIGTERM);
        let what = format!("{} ends after SIGTERM", self.name);
        let status = eventually(&what, async || self.exited()).await;
        Ended { status, log: self.log() }
    }

    /// Ends it at once, with no chance to tidy up.
    pub fn kill9(&mut self) {
        // It fails only for a process that has ended already, which is what is wanted.
        let _ = self.child.kill();
        self.child.wait().expect("a killed child can be waited for");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.name, last_lines(&self.log(), 50));
        }
    }
}

/// Whether a UDP socket's queue in the kernel is empty, for a sender that must not be too fast;
/// panics if the queue has ever overflowed.
pub fn is_drained(socket: SocketAddr) -> bool {
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let local = format!(":{:04X}", socket.port());
    let mut rows = table.lines().map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    // While sockets come and go elsewhere, the kernel's table may skip a row: not known, look
    // again.
    let Some(row) = rows.find(|row| row[1].ends_with(&local)) else { return false };
    assert_eq!(row.last(), Some(&"0"), "the kernel dropped packets to {socket}");
    row[4].ends_with(":00000000")
}

/// A listening command's output in one file: standard output beside standard error.
pub fn with_output_in(command: &mut Command, output: &Path) {
    command.stdout(File::create(output).expect("the output file can be made"));
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The addresses on 127.0.0.1 that a process serves, in the order of the kernel's table.
fn listening(pid: u32, transport: &str) -> Vec<SocketAddr> {
    let inodes = socket_inodes(pid);
    let table = fs::read_to_string(format!("/proc/{pid}/net/{transport}")).unwrap_or_default();
    let rows = table.lines().skip(1).filter_map(|row| serving(row, transport));
    rows.filter(|(inode, _)| inodes.contains(inode)).map(|(_, address)| address).collect()
}

/// Reads a row of `/proc/net/{tcp,udp}`: the inode and local address of a socket that serves.
fn serving(row: &str, transport: &str) -> Option<(u64, SocketAddr)> {
    let columns: Vec<_> = row.split_ascii_whitespace().collect();
    let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
    let (ip, port) = local.split_once(':')?;
    // The address is printed as the number that its bytes make in memory.
    let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
    let port = u16::from_str_radix(port, 16).ok()?;
    let serves = *state == if transport == "tcp" { TCP_LISTEN } else { UDP_UNCONNECTED };
    (serves && ip == Ipv4Addr::LOCALHOST).then_some((inode.parse().ok()?, (ip, port).into()))
}

fn socket_inodes(pid: u32) -> Vec<u64> {
    let Ok(open_files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let targets = open_files.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter_map(|target| socket_inode(target.to_str()?)).collect()
}

fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// States as the kernel numbers them in these tables.
const TCP_LISTEN: &str = "0A";
const UDP_UNCONNECTED: &str = "07";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_kernels_table_is_read() {
        let row = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 \
                   4242 1 0 100 0 0 10 0";
        assert_eq!(serving(row, "tcp"), Some((4242, "127.0.0.1:8080".parse().unwrap())));
        assert_eq!(serving(row, "udp"), None, "listening is not a state of UDP");
        assert_eq!(serving(&row.replace("0A", "01"), "tcp"), None, "a connection is no listener");
        assert_eq!(serving(&row.replace("0100007F", "00000000"), "tcp"), None, "not loopback");
    }

    #[test]
    fn only_the_end_of_a_long_log_is_shown() {
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }
}
