//! The end that is connected to: handshakes, and why they fail.

use super::files::{self, File, Problem};
use super::keeper::Renew;
use super::live::{Live, Made, Renewal, Source, file};
use super::{ServerSettings, provider, words};
use crate::books::{ListenerBook, Offender};
use crate::log_limit::LogLimit;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, Error, InvalidMessage, PeerIncompatible, ServerConfig};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::warn;

/// What a listener with a `tls` block shows to its clients.
#[derive(Clone, Debug)]
pub struct Server(Arc<Live<ServerSettings>>);

impl Server {
    /// Reads the files; answers what is odd about them, too.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them.
    pub fn load(settings: &ServerSettings) -> Result<(Self, Vec<Problem>), Problem> {
        let (live, oddities) = Live::load(settings.clone())?;
        Ok((Self(live), oddities))
    }

    /// One handshake, with the certificate of now, within so long a time.
    ///
    /// # Errors
    ///
    /// Why there is no stream.
    pub async fn accept<IO>(&self, io: IO, patience: Duration) -> Result<TlsStream<IO>, Refusal>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(self.0.now()).accept(io);
        match timeout(patience, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(Refusal::of(&error)),
            Err(_) => Err(Refusal::Late),
        }
    }

    /// What looks for new files.
    pub fn renewable(&self) -> Arc<dyn Renew> {
        let live: Arc<Live<ServerSettings>> = Arc::clone(&self.0);
        live
    }
}

impl Source for ServerSettings {
    type Made = ServerConfig;

    fn files(&self) -> Vec<(&'static str, &Path)> {
        let mut files = vec![("cert", self.cert.as_path()), ("key", self.key.as_path())];
        files.extend(self.client_ca.iter().map(|path| ("client_ca", path.as_path())));
        files
    }

    fn make(&self, files: &[File<'_>], now: u64) -> Result<Made<ServerConfig>, Problem> {
        let broken = |key, what: &dyn fmt::Display| Problem::new(key, what.to_string());
        let (Some(cert), Some(key)) = (file(files, "cert"), file(files, "key")) else {
            return Err(broken("cert", &"there is no file"));
        };
        let identity = files::identity(cert, key, now)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(self.min_version.and_above())
            .map_err(|error| broken("min_version", &error))?;
        let builder = match file(files, "client_ca") {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(files::roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| broken("client_ca", &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let resolver = Arc::new(SingleCertAndKey::from(identity.certified));
        let mut value = builder.with_cert_resolver(resolver);
        // A client may offer a list without it and mean no more than "anything".
        value.alpn_protocols = Vec::new();
        Ok(Made { value, expires: Some(identity.expires), oddities: identity.oddities })
    }
}

impl Renew for Live<ServerSettings> {
    fn renew(&self) -> Renewal {
        Self::renew(self)
    }

    fn expires(&self) -> Option<u64> {
        Self::expires(self)
    }
}

/// Why there is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client hung up without a word: somebody looked whether the port is open.
    Unused,
    /// What came first is no TLS.
    Plain,
    /// The handshake did not come to its end in time.
    Late,
    /// The client hung up in the midst of it.
    HungUp,
    /// The client speaks older versions only.
    Version,
    /// The client has nothing in common with us, but for the version.
    Incompatible(String),
    /// A certificate is asked for, and there was none.
    NoCertificate,
    /// The client's certificate does not convince.
    Certificate(String),
    /// The client is not convinced by ours, or of what we can do.
    Alert(String),
    /// Something else.
    Other(String),
}

impl Refusal {
    /// Whether something was refused, or somebody only looked.
    const fn counts(&self) -> bool {
        !matches!(self, Self::Unused)
    }

    /// Counts it for a listener, and now and then logs it.
    pub fn tell(
        &self,
        listener: &str,
        book: &ListenerBook,
        log: &LogLimit,
        peer: &dyn fmt::Display,
    ) {
        if !self.counts() {
            return book.noticed.add("closed_unused", 1);
        }
        let reason = "tls_handshake";
        book.reject(reason, 1, &Offender { transport: Some("tcp"), ..Offender::default() });
        if let Some(suppressed) = log.pass(self.word(), TOLD_EVERY) {
            warn!(listener, reason, %peer, why = %self, suppressed, "refused");
        }
    }

    /// One word, so that one sort of trouble does not hide another in a log that is limited.
    const fn word(&self) -> &'static str {
        match self {
            Self::Unused => "tls_unused",
            Self::Plain => "tls_plain",
            Self::Late => "tls_late",
            Self::HungUp => "tls_hung_up",
            Self::Version => "tls_version",
            Self::Incompatible(_) => "tls_incompatible",
            Self::NoCertificate => "tls_no_certificate",
            Self::Certificate(_) => "tls_certificate",
            Self::Alert(_) => "tls_alert",
            Self::Other(_) => "tls_other",
        }
    }

    fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::Plain,
            Some(Error::PeerIncompatible(
                // Versions before 1.2 have no such extension.
                PeerIncompatible::SignatureAlgorithmsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            )) => Self::Version,
            Some(Error::PeerIncompatible(why)) => Self::Incompatible(words::of_difference(why)),
            Some(Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(Error::InvalidCertificate(why)) => Self::Certificate(doubt(why)),
            Some(Error::AlertReceived(alert)) => Self::Alert(words::of_client(*alert)),
            Some(other) => Self::Other(words::of_error(other)),
            None if is_hang_up(error) => Self::HungUp,
            None => Self::Other(error.to_string()),
        }
    }
}

fn doubt(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "no root in `client_ca` has signed it".to_owned(),
        why if words::is_of_namesake(why) => {
            format!("no root in `client_ca` has signed it; {}", words::NAMESAKE)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not one for clients (extended key usage)".to_owned()
        }
        other => words::of_certificate(other),
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unused => f.write_str("hung up without a word"),
            Self::Plain => f.write_str("the client does not speak TLS, which this listener wants"),
            Self::Late => f.write_str("the handshake did not end in time (limits.header)"),
            Self::HungUp => f.write_str("the client hung up within the handshake"),
            Self::Version => {
                f.write_str("the client speaks no version of TLS that is allowed (min_version)")
            }
            Self::Incompatible(why) => write!(f, "nothing in common with the client: {why}"),
            Self::NoCertificate => f.write_str("the client shows no certificate (client_ca)"),
            Self::Certificate(why) => write!(f, "the client's certificate is refused: {why}"),
            Self::Alert(what) | Self::Other(what) => f.write_str(what),
        }
    }
}

/// How often a line about one kind of failed handshake is written.
const TOLD_EVERY: Duration = Duration::from_secs(10);
