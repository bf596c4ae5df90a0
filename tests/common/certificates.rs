//! Certificates for tests, made as they are needed, and a front that speaks TLS before a peer that
//! does not.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

/// Somebody who signs certificates, and a directory for files of them.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        Authority::with_key(name, KeyPair::generate().unwrap())
    }

    /// One whose key is an Ed25519 one, where others have one on an elliptic curve of NIST.
    pub fn ed25519(name: &str) -> Authority {
        Authority::with_key(name, KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap())
    }

    fn with_key(name: &str, key: KeyPair) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let authority = Authority { issuer, directory: tempfile::tempdir().unwrap() };
        authority.write("ca.pem", &authority.pem());
        authority
    }

    /// Its own certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The file of its own certificate.
    pub fn ca(&self) -> String {
        self.path("ca.pem")
    }

    /// A certificate for these hosts or addresses, good for servers and for clients.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 2100)
    }

    /// One that ends with the beginning of a year.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.distinguished_name.push(DnType::CommonName, "issued");
        params.subject_alt_names.push(SanType::URI("spiffe://test/issued".try_into().unwrap()));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Issued { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// Puts `NAME.pem` and `NAME.key` into the directory; answers `cert = '…', key = '…'`.
    pub fn install(&self, name: &str, issued: &Issued) -> String {
        let cert = self.write(&format!("{name}.pem"), &issued.cert);
        let key = self.write(&format!("{name}.key"), &issued.key);
        format!("cert = '{cert}', key = '{key}'")
    }

    /// Writes a file as those write it who want nobody to see half of it; answers its path.
    pub fn write(&self, name: &str, content: &str) -> String {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        fs::write(&new, content).unwrap();
        fs::rename(new, &path).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// What a client has that trusts this authority, and shows a certificate or none.
    pub fn client(&self, shows: Option<&Issued>) -> ClientConfig {
        self.client_of(rustls::DEFAULT_VERSIONS, shows)
    }

    pub fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        shows: Option<&Issued>,
    ) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots());
        match shows {
            None => builder.with_no_client_auth(),
            Some(issued) => builder.with_client_auth_cert(issued.chain(), issued.der()).unwrap(),
        }
    }

    /// A client of HTTP that trusts this authority.
    pub fn http(&self, shows: Option<&Issued>) -> reqwest::Client {
        let builder = reqwest::Client::builder().no_proxy();
        builder.tls_backend_preconfigured(self.client(shows)).build().unwrap()
    }

    /// A connection after its handshake.
    pub async fn connect(&self, to: SocketAddr) -> client::TlsStream<TcpStream> {
        connect(self.client(None), to).await.unwrap()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }
}

/// A connection to 127.0.0.1 after its handshake.
pub async fn connect(
    config: ClientConfig,
    to: SocketAddr,
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    let name = to.ip().into();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Issued {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.cert.as_bytes()).map(Result::unwrap).collect()
    }

    fn der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }

    /// The certificate as a peer sees it.
    pub fn leaf(&self) -> Vec<u8> {
        self.chain()[0].to_vec()
    }
}

/// Speaks TLS, and passes on what is in it.
pub struct TlsFront {
    address: SocketAddr,
    // Dropping the set closes it all.
    _task: JoinSet<()>,
}

impl TlsFront {
    /// Before this address; asks for certificates that `clients` has signed, if it is said.
    pub async fn start(issued: &Issued, clients: Option<&Authority>, to: SocketAddr) -> TlsFront {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let roots = Arc::new(authority.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let config = builder.with_single_cert(issued.chain(), issued.der()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                passing.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let Ok(mut inside) = TcpStream::connect(to).await else { return };
                    // However it ends, it has ended.
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        TlsFront { address, _task: task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Whether a program is installed.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir: PathBuf| Path::new(&dir).join(program).exists())
}
