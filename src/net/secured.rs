//! A connection with TLS, which is read and written as one without is: now, and without waiting.
//!
//! What came is decrypted as it is read, on the task that reads. The handshake is the connection's
//! own affair as well, so that a client who is slow at it, or never meant it, costs only itself.
//! A stream that ends without TLS's own word for it ("close notify") may have been cut, so this is
//! an error; what came before is good.

use super::intercepted::{Intercept, Intercepted};
use super::linger::linger;
use crate::tls::{PeerCertificate, Refusal, Server, at_once, try_now};
use nix::sys::socket::{MsgFlags, recv};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::server::TlsStream;

/// A connection after its handshake.
#[derive(Debug)]
pub struct Secured {
    tls: TlsStream<Raw>,
    /// Whom the peer has proved to be.
    certificate: Option<Arc<PeerCertificate>>,
    /// There may be more to read without the kernel's having more.
    is_readable: bool,
}

impl Secured {
    pub(super) async fn shake_hands(
        stream: TcpStream,
        server: &Server,
        patience: Duration,
    ) -> Result<Self, Refusal> {
        let deadline = Instant::now() + patience;
        match timeout_at(deadline, first(&stream)).await {
            Err(_) => return Err(Refusal::Late),
            Ok(First::Nothing) => return Err(Refusal::Unused),
            Ok(First::Handshake) => {}
            Ok(First::Http) => {
                explain(stream, deadline).await;
                return Err(Refusal::Plain);
            }
            Ok(First::Other) => return Err(Refusal::Plain),
        }
        let raw = Raw { stream, interceptor: AtOnce(false) };
        let tls = server.accept(raw, deadline.duration_since(Instant::now())).await?;
        let shown = tls.get_ref().1.peer_certificates();
        let certificate = shown.map(|chain| Arc::new(PeerCertificate::of(chain)));
        Ok(Self { tls, certificate, is_readable: true })
    }

    pub(super) const fn peer_certificate(&self) -> Option<&Arc<PeerCertificate>> {
        self.certificate.as_ref()
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.is_readable { Ok(()) } else { self.tcp().readable().await }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.tcp().writable().await
    }

    pub(super) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(into);
        let tls = &mut self.tls;
        let read = try_now(|cx| Pin::new(&mut *tls).poll_read(cx, &mut buffer));
        let read = read.map(|()| buffer.filled().len());
        self.is_readable = read.is_ok();
        read
    }

    /// Past the runtime, which may not have heard of what the kernel has.
    pub(super) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.tls.get_mut().0.interceptor.0 = true;
        let read = self.try_read(into);
        self.tls.get_mut().0.interceptor.0 = false;
        read
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        try_now(|cx| Pin::new(&mut self.tls).poll_write(cx, bytes))
    }

    /// Whether nothing is left of what was encrypted.
    pub(super) fn try_flush(&mut self) -> bool {
        at_once(|cx| Pin::new(&mut self.tls).poll_flush(cx)).is_ready()
    }

    /// The stream, for whoever can wait.
    pub(super) fn stream(&mut self) -> Pin<&mut TlsStream<Raw>> {
        Pin::new(&mut self.tls)
    }

    fn tcp(&self) -> &TcpStream {
        &self.tls.get_ref().0.stream
    }
}

/// What a client says first.
enum First {
    Nothing,
    Handshake,
    Http,
    Other,
}

async fn first(stream: &TcpStream) -> First {
    let mut bytes = [0; 8];
    let Ok(length) = stream.peek(&mut bytes).await else { return First::Nothing };
    match bytes.get(..length).unwrap_or(&[]) {
        [] => First::Nothing,
        [HANDSHAKE, ..] => First::Handshake,
        text if METHODS.iter().any(|method| text.starts_with(method)) => First::Http,
        _ => First::Other,
    }
}

/// Answers in HTTP, and reads what is still coming, so that the answer is not lost in a reset.
async fn explain(mut stream: TcpStream, deadline: Instant) {
    // Whoever does not read it has lost nothing.
    let _ = timeout_at(deadline, stream.write_all(NOT_HTTP)).await;
    linger(stream, deadline.duration_since(Instant::now())).await;
}

/// The stream under it.
type Raw = Intercepted<TcpStream, AtOnce>;

/// Whether reads go to the kernel, whatever the runtime knows.
#[derive(Debug)]
pub(super) struct AtOnce(bool);

impl Intercept<TcpStream> for AtOnce {
    fn poll_read(
        &mut self,
        stream: Pin<&mut TcpStream>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self(true) = self else { return stream.poll_read(cx, into) };
        let room = into.initialize_unfilled();
        match recv(stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => {
                into.advance(length);
                Poll::Ready(Ok(()))
            }
            Err(nix::errno::Errno::EAGAIN) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// The type of TLS's first record.
const HANDSHAKE: u8 = 22;

/// As far as eight bytes show them.
const METHODS: [&[u8]; 6] = [b"GET /", b"PUT /", b"POST /", b"HEAD /", b"OPTIONS ", b"DELETE /"];

/// For whoever has written `http://` and meant `https://`.
const NOT_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\
Connection: close\r\nContent-Length: 84\r\n\r\n\
{\"error\":{\"code\":\"tls_handshake\",\"message\":\"this port speaks TLS: write https://\"}}\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Stream;
    use crate::tls::{ServerSettings, Version};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::io::ErrorKind;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsConnector, client};

    /// Both ends of a connection between `server.test` and `client.test`.
    async fn connection() -> (Stream, client::TlsStream<TcpStream>) {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &root).unwrap().pem(), key.serialize_pem())
        };
        let write = |name: &str, content: &str| {
            std::fs::write(dir.path().join(name), content).unwrap();
            dir.path().join(name)
        };
        let (cert, key) = issue("server.test");
        let settings = ServerSettings {
            cert: write("cert", &cert),
            key: write("key", &key),
            client_ca: Some(write("ca", &root.pem())),
            min_version: Version::V12,
        };
        let (server, _) = Server::load(&settings).unwrap();
        let (cert, key) = issue("client.test");
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("server.test").unwrap();
            TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
        };
        let accepted = async {
            let stream = Stream::Tcp(listener.accept().await.unwrap().0);
            stream.secure(&server, Duration::from_secs(5)).await.unwrap()
        };
        tokio::join!(accepted, client)
    }

    #[tokio::test]
    async fn a_connection_knows_whom_its_client_has_proved_to_be() {
        let (stream, _client) = connection().await;
        let names = stream.peer_certificate().map(|certificate| certificate.names.clone());
        assert_eq!(
            names,
            Some(vec!["rcgen self signed cert".to_owned(), "client.test".to_owned()])
        );
    }

    /// A record is decrypted whole, so there is more than the kernel knows of.
    #[tokio::test]
    async fn all_that_came_is_read_however_little_is_asked_for() {
        let (mut stream, mut client) = connection().await;
        client.write_all(&[7; 40_000]).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut read, mut chunk) = (0, [0; 1000]);
        loop {
            stream.readable().await.unwrap();
            match stream.try_read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => read += length,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(read, 40_000);
    }

    #[tokio::test]
    async fn a_last_look_is_at_what_the_kernel_has() {
        let (mut stream, mut client) = connection().await;
        let mut chunk = [0; 100];
        while stream.try_read(&mut chunk).is_ok() {}
        client.write_all(b"a:1|c\n").await.unwrap();
        client.flush().await.unwrap();
        // The runtime has had no turn to hear of it.
        assert_eq!(stream.read_now(&mut chunk).unwrap(), 6);
        let nothing = stream.read_now(&mut chunk).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn what_is_written_and_not_read_waits() {
        let (mut stream, mut client) = connection().await;
        let mut written = 0;
        while let Ok(length) = stream.try_write(&[7; 10_000]) {
            written += length;
        }
        let reader = tokio::spawn(async move {
            let mut all = vec![0; written];
            client.read_exact(&mut all).await.unwrap();
        });
        while !stream.try_flush() {
            stream.writable().await.unwrap();
        }
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_without_tls_carries_no_room_for_it() {
        assert!(size_of::<Stream>() <= size_of::<TcpStream>() + 8);
    }
}
