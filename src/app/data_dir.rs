//! The data directory: one gateway at a time, enough room, and nothing forgotten in it.
//!
//! The lock is the kernel's and ends with the process, however that ends; the file `lock` only
//! says for people who holds it. Commands that read (`query`, `explain`, `check`) need none.

use crate::backend;
use crate::config::Backend;
use crate::ingest::keys_file;
use crate::lane::{Settings, letter_names, letters_file, spool_file, spool_names};
use crate::origin::Protocol;
use crate::plan::Plan;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tracing::{info, warn};

/// The data directory, which is ours from when something in it is first needed.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    lock: Mutex<Option<Lock>>,
}

impl DataDir {
    /// Nothing is taken yet.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, lock: Mutex::new(None) }
    }

    /// Takes it, unless it is ours already.
    ///
    /// # Errors
    ///
    /// A sentence that says who has it, or why it cannot be used.
    pub(super) fn enter(&self) -> Result<(), String> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            *lock = Some(Lock::take(&self.path)?);
        }
        Ok(())
    }

    /// Takes it if the plan needs it, or could do with it: without it, windows are not remembered,
    /// which is no reason not to start. Answers whether it is ours.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter), where the plan needs it.
    pub(super) fn enter_for(&self, plan: &Plan) -> Result<bool, String> {
        if is_used(plan) {
            self.enter()?;
        } else if plan.backends.iter().any(aggregates)
            && let Err(problem) = self.enter()
        {
            warn!("windows and gauges will begin anew at the next restart: {problem}");
        }
        Ok(self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some())
    }
}

fn aggregates((name, backend): (&String, &Backend)) -> bool {
    Settings::new(name, backend.kind.kind(), &backend.lane).aggregate
}

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the directory, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// A sentence that says who has it, or why it cannot be used.
    fn take(data_dir: &Path) -> Result<Self, String> {
        let problem = |error: std::io::Error| {
            let dir = data_dir.display();
            format!("the data directory {dir} cannot be used: {error}; `data_dir` sets another one")
        };
        fs::create_dir_all(data_dir).map_err(problem)?;
        let path = data_dir.join("lock");
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        match Flock::lock(open.map_err(problem)?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                say_who(&mut file).map_err(problem)?;
                Ok(Self { _file: file })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                // Whoever it is, it is not us.
                let _ = file.read_to_string(&mut holder);
                let (dir, holder) = (data_dir.display(), holder.trim());
                Err(format!(
                    "the data directory {dir} is in use by another gateway ({holder}); stop that one, \
                     or choose another directory by `data_dir` or --data-dir"
                ))
            }
            Err((_, error)) => Err(problem(error.into())),
        }
    }
}

fn say_who(file: &mut File) -> std::io::Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    file.set_len(0)?;
    writeln!(file, "pid {}, started {now}", std::process::id())
}

/// Whether anything of the plan lives in the data directory, or dead letters do. Keys of requests
/// do not until the first one comes.
fn is_used(plan: &Plan) -> bool {
    let takes_keys = plan.listeners.values().any(|listener| listener.protocol.remembers());
    if takes_keys && keys_file(&plan.data_dir).exists() {
        return true;
    }
    if plan.listeners.values().any(|listener| listener.protocol == Protocol::File) {
        return true;
    }
    let uses = |(name, backend): (&String, &Backend)| {
        matches!(backend.kind, backend::Config::Store(_))
            || disk_size(name, backend) > 0
            || spool_file(&plan.data_dir, name).exists()
    };
    plan.backends.iter().any(uses) || !letter_names(&plan.data_dir).is_empty()
}

/// Says what an outage would find out: that the disk is smaller than the limits.
pub(super) fn warn_of_space(plan: &Plan) {
    let sizes = plan.backends.iter().map(|(name, backend)| disk_size(name, backend));
    let limits: u64 = sizes.fold(0, |sum, size| sum.saturating_add(size as u64));
    let files = |name| [spool_file(&plan.data_dir, name), letters_file(&plan.data_dir, name)];
    let held = plan
        .backends
        .keys()
        .flat_map(|name| files(name))
        .filter_map(|file| fs::metadata(file).ok().map(|file| file.len()));
    let Ok(disk) = statvfs(&plan.data_dir) else { return };
    let room = disk.blocks_available() * disk.fragment_size() + held.sum::<u64>();
    if limits > room {
        let data_dir = plan.data_dir.display();
        warn!(%data_dir, limits, room, "spools and dead letters may grow beyond the free space; a full disk is a full queue");
    }
}

/// Names the spools that no backend empties any more, and letters that only replay can.
pub(super) fn name_orphans(plan: &Plan) {
    let spools = orphans(spool_names(&plan.data_dir), plan);
    if !spools.is_empty() {
        info!(%spools, "spools of backends that are not configured any more are left alone");
    }
    let backends = orphans(letter_names(&plan.data_dir), plan);
    if !backends.is_empty() {
        info!(%backends, "there are dead letters of backends that are not configured any more; they can be replayed and purged");
    }
}

fn orphans(mut names: Vec<String>, plan: &Plan) -> String {
    names.retain(|name| !plan.backends.contains_key(name));
    names.join(", ")
}

/// How much of the disk a backend may take.
fn disk_size(name: &str, backend: &Backend) -> usize {
    let settings = Settings::new(name, backend.kind.kind(), &backend.lane);
    let sizes = [settings.spool, settings.dead_letters];
    sizes.into_iter().flatten().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_gateways_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("data");
        let lock = Lock::take(&inside).unwrap();
        let problem = Lock::take(&inside).unwrap_err();
        let pid = format!("(pid {}, started 2", std::process::id());
        assert!(
            problem.contains("in use by another gateway")
                && problem.contains(&pid)
                && problem.contains("stop that one, or choose another directory by `data_dir`"),
            "{problem}"
        );
        drop(lock);
        assert!(Lock::take(&inside).is_ok());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let problem = Lock::take(&file.path().join("data")).unwrap_err();
        assert!(problem.contains("cannot be used: "), "{problem}");
    }
}
