//! Is told by the kernel when a name comes up in a folder, so that it is looked for at once.
//!
//! A file that is open is read to its end under whatever name; only one that comes and goes between
//! two looks would be missed. Nothing depends on being told: where the kernel does not (other
//! systems, file systems of other hosts, more than [`FOLDERS`]) it is looked [`EVERY`] so often.
//!
//! [`EVERY`]: super::EVERY

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use tokio::net::unix::pipe::Receiver;

/// The folders that news come of.
pub(super) struct Watch {
    /// To say what is watched, and to hear of it.
    ends: Option<(Inotify, Receiver)>,
    folders: BTreeMap<PathBuf, WatchDescriptor>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { ends: ends().ok(), folders: BTreeMap::new() }
    }

    /// From now on these are watched, and no others. Blocks.
    pub(super) fn keep(&mut self, folders: impl IntoIterator<Item = PathBuf>) {
        let Some((inotify, _)) = &self.ends else { return };
        let mut before = std::mem::take(&mut self.folders);
        for folder in folders.into_iter().take(FOLDERS) {
            // Said again, so that a folder in the place of another is found; the same one is told
            // by the same number.
            let Ok(watched) = inotify.add_watch(&folder, COMES) else { continue };
            before.retain(|_, other| *other != watched);
            self.folders.insert(folder, watched);
        }
        for gone in before.into_values() {
            // It went with its folder, perhaps.
            let _ = inotify.rm_watch(gone);
        }
    }

    /// Whether a name has come up in one of them.
    pub(super) fn has_news(&self) -> bool {
        let told = |news: &Receiver| news.try_read(&mut [0; BUFFER]);
        self.ends.as_ref().is_some_and(|(_, news)| matches!(told(news), Ok(1..)))
    }

    /// Waits until a name comes up in one of them.
    pub(super) async fn news(&self) {
        let Some((_, news)) = &self.ends else { return pending().await };
        while news.readable().await.is_ok() {
            match news.try_read(&mut [0; BUFFER]) {
                // What came up is looked for, whatever it is called.
                Ok(1..) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
            }
        }
        pending().await
    }
}

fn ends() -> io::Result<(Inotify, Receiver)> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    // It is read from as a pipe is.
    let news = Receiver::from_owned_fd_unchecked(inotify.as_fd().try_clone_to_owned()?)?;
    Ok((inotify, news))
}

/// Enough for some; what is left over is news again.
const BUFFER: usize = 4096;

/// A file that was made there, or moved there.
const COMES: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);

/// Some thousands are what a user may watch on an old kernel, with all that he runs.
const FOLDERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_comes_up_is_told_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let [here, there] = ["here", "there"].map(|name| dir.path().join(name));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&there).unwrap();
        let mut watch = Watch::new();
        watch.keep([here.clone(), there.clone(), dir.path().join("nowhere")]);
        watch.keep([here.clone()]);
        // That one of them is no longer watched is itself told.
        let _ = timeout(Duration::from_millis(20), watch.news()).await;
        let silence = timeout(Duration::from_millis(20), watch.news()).await;
        assert!(silence.is_err());
        fs::write(there.join("a"), "").unwrap();
        let silence = timeout(Duration::from_millis(20), watch.news()).await;
        assert!(silence.is_err());
        fs::write(here.join("a"), "").unwrap();
        timeout(Duration::from_secs(10), watch.news()).await.unwrap();
        fs::rename(there.join("a"), here.join("b")).unwrap();
        timeout(Duration::from_secs(10), watch.news()).await.unwrap();
    }
}
