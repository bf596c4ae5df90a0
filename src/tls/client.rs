//! The end that connects: whom it trusts, what it shows, and what its errors mean.
//!
//! Roots are the system's (`SSL_CERT_FILE` and `SSL_CERT_DIR` say where they are, else the usual
//! places), or those of `ca` and no others. The system's are read when a backend is built, the rest
//! again and again. Sessions are not resumed, so that whoever is trusted no more, or shows another
//! certificate by now, is so for every new connection.

use super::files::{self, File, Problem};
use super::keeper::Renew;
use super::live::{Live, Made, Renewal, Source, file};
use super::{ClientSettings, provider, words};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    PeerIncompatible, ProtocolVersion, RootCertStore, SignatureScheme,
};
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What a backend trusts, and what it shows.
#[derive(Clone, Debug)]
pub struct Client {
    live: Arc<Live<Terms>>,
    config: Arc<ClientConfig>,
}

impl Client {
    /// Reads the files; answers what is odd about them, too.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them.
    pub fn load(settings: &ClientSettings) -> Result<(Self, Vec<Problem>), Problem> {
        let name = settings.server_name.as_deref().map(server_name).transpose()?;
        let system = match settings.ca {
            Some(_) => Arc::new(RootCertStore::empty()),
            None => Arc::new(system_roots()?),
        };
        let (live, oddities) = Live::load(Terms { settings: settings.clone(), system })?;
        let verifier = Arc::new(Verifier { live: Arc::clone(&live), name });
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(settings.min_version.and_above())
            .map_err(|error| Problem::new("min_version", error.to_string()))?
            .dangerous() // Not dangerous: it verifies all that the usual one does, by it.
            .with_custom_certificate_verifier(verifier);
        let mut config = config.with_client_cert_resolver(Arc::new(Shown(Arc::clone(&live))));
        config.resumption = Resumption::disabled();
        Ok((Self { live, config: Arc::new(config) }, oddities))
    }

    /// One that trusts the roots in this file, or the system's.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn trusting(ca: Option<&Path>) -> Result<Self, Problem> {
        let ca = ca.map(Path::to_owned);
        Ok(Self::load(&ClientSettings { ca, ..ClientSettings::default() })?.0)
    }

    /// For a client of HTTP, which offers these protocols.
    pub fn config(&self, protocols: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// A handshake with a host, over a stream that leads there. One that shows a certificate also
    /// waits for a moment to hear whether it was taken: in TLS 1.3 that comes after the handshake.
    ///
    /// # Errors
    ///
    /// In words that say what to mend.
    pub async fn connect<IO>(&self, host: &str, io: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let settings = &self.live.source().settings;
        let wanted = settings.server_name.as_deref().unwrap_or(host);
        let name = server_name(wanted).map_err(|problem| io::Error::other(problem.message))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut stream = connector.connect(name, io).await.map_err(in_words)?;
        let is_judged_later =
            stream.get_ref().1.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if settings.cert.is_some() && is_judged_later {
            // One that stays silent has not refused it.
            if let Ok(verdict) = timeout(VERDICT, verdict(&mut stream)).await {
                verdict.map_err(in_words)?;
            }
        }
        Ok(stream)
    }

    /// What looks for new files.
    pub fn renewable(&self) -> Arc<dyn Renew> {
        let live: Arc<Live<Terms>> = Arc::clone(&self.live);
        live
    }
}

/// A server that took our certificate hands out tickets, one that did not says so.
async fn verdict<IO: AsyncRead + AsyncWrite + Unpin>(stream: &mut TlsStream<IO>) -> io::Result<()> {
    poll_fn(|cx| {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending if stream.get_ref().1.tls13_tickets_received() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn in_words(error: io::Error) -> io::Error {
    match explain(&error, Told::ByGateway) {
        Some(words) => io::Error::new(error.kind(), words),
        None => error,
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, Problem> {
    let bare = text.trim_matches(['[', ']']);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        Problem::new("server_name", format!("`{text}` is neither a name nor an address"))
    })
}

fn system_roots() -> Result<RootCertStore, Problem> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems carry some that nobody can read; the others count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let message = "this system has no root certificates: install its package \
                       `ca-certificates`, or name a file of roots here";
        return Err(Problem::new("ca", message));
    }
    Ok(roots)
}

/// A `tls` block, and the roots that stand in for its `ca`.
pub(super) struct Terms {
    settings: ClientSettings,
    system: Arc<RootCertStore>,
}

/// What is made of them.
pub(super) struct Trust {
    verifier: Arc<WebPkiServerVerifier>,
    certified: Option<Arc<CertifiedKey>>,
}

impl Source for Terms {
    type Made = Trust;

    fn files(&self) -> Vec<(&'static str, &Path)> {
        let ClientSettings { ca, cert, key, .. } = &self.settings;
        let files = [("ca", ca), ("cert", cert), ("key", key)];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?))).collect()
    }

    fn make(&self, files: &[File<'_>], now: u64) -> Result<Made<Trust>, Problem> {
        let roots = match file(files, "ca") {
            Some(ca) => Arc::new(files::roots(ca)?),
            None => Arc::clone(&self.system),
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| Problem::new("ca", error.to_string()))?;
        let identity = match (file(files, "cert"), file(files, "key")) {
            (Some(cert), Some(key)) => Some(files::identity(cert, key, now)?),
            (Some(_), None) => return Err(Problem::new("key", "there is a `cert` and no `key`")),
            (None, Some(_)) => return Err(Problem::new("cert", "there is a `key` and no `cert`")),
            (None, None) => None,
        };
        let (certified, expires, oddities) = match identity {
            Some(found) => (Some(found.certified), Some(found.expires), found.oddities),
            None => (None, None, Vec::new()),
        };
        Ok(Made { value: Trust { verifier, certified }, expires, oddities })
    }
}

impl Renew for Live<Terms> {
    fn renew(&self) -> Renewal {
        Self::renew(self)
    }

    fn expires(&self) -> Option<u64> {
        Self::expires(self)
    }
}

/// Verifies by the roots of now, and the name that was asked for.
#[derive(Debug)]
struct Verifier {
    live: Arc<Live<Terms>>,
    name: Option<ServerName<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = self.name.as_ref().unwrap_or(server_name);
        let trust = self.live.now();
        trust.verifier.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.live.now().verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.live.now().verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.live.now().verifier.supported_verify_schemes()
    }
}

/// Shows the certificate of now.
#[derive(Debug)]
struct Shown(Arc<Live<Terms>>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.now().certified.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.now().certified.is_some()
    }
}

/// By whom something is told, and so where it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The gateway, whose `tls` blocks say everything.
    ByGateway,
    /// A command, which has `--ca` and nothing else.
    ByCommand,
}

impl Told {
    const fn pick(self, gateway: &'static str, command: &'static str) -> &'static str {
        match self {
            Self::ByGateway => gateway,
            Self::ByCommand => command,
        }
    }
}

/// What an error of a connection says about TLS, and how to mend it; none if it is about
/// something else.
pub fn explain(error: &(dyn StdError + 'static), told: Told) -> Option<String> {
    let error = find(error)?;
    let shows_none = "this command has none to show";
    let (what, hint) = match error {
        Error::InvalidCertificate(why) => return Some(doubt(why, told)),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            ("the server does not speak TLS there", "is this the right port?")
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        )
        | Error::AlertReceived(AlertDescription::ProtocolVersion) => (
            "the server speaks no version of TLS that is allowed here",
            told.pick("see `tls.min_version`", "it has to speak 1.2 or 1.3"),
        ),
        Error::AlertReceived(AlertDescription::CertificateRequired) => (
            "the server wants a certificate of ours",
            told.pick("say `tls.cert` and `tls.key`", shows_none),
        ),
        Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => (
            "the server does not accept our certificate",
            told.pick("see `tls.cert`", "it wants one, and this command has none to show"),
        ),
        Error::AlertReceived(AlertDescription::CertificateExpired) => (
            "our certificate has expired, says the server",
            told.pick("see `tls.cert`", shows_none),
        ),
        Error::AlertReceived(AlertDescription::HandshakeFailure) => (
            "the server refuses the handshake",
            told.pick(
                "it may want a certificate (`tls.cert`) or other versions",
                "it may want a certificate, and this command has none to show, or other versions",
            ),
        ),
        other => return Some(format!("TLS: {}", words::of_error(other))),
    };
    Some(format!("{what}; {hint}"))
}

fn doubt(why: &CertificateError, told: Told) -> String {
    let ca = told.pick("`tls.ca`", "`--ca`");
    let name = told.pick("say `tls.server_name`", "address it by that name");
    match why {
        CertificateError::UnknownIssuer => {
            format!("{UNTRUSTED}; name the root that signed it as {ca}")
        }
        why if words::is_of_namesake(why) => {
            format!("{UNTRUSTED} ({}); name the root that signed it as {ca}", words::NAMESAKE)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; are both clocks right?".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the server's certificate is not for {}, but for {}; {name} if that is the one",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::NotValidForName => {
            format!("the server's certificate is for another name; {name} if that is the one")
        }
        other => format!("the server's certificate is refused: {}", words::of_certificate(other)),
    }
}

/// As a list without rustls' own words around each.
fn names(presented: &[String]) -> String {
    let bare = presented.iter().map(|name| {
        let inside = name.split_once('(').and_then(|(_, inside)| inside.strip_suffix(')'));
        inside.unwrap_or(name).trim_matches('"')
    });
    let names: Vec<_> = bare.take(NAMES_SHOWN).collect();
    if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") }
}

/// The error of rustls among the causes. One inside an `io::Error` is not its source.
fn find<'e>(mut error: &'e (dyn StdError + 'static)) -> Option<&'e Error> {
    loop {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = match inner {
            Some(inner) => inner,
            None => error.source()?,
        };
    }
}

/// Never what it shows.
impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// A round trip to the other side of the earth, and some time to think.
const VERDICT: Duration = Duration::from_millis(500);

const UNTRUSTED: &str = "the server's certificate is signed by nobody who is trusted here";

/// Certificates of large sites have hundreds.
const NAMES_SHOWN: usize = 5;
