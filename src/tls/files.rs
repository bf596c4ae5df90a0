//! What PEM files hold: certificates, private keys, roots. Pure but for [`read`].
//!
//! A [`Problem`] says which key of the `tls` block is to be mended, and how. It never quotes what
//! stands in a file.

use super::names::Leaf;
use super::provider;
use crate::small_file;
use rustls::RootCertStore;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// What is wrong with a file, and under which key of the `tls` block it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `cert`, `key`, `ca` or `client_ca`.
    pub key: &'static str,
    /// A sentence without a full stop.
    pub message: String,
}

impl Problem {
    pub(super) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`tls.{}`: {}", self.key, self.message)
    }
}

/// A file of the `tls` block, read.
pub(super) struct File<'a> {
    pub(super) key: &'static str,
    pub(super) path: &'a Path,
    pub(super) content: Vec<u8>,
}

/// Who one is: a certificate, those that lead to a root, and the private key.
pub(super) struct Identity {
    pub(super) certified: Arc<CertifiedKey>,
    /// The last second in which the certificate is valid, since 1970.
    pub(super) expires: u64,
    /// What is allowed, and probably not meant.
    pub(super) oddities: Vec<Problem>,
}

/// Reads a file, if it is one, and not absurdly large.
pub(super) fn read<'a>(key: &'static str, path: &'a Path) -> Result<File<'a>, Problem> {
    let wrong = |what: String| Problem::new(key, format!("{} {what}", path.display()));
    let content = small_file::read(path, FILE_BYTES_MAX).map_err(wrong)?;
    Ok(File { key, path, content })
}

/// Puts a certificate and its key together, and finds what does not fit at a moment, in seconds
/// since 1970.
pub(super) fn identity(cert: &File<'_>, key: &File<'_>, now: u64) -> Result<Identity, Problem> {
    let chain = cert.certificates()?;
    let signing = key.signing_key()?;
    let [first, ..] = chain.as_slice() else { return Err(cert.wrong(NO_CERTIFICATE)) };
    let leaf = Leaf::read(first).ok_or_else(|| cert.wrong("holds a malformed certificate"))?;
    if !fits(first, &signing) {
        let place = chain.iter().position(|other| fits(other, &signing));
        return Err(match place {
            Some(at) => cert.wrong(&format!(
                "holds the certificate of the key as number {}; it must stand first, and after \
                 it the one that signed it, and so on",
                at + 1
            )),
            None => key.wrong(&format!(
                "does not hold the key of the certificate in {}",
                cert.path.display()
            )),
        });
    }
    let oddities = oddities(cert, &leaf, &chain, now);
    let certified = Arc::new(CertifiedKey::new(chain, signing));
    Ok(Identity { certified, expires: leaf.not_after, oddities })
}

fn fits(certificate: &CertificateDer<'static>, key: &Arc<dyn SigningKey>) -> bool {
    CertifiedKey::new(vec![certificate.clone()], Arc::clone(key)).keys_match().is_ok()
}

fn oddities(
    cert: &File<'_>,
    leaf: &Leaf,
    chain: &[CertificateDer<'static>],
    now: u64,
) -> Vec<Problem> {
    let mut odd = Vec::new();
    if leaf.not_after < now {
        odd.push(cert.wrong("holds a certificate that has expired"));
    }
    if leaf.not_before > now {
        odd.push(cert.wrong("holds a certificate that is not valid yet"));
    }
    let links = chain.windows(2).map(|pair| match pair {
        [one, next] => match (Leaf::read(one), Leaf::read(next)) {
            (Some(one), Some(next)) => one.issuer == next.subject,
            _ => false,
        },
        _ => true,
    });
    if let Some(at) = links.into_iter().position(|is_linked| !is_linked) {
        let (one, next) = (at + 1, at + 2);
        odd.push(cert.wrong(&format!(
            "is out of order: certificate {next} has not signed certificate {one}, and not every \
             client looks for the right one"
        )));
    }
    odd
}

/// The roots in a file.
pub(super) fn roots(file: &File<'_>) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    for certificate in file.certificates()? {
        let added = roots.add(certificate);
        added.map_err(|_| file.wrong("holds a certificate that cannot be a root"))?;
    }
    Ok(roots)
}

impl File<'_> {
    fn wrong(&self, what: &str) -> Problem {
        Problem::new(self.key, format!("{} {what}", self.path.display()))
    }

    /// All of its certificates, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Problem> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.content).collect();
        // What stands in the file is not for the log, so the error's own words are not either.
        let found = read.map_err(|_| self.wrong("is damaged, or not written to its end"))?;
        match (found.is_empty(), self.content.is_empty()) {
            (false, _) => Ok(found),
            (true, true) => Err(self.wrong("is empty")),
            (true, false) => Err(self.wrong(NO_CERTIFICATE)),
        }
    }

    fn signing_key(&self) -> Result<Arc<dyn SigningKey>, Problem> {
        if self.is_encrypted() {
            return Err(self.wrong(
                "holds an encrypted key, and there is nobody to ask for its password; write a \
                 plain one that only this user can read: openssl pkey -in … -out …",
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.content).map_err(|_| match self.kinds() {
            kinds if kinds.contains(&SectionKind::Certificate) => {
                self.wrong("holds a certificate and no private key")
            }
            _ if self.content.is_empty() => self.wrong("is empty"),
            _ => self.wrong("holds no private key (\"-----BEGIN PRIVATE KEY-----\")"),
        })?;
        let loaded = provider().key_provider.load_private_key(key);
        loaded.map_err(|_| self.wrong("holds a key of a kind that cannot be used"))
    }

    fn is_encrypted(&self) -> bool {
        let has = |mark: &[u8]| memchr::memmem::find(&self.content, mark).is_some();
        has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
    }

    fn kinds(&self) -> Vec<SectionKind> {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(&self.content);
        sections.filter_map(Result::ok).map(|(kind, _)| kind).collect()
    }
}

const NO_CERTIFICATE: &str = "holds no certificate (\"-----BEGIN CERTIFICATE-----\")";

/// Far above the roots of any system.
const FILE_BYTES_MAX: usize = 4 << 20;
