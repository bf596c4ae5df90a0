//! Bytes from standard input to standard output, as fast as a pipe is.

use crate::stdio;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Two ends, and room for what is on its way.
pub(super) struct Pipe {
    input: File,
    output: File,
    buffer: Box<[u8]>,
}

impl Pipe {
    /// From standard input to standard output, past the buffers that the library keeps for them:
    /// one is small, and the other looks for the ends of lines.
    ///
    /// # Errors
    ///
    /// That one of them is closed.
    pub(super) fn standard() -> io::Result<Self> {
        stdio::input().map_err(of_input)?;
        stdio::output().map_err(of_output)?;
        Self::new(io::stdin().as_fd(), io::stdout().as_fd())
    }

    fn new(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<Self> {
        widen(input);
        widen(output);
        Ok(Self {
            input: File::from(input.try_clone_to_owned()?),
            output: File::from(output.try_clone_to_owned()?),
            buffer: vec![0; CHUNK].into_boxed_slice(),
        })
    }

    /// Passes everything on, and then shows it.
    ///
    /// # Errors
    ///
    /// That the input breaks off, or the output takes no more.
    pub(super) fn pass(&mut self, mut show: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let len = match self.input.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.input, Wait::Input)?;
                    continue;
                }
                // So a terminal says that whoever wrote to it has gone.
                Err(_) if self.input.is_terminal() => return Ok(()),
                Err(error) => return Err(of_input(error)),
            };
            let chunk = self.buffer.get(..len).unwrap_or_default();
            write_all(&mut self.output, chunk).map_err(of_output)?;
            show(chunk);
        }
    }
}

fn of_input(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard input: {error}"))
}

fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Either end may be shared with somebody who has made it non-blocking.
fn write_all(output: &mut File, chunk: &[u8]) -> io::Result<()> {
    let mut rest = chunk;
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => rest = rest.get(len..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(output, Wait::Output)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Wait {
    Input,
    Output,
}

fn wait(end: &File, what: Wait) -> io::Result<()> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let events = match what {
        Wait::Input => PollFlags::POLLIN,
        Wait::Output => PollFlags::POLLOUT,
    };
    match poll(&mut [PollFd::new(end.as_fd(), events)], PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets a pipe hold more, so that both ends are woken less often; what is no pipe stays as it is.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn widen(end: BorrowedFd<'_>) {
    let size = i32::try_from(CHUNK).unwrap_or(i32::MAX);
    let _ = nix::fcntl::fcntl(end, nix::fcntl::FcntlArg::F_SETPIPE_SZ(size));
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn widen(_: BorrowedFd<'_>) {}

/// What is read at once, and fits a processor's cache.
const CHUNK: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    #[test]
    fn everything_goes_through_and_is_shown() {
        let (input, mut feed) = pipe().unwrap();
        let (mut drain, output) = pipe().unwrap();
        let mut passing = Pipe::new(input.as_fd(), output.as_fd()).unwrap();
        drop((input, output));
        let text: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (sent, mut seen, mut got) = (text.clone(), Vec::new(), Vec::new());
        let feeding = std::thread::spawn(move || feed.write_all(&sent).unwrap());
        let draining = std::thread::spawn(move || drain.read_to_end(&mut got).map(|_| got));
        passing.pass(|chunk| seen.extend_from_slice(chunk)).unwrap();
        drop(passing);
        feeding.join().unwrap();
        assert!(seen == text && draining.join().unwrap().unwrap() == text);
    }

    #[test]
    fn an_output_that_is_gone_is_told() {
        let (input, mut feed) = pipe().unwrap();
        let (drain, output) = pipe().unwrap();
        drop(drain);
        feed.write_all(b"x").unwrap();
        let error = Pipe::new(input.as_fd(), output.as_fd()).unwrap().pass(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
