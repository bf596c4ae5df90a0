//! Who a certificate names, and until when. Pure.

use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Whom a client's certificate names, when the roots of `client_ca` vouch for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name of the subject, if there is one, and then the alternative names: hosts,
    /// addresses, mail addresses and URIs, as they are written. Each stands once.
    pub names: Vec<String>,
}

impl PeerCertificate {
    /// Reads the first certificate of a chain that was verified. One that cannot be read names
    /// nobody.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Self {
        let first = chain.first().and_then(|first| Certificate::from_der(first).ok());
        let mut names = Vec::new();
        for name in first.as_ref().map(names_of).unwrap_or_default() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Self { names }
    }
}

fn names_of(certificate: &Certificate) -> Vec<String> {
    let subject = certificate.tbs_certificate().subject();
    let common = subject.common_name().ok().flatten();
    let mut names: Vec<_> = common.iter().map(|name| name.value().into_owned()).collect();
    let others = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    if let Ok(Some((_, SubjectAltName(others)))) = others {
        names.extend(others.iter().filter_map(text));
    }
    names
}

fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(text)
        | GeneralName::Rfc822Name(text)
        | GeneralName::UniformResourceIdentifier(text) => Some(text.as_str().to_owned()),
        GeneralName::IpAddress(octets) => {
            let bytes = octets.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// What has to be known of a certificate of one's own.
pub(super) struct Leaf {
    /// Seconds since 1970.
    pub(super) not_before: u64,
    pub(super) not_after: u64,
    /// As they are encoded.
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
}

impl Leaf {
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let inner = certificate.tbs_certificate();
        Some(Self {
            not_before: inner.validity().not_before.to_unix_duration().as_secs(),
            not_after: inner.validity().not_after.to_unix_duration().as_secs(),
            subject: inner.subject().to_der().ok()?,
            issuer: inner.issuer().to_der().ok()?,
        })
    }
}
