//! Whether standard input and output were open when the program was started.
//!
//! Rust's library opens `/dev/null` in the place of those that were not, so that no file gets their
//! numbers, and whatever is written there is lost without a word. So it is looked before that, by a
//! function that the loader calls; where it calls none, all is taken to be open.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// That there is somewhere to read from.
///
/// # Errors
///
/// That it was closed.
pub fn input() -> io::Result<()> {
    open(&INPUT_CLOSED)
}

/// That there is somewhere to write to.
///
/// # Errors
///
/// That it was closed.
pub fn output() -> io::Result<()> {
    open(&OUTPUT_CLOSED)
}

fn open(closed: &AtomicBool) -> io::Result<()> {
    match closed.load(Ordering::Relaxed) {
        true => Err(Errno::EBADF.into()),
        false => Ok(()),
    }
}

extern "C" fn look() {
    let is_closed = |end: &dyn AsFd| fcntl(end.as_fd(), FcntlArg::F_GETFD) == Err(Errno::EBADF);
    INPUT_CLOSED.store(is_closed(&io::stdin()), Ordering::Relaxed);
    OUTPUT_CLOSED.store(is_closed(&io::stdout()), Ordering::Relaxed);
}

// A function that takes nothing is what the loader expects to find there; it needs nothing of what
// the library makes ready before `main`.
#[allow(unsafe_code)]
#[cfg(any(target_os = "linux", target_os = "android"))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
