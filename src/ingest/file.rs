//! Files: those that are followed as they grow, and a folder that whole files are taken from.
//!
//! One task looks every [`EVERY`] which files there are, and reads on in each of them: only lines that
//! have ended, so that half a line waits for its other half. A file is identified by its device and
//! inode, not by its name: one that was renamed is still read until it has been quiet for [`QUIET`]
//! looks, and one that was truncated, or no longer says what was read of it, is read from its beginning.
//! A new file is opened at once where the kernel reports it ([`watch`]), since an open file cannot be
//! renamed away. How far each file was read is kept under `data_dir` ([`positions`]), after the points
//! were handed over, every second while there is much to read: what was read since then is read again
//! after a kill. Files take turns, a few chunks each. While a backend that may refuse is full, nothing is
//! read, but files are looked for.
//!
//! Limits: `limits.line` for a line or a row, `limits.connections` for files, `limits.tags`.
//! Rejected: the reasons of the parsers, `file_limit`, `file_failed`, `gzip_broken`,
//! `unpacked_too_large`, `table_refused`, and `incomplete_line` for one whose end never came.
//! Noticed: `file_truncated`, `file_rewritten`, `repeated_line`, `surplus_cells` (once a file),
//! `empty_row`, `positions_failed`, `positions_damaged`, `positions_evicted`, `paused`.

mod decode;
mod folder;
mod follow;
mod form;
mod glob;
mod packed;
mod positions;
mod regular;
mod sheet;
mod watch;

pub(super) use decode::Decoder;
pub use glob::Glob;

use super::intake::{Context, Intake, Who};
use crate::books::Marks;
use folder::Folder;
use follow::{Followed, Open};
use packed::Flaw;
use positions::Positions;
use protocols::Point;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Reads files until the listener stops.
pub(super) async fn run(context: Context, data_dir: PathBuf) {
    let mut desk = Desk::new(&context, &data_dir);
    let globs = context.config.paths.iter().flatten().filter_map(|path| Glob::compile(path).ok());
    let mut followed = Followed::new(globs.collect());
    let mut folder = context.config.drop.clone().map(Folder::new);
    let mut looks = interval(EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !context.stop.is_cancelled() {
        tokio::select! {
            _ = looks.tick() => {}
            () = followed.news() => {
                let began = Instant::now();
                followed.find(&mut desk);
                sleep(LULL.max(began.elapsed() * 4)).await;
                continue;
            }
            () = sleep(PAUSE), if desk.paused => if desk.has_to_wait() {
                continue;
            },
            () = context.stop.cancelled() => break,
        }
        followed.look(&mut desk).await;
        if let Some(folder) = &mut folder {
            folder.look(&mut desk).await;
        }
        desk.positions.keep(&context);
    }
    desk.positions.keep(&context);
}

/// What reading files needs at hand.
struct Desk {
    context: Context,
    intake: Intake,
    positions: Positions,
    buffer: Box<[u8]>,
    /// A backend that may refuse had no room.
    paused: bool,
}

/// How a read went.
#[derive(Debug)]
enum Step {
    /// The file has had its turn, and there may be more.
    More,
    /// There is no more for now.
    End,
    /// The listener stops, or a backend that may refuse has no room.
    Wait,
    /// The file cannot be read.
    Failed(io::Error),
}

impl Desk {
    fn new(context: &Context, data_dir: &Path) -> Self {
        let positions = blocking(|| Positions::read(data_dir, context));
        let (intake, buffer) = (context.intake(), vec![0; CHUNK].into_boxed_slice());
        Self { context: context.clone(), intake, positions, buffer, paused: false }
    }

    /// Lets a file have its turn: reads a few chunks, and keeps its position now and then.
    async fn read_some(&mut self, open: &mut Open) -> Step {
        for _ in 0..TURN {
            match self.read(open).await {
                Step::More => open.note(self),
                last => return last,
            }
            self.positions.keep_at_times(&self.context);
        }
        Step::More
    }

    /// Whether nothing is to be read: the listener stops, or a backend that may refuse has no room.
    fn has_to_wait(&mut self) -> bool {
        let refusing = self.intake.refusing();
        if refusing && !self.paused {
            self.context.book.noticed.add("paused", 1);
        }
        self.paused = refusing;
        refusing || self.context.stop.is_cancelled()
    }

    /// Reads a chunk of a file, and hands over what is in it.
    async fn read(&mut self, open: &mut Open) -> Step {
        if self.has_to_wait() {
            return Step::Wait;
        }
        let len = match blocking(|| open.read(&mut self.buffer)) {
            Ok(0) => return Step::End,
            Ok(len) => len,
            Err(flaw) => return self.refuse_rest(open, flaw),
        };
        self.context.book.received_bytes.add(len as u64);
        self.turn_to(&open.decoder);
        let known = open.known;
        let chunk = self.buffer.get(..len).unwrap_or_default();
        let passed = if known > 0 { open.pass_over(chunk) } else { 0 };
        self.context.book.noticed.add("repeated_line", known - open.known);
        let chunk = chunk.get(passed..).unwrap_or_default();
        blocking(|| open.decoder.feed(chunk, &mut self.intake));
        self.hand_over(&mut open.decoder);
        self.intake.ease().await;
        Step::More
    }

    /// What is refused from now on is this file's.
    fn turn_to(&mut self, decoder: &Decoder) {
        if self.context.book.tallies.is_asked() {
            self.intake.about(Marks::new(&[("file", decoder.name())]));
        }
    }

    /// No more of a file can be read. If its compression is damaged, what comes before that counts; if the
    /// system has failed, it may be tried again.
    fn refuse_rest(&self, open: &mut Open, flaw: Flaw) -> Step {
        let reason = match flaw {
            Flaw::Failed(error) => return Step::Failed(error),
            Flaw::Broken(_) => "gzip_broken",
            Flaw::TooLarge(_) => "unpacked_too_large",
        };
        self.refuse(open.decoder.name(), reason, &flaw.to_string());
        open.decoder.note_refusal(flaw.to_string());
        Step::End
    }

    /// Counts what is refused of a file, or of its place, and tells it with its name.
    fn refuse(&self, file: &str, reason: &'static str, text: &str) {
        let marks = Marks::new(&[("file", file)]);
        self.context.refuse_about(marks, reason, text.as_bytes());
    }

    /// Counts a file that cannot be opened, read or moved.
    fn refuse_failed(&self, path: &Path, error: &io::Error) {
        let name = path.display().to_string();
        self.refuse(&name, "file_failed", &error.to_string());
    }

    /// What was read is all there is: the last line counts even without a line end.
    fn end(&mut self, open: &mut Open) {
        self.turn_to(&open.decoder);
        if open.known == 0 {
            open.decoder.end(&mut self.intake);
        }
        self.hand_over(&mut open.decoder);
        open.note(self);
    }

    fn hand_over(&mut self, decoder: &mut Decoder) {
        let name = decoder.name().to_owned();
        let tell = |point: &Point<'_>, denial| decoder.denied(point, denial);
        self.intake.submit_and_tell(Who::File(&name), tell);
    }
}

fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Does something that waits for a disk, without keeping the other tasks of this worker waiting.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let many = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if many { block_in_place(work) } else { work() }
}

/// What marks a line of a log, if nothing else is said.
pub(super) const MARK: &str = "[taskcluster-task:stat]";

/// How often to look for news.
const EVERY: Duration = Duration::from_millis(500);

/// After so many looks a file that is gone from its place is not expected to grow.
const QUIET: u32 = 20;

/// What is read at once.
const CHUNK: usize = 64 << 10;

/// Enough to tell two logs apart, and to notice that a file was written over.
const SAMPLE: usize = 256;

/// How many chunks of a file are read before it is the turn of another.
const TURN: usize = 64;

/// How often to warn that positions cannot be written.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Short against the patience of any sender.
const PAUSE: Duration = Duration::from_millis(50);

/// How long to collect news of files before looking for them again; longer where looking takes long.
const LULL: Duration = Duration::from_millis(10);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::books::ListenerBook;
    use crate::clock::Clock;
    use crate::ingest::Listener;
    use crate::ingest::tests::rig::{NOW, config, keys};
    use crate::origin::{Origin, Protocol};
    use crate::route::{Router, Table};
    use protocols::UnixNanos;
    use serde_json::json;
    use std::sync::Arc;

    fn opened(path: PathBuf, desk: &mut Desk) -> io::Result<Open> {
        Open::new(path.clone(), File::open(path)?, false, desk)
    }

    /// It stops with the listener.
    pub(super) fn desk(data_dir: &Path) -> (Desk, Listener) {
        let clock = Clock::starting_at(UnixNanos::from_secs(NOW));
        let book = Arc::<ListenerBook>::default();
        let tables = Arc::new(Arc::new(Table::default()).into());
        let origin = Origin::new("files", Protocol::File);
        let router = Router::new(tables, origin, Arc::clone(&book), clock);
        let config = config("file", "", json!({ "paths": ["/a"] }));
        let tokens = Listener::default();
        let context = Context::new("files", &config, router, book, clock, &keys(clock), &tokens);
        (Desk::new(&context, data_dir), tokens)
    }

    /// A file with a bad line, which then cannot be read any more.
    pub(in crate::ingest) async fn refuse_line_and_file(path: PathBuf) {
        std::fs::write(&path, "nonsense\n").unwrap();
        let (mut desk, _listener) = desk(path.parent().unwrap());
        let mut open = opened(path.clone(), &mut desk).unwrap();
        desk.read_some(&mut open).await;
        desk.refuse_failed(&path, &io::Error::other("no more"));
    }

    #[tokio::test]
    async fn a_long_file_takes_turns_and_its_place_is_kept_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let line = format!("{}\n", " ".repeat(CHUNK - 1));
        std::fs::write(&path, line.repeat(TURN + 1)).unwrap();
        let (mut desk, _listener) = desk(dir.path());
        let mut open = opened(path, &mut desk).unwrap();
        assert!(matches!(desk.read_some(&mut open).await, Step::More));
        assert_eq!(open.decoder.read(), (TURN * CHUNK) as u64);
        let mut kept = Positions::read(dir.path(), &desk.context);
        assert!(kept.of(open.id, &open.file).unwrap().offset > 0);
        assert!(matches!(desk.read_some(&mut open).await, Step::End));
        assert_eq!(open.decoder.read(), ((TURN + 1) * CHUNK) as u64);
    }

    /// The kernel gives the number of a file that is gone to the next one.
    #[tokio::test]
    async fn a_file_in_the_place_of_another_is_known_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let (mut desk, _listener) = desk(dir.path());
        for text in ["x", "y", "z"] {
            std::fs::write(&path, text.repeat(999) + "\n").unwrap();
            let mut open = opened(path.clone(), &mut desk).unwrap();
            assert_eq!(open.decoder.read(), 0, "it is not the one before");
            assert!(matches!(desk.read_some(&mut open).await, Step::End));
            assert_eq!(desk.positions.of(open.id, &open.file).unwrap().offset, 1000);
        }
    }
}
