//! Whose CPU time is whose, and which CPU is for whom.
//!
//! A server's time is what the kernel books on its process. The receive path of loopback runs
//! on the sender's CPU, so it is in nobody's figure, the floor's included.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, sysconf};
use std::fs;

/// One CPU for the server and another for the generator, if there are two.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    pub server: usize,
    pub generator: usize,
    /// One more for a server that is to use two.
    second: Option<usize>,
    /// One that is nobody's.
    spare: Option<usize>,
}

impl Cpus {
    /// The first two that this process may use.
    pub fn allowed() -> Result<Self> {
        let set = sched_getaffinity(THIS_THREAD)?;
        let mut allowed = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
        let server = allowed.next().context("this process may use no CPU")?;
        let generator = allowed.next().unwrap_or(server);
        Ok(Self { server, generator, second: None, spare: allowed.next() })
    }

    /// The server has two, and the generator a third. Where there is none, it shares the second
    /// with the server, and the two are in each other's way.
    pub fn two_for_the_server(self) -> Self {
        let generator = self.spare.unwrap_or(self.generator);
        Self { second: Some(self.generator), spare: None, generator, ..self }
    }

    /// Does something on the server's CPU, such as starting the server, which stays there with
    /// all its threads; then goes on on the generator's.
    pub fn on_server<T>(self, work: impl FnOnce() -> T) -> Result<T> {
        keep_to(std::iter::once(self.server).chain(self.second))?;
        let done = work();
        pin(self.generator)?;
        Ok(done)
    }
}

/// Keeps this thread, and those it will start, on one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    keep_to([cpu])
}

fn keep_to(cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().try_for_each(|cpu| set.set(cpu))?;
    Ok(sched_setaffinity(THIS_THREAD, &set)?)
}

/// CPU seconds that this process has used, all threads together.
pub fn of_this_process() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time() + usage.system_time();
    Ok(time.num_microseconds() as f64 / 1e6)
}

/// CPU seconds that another process has used, in steps of a clock tick (10 ms).
pub fn of_process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    Ok(stat_ticks(&stat).context(path)? as f64 / ticks_per_second()?)
}

/// CPU seconds that all processes of the machine have used, interrupts left out.
pub fn of_machine() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    Ok(machine_ticks(&stat).context("/proc/stat")? as f64 / ticks_per_second()?)
}

/// User and system time: the 14th and 15th field. The command's name, the second, may hold
/// spaces and brackets, so fields are counted from its end.
fn stat_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// User, nice and system time of all CPUs.
fn machine_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    fields.take(3).map(|field| field.parse::<u64>().ok()).sum()
}

fn ticks_per_second() -> Result<f64> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.context("the length of a clock tick is unknown")?;
    Ok(ticks as f64)
}

const THIS_THREAD: Pid = Pid::from_raw(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 104 0 0 0 123 45 0 0 20 0 1 0 500";
        assert_eq!(stat_ticks(stat), Some(168));
        assert_eq!(stat_ticks("7 (cut"), None);
    }

    #[test]
    fn idle_time_and_interrupts_are_nobodys() {
        let stat = "cpu  100 20 3 9999 7 5 6 0 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(machine_ticks(stat), Some(123));
    }
}
