//! The beginning of AMQP 0-9-1, as a broker speaks it that wants to be shown a password: for what the
//! real one does not do.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks a client who it is; what it has answered.
pub async fn ask_who(stream: &mut TcpStream) -> String {
    stream.read_exact(&mut [0; 8]).await.unwrap();
    // Connection.start, version 0-9, no properties.
    say(stream, b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US").await;
    let mut head = [0; 7];
    stream.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes(head[3..].try_into().unwrap()) as usize;
    let mut answer = vec![0; length + 1];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Refuses who it is, and waits until the client has heard it.
pub async fn refuse(stream: &mut TcpStream) {
    // Connection.close, 403.
    say(stream, b"\0\x0a\0\x32\x01\x93\x0eACCESS_REFUSED\0\0\0\0").await;
    let _ = stream.read(&mut [0; 4096]).await;
}

/// A method, in a frame of channel 0.
async fn say(stream: &mut TcpStream, method: &[u8]) {
    let length = u32::try_from(method.len()).unwrap().to_be_bytes();
    let frame = [&[1, 0, 0][..], &length, method, &[0xce]].concat();
    stream.write_all(&frame).await.unwrap();
}
