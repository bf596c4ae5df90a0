//! What the service manager is told, by datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! | when | said |
//! |---|---|
//! | all is up | `READY=1` |
//! | a reload begins | `RELOADING=1` with the time, which `Type=notify-reload` asks for |
//! | a reload ends, well or not | `READY=1` |
//! | a stop begins | `STOPPING=1` |
//! | twice in each `WATCHDOG_USEC` | `WATCHDOG=1` |
//!
//! With each but the last goes a `STATUS=` for people. Without a manager nothing is said. One
//! that does not listen is waited for half a second, and not at all with `WATCHDOG=1`: it has
//! not yet read those before.

use nix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notify {
    to: Option<Manager>,
    beat: Option<Beat>,
}

#[derive(Debug)]
struct Manager {
    address: SocketAddr,
    patient: UnixDatagram,
    hasty: UnixDatagram,
}

#[derive(Debug)]
struct Beat {
    every: Duration,
    next: Instant,
}

impl Notify {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let to = env::var_os("NOTIFY_SOCKET").and_then(|name| match Manager::at(&name) {
            Ok(to) => Some(to),
            Err(error) => {
                warn!(%error, socket = %name.display(), "the service manager cannot be told");
                None
            }
        });
        let [every, process] = ["WATCHDOG_USEC", "WATCHDOG_PID"].map(env::var_os);
        let beat = interval(every, process, std::process::id());
        Self { to, beat: beat.map(|every| Beat { every, next: Instant::now() }) }
    }

    /// All is up, or up again after a reload.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\n{}", said(status)));
    }

    /// A reload begins.
    pub fn reloading(&self) {
        let stamp = match clock_gettime(ClockId::CLOCK_MONOTONIC) {
            Ok(now) => Duration::from(now).as_micros(),
            Err(_) => 0, // No kernel of Linux is without this clock.
        };
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={stamp}\n{}", said("reloading")));
    }

    /// The end begins.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\n{}", said(status)));
    }

    /// Waits until it is time to show that whoever calls this is alive, and shows it; waits for
    /// ever if nobody asks. Safe to cancel.
    pub async fn beat(&mut self) {
        let Some(beat) = &mut self.beat else { return std::future::pending().await };
        sleep_until(beat.next).await;
        beat.next = Instant::now() + beat.every;
        if let Some(to) = &self.to {
            to.remind("WATCHDOG=1");
        }
    }

    fn tell(&self, what: &str) {
        if let Some(to) = &self.to {
            to.tell(what);
        }
    }
}

impl Manager {
    fn at(name: &OsStr) -> io::Result<Self> {
        let address = address(name)?;
        let [patient, hasty] = [UnixDatagram::unbound()?, UnixDatagram::unbound()?];
        patient.set_write_timeout(Some(PATIENCE))?;
        hasty.set_nonblocking(true)?;
        Ok(Self { address, patient, hasty })
    }

    fn tell(&self, what: &str) {
        warn_of(what, self.patient.send_to_addr(what.as_bytes(), &self.address));
    }

    fn remind(&self, what: &str) {
        match self.hasty.send_to_addr(what.as_bytes(), &self.address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            told => warn_of(what, told),
        }
    }
}

fn warn_of(what: &str, told: io::Result<usize>) {
    if let Err(error) = told {
        warn!(%error, what, "the service manager was not told");
    }
}

/// A line of its own, whatever stands in it.
fn said(status: &str) -> String {
    format!("STATUS={}", status.replace(['\n', '\r'], "; "))
}

/// A path, or after an `@` a name that stands in no file system.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an @name")),
    }
}

/// Half of what the manager waits at most, if it watches this process.
fn interval(every: Option<OsString>, process: Option<OsString>, us: u32) -> Option<Duration> {
    let number = |text: OsString| text.to_str()?.parse::<u64>().ok();
    let micros = number(every?).filter(|micros| *micros > 0)?;
    let ours = process.is_none_or(|process| number(process) == Some(us.into()));
    ours.then(|| Duration::from_micros(micros) / 2)
}

/// How long a manager that is busy is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_watchdogs_time_if_it_watches_us() {
        let check = |every: Option<&str>, process: Option<&str>, expected: Option<u64>| {
            let got = interval(every.map(OsString::from), process.map(OsString::from), 7);
            assert_eq!(got, expected.map(Duration::from_millis), "{every:?} {process:?}");
        };
        check(Some("30000000"), None, Some(15_000));
        check(Some("30000000"), Some("7"), Some(15_000));
        check(Some("30000000"), Some("8"), None);
        check(Some("0"), None, None);
        check(Some("soon"), None, None);
        check(None, Some("7"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_that_reads_nothing_is_not_waited_for() {
        let name = OsString::from(format!("@pointsman-test-{}", std::process::id()));
        let _manager = UnixDatagram::bind_addr(&address(&name).unwrap()).unwrap();
        let beat = Beat { every: Duration::from_secs(1), next: Instant::now() };
        let mut notify = Notify { to: Some(Manager::at(&name).unwrap()), beat: Some(beat) };
        let began = std::time::Instant::now();
        for _ in 0..2000 {
            notify.beat().await;
        }
        assert!(began.elapsed() < 20 * PATIENCE);
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(said("a\nREADY=1"), "STATUS=a; READY=1");
    }

    #[tokio::test(start_paused = true)]
    async fn managers_are_told_at_paths_and_at_names_that_stand_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify").into_os_string();
        let mut name = OsString::from("@");
        name.push(&path);
        for place in [path, name] {
            let manager = UnixDatagram::bind_addr(&address(&place).unwrap()).unwrap();
            let beat = Beat { every: Duration::from_secs(1), next: Instant::now() };
            let mut notify = Notify { to: Some(Manager::at(&place).unwrap()), beat: Some(beat) };
            let began = Instant::now();
            notify.ready("up");
            notify.beat().await;
            notify.beat().await;
            assert_eq!(began.elapsed().as_secs(), 1);
            let heard = [(); 3].map(|()| {
                let mut buffer = [0; 99];
                let length = manager.recv(&mut buffer).unwrap();
                String::from_utf8_lossy(&buffer[..length]).into_owned()
            });
            assert_eq!(heard, ["READY=1\nSTATUS=up", "WATCHDOG=1", "WATCHDOG=1"]);
        }
        assert!(address(OsStr::new("vsock:2:1")).is_err());
    }
}
