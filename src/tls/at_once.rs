//! What a stream can do without waiting.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::task::unconstrained;

/// Polls once. Nobody waits here: who does waits for the socket. So it is the kernel alone that may
/// say no, and not the runtime because this task has done much already: whoever then waits for a
/// socket that is ready would go round and round, and whoever asks whether the peer has hung up
/// would be told that it has not.
pub fn at_once<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    pin!(unconstrained(poll_fn(poll))).poll(&mut Context::from_waker(Waker::noop()))
}

/// The same, and `WouldBlock` where it would have to wait.
///
/// # Errors
///
/// That, or what the stream says.
pub fn try_now<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match at_once(poll) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use tokio::io::{AsyncRead, ReadBuf};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    /// Of a task that has done so much that the runtime lets it do no more in this turn.
    #[tokio::test]
    async fn a_stream_that_was_closed_is_so_for_a_busy_task() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stream, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        drop(accepted);
        let mut stream = stream.unwrap();
        stream.readable().await.unwrap();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (0..10_000).for_each(|_| sender.send(()).unwrap());
        let read = poll_fn(|cx| {
            while receiver.poll_recv(cx).is_ready() {}
            assert!(!receiver.is_empty(), "it is the runtime that has stopped it");
            let mut bytes = [0; 8];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = try_now(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer));
            Poll::Ready(read.map(|()| buffer.filled().len()))
        });
        assert_eq!(read.await.unwrap(), 0);
    }
}
