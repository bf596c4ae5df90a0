//! The end of a connection whose client may still be sending.
//!
//! A socket that is closed with something unread in it resets the connection, and a reset takes
//! with it what the client has not read yet: its answer. So we say that we are done, and read on
//! for as long as something comes.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Says that nothing more is to come, and lets a client that still sends read what it was told.
/// Over when it has closed its end, after a [`SILENCE`], and in any case after `patience`.
pub async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin, patience: Duration) {
    let drained = async {
        say_goodbye(&mut stream).await;
        let mut chunk = [0; CHUNK];
        while let Ok(Ok(1..)) = timeout(SILENCE, stream.read(&mut chunk)).await {}
    };
    // Whatever happens, the connection is over.
    let _ = timeout(patience, drained).await;
}

/// Says that nothing more is to come: with TLS in its words, which tell an end from a cut.
pub async fn say_goodbye(stream: &mut (impl AsyncWrite + Unpin)) {
    // Whoever does not take even that has gone.
    let _ = timeout(SILENCE, stream.shutdown()).await;
}

/// Longer than a sender pauses that has not read its answer yet.
const SILENCE: Duration = Duration::from_secs(1);

const CHUNK: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn who_still_sends_is_read_and_who_is_silent_or_slow_is_left() {
        let check = async |times: u32, pause: Duration, expected: Duration| {
            let (mut client, server) = duplex(16);
            let sending = tokio::spawn(async move {
                for _ in 0..times {
                    sleep(pause).await;
                    if client.write_all(b"more").await.is_err() {
                        break;
                    }
                }
                client
            });
            let begin = Instant::now();
            linger(server, Duration::from_secs(30)).await;
            assert_eq!(begin.elapsed(), expected, "{times} times after {pause:?}");
            drop(sending);
        };
        let millis = Duration::from_millis;
        check(0, millis(0), millis(1000)).await;
        check(10, millis(900), millis(10_000)).await;
        check(2, millis(1100), millis(1000)).await;
        check(1000, millis(900), millis(30_000)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_closed_is_not_waited_for() {
        let (client, server) = duplex(16);
        drop(client);
        let begin = Instant::now();
        linger(server, Duration::from_secs(30)).await;
        assert!(begin.elapsed().is_zero());
    }
}
