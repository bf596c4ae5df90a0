//! What rustls says of a handshake, in words for whoever has to mend it.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::fmt::Debug;

/// What a client means that breaks a handshake off, and what to look at.
pub(super) fn of_client(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let (what, mend) = match alert {
        A::UnknownCA => ("does not trust our certificate", "give it the root that signed `cert`"),
        A::BadCertificate | A::CertificateUnknown | A::UnsupportedCertificate | A::AccessDenied => {
            (
                "refuses our certificate",
                "does it trust the root that signed `cert`, and is that for the name it asks for?",
            )
        }
        A::CertificateExpired => {
            ("says that our certificate has expired", "renew `cert`, or set its clock")
        }
        A::CertificateRevoked => ("says that our certificate is revoked", "renew `cert`"),
        A::UnrecognisedName => {
            ("knows our certificate by another name", "`cert` has to be for the name it asks for")
        }
        A::ProtocolVersion | A::InappropriateFallback => {
            ("speaks other versions of TLS", "see `min_version`")
        }
        A::HandshakeFailure | A::InsufficientSecurity => {
            ("finds nothing in common with us", "see `min_version`, and the kind of the `key`")
        }
        A::CloseNotify | A::UserCanceled => ("gave up", "its own log may say why"),
        other => {
            return format!("the client says: {}; its own log may say why", of_alert(other));
        }
    };
    format!("the client {what}; {mend}")
}

/// Why two have nothing in common.
pub(super) fn of_difference(why: &PeerIncompatible) -> String {
    match why {
        PeerIncompatible::NoCipherSuitesInCommon => {
            "no cipher suite that both have (it may be an old client, or want another kind of key)"
                .to_owned()
        }
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            "no key exchange that both have (an old client)".to_owned()
        }
        PeerIncompatible::NoSignatureSchemesInCommon => {
            "no kind of signature that both have (it may want another kind of key)".to_owned()
        }
        other => spaced(other),
    }
}

/// What is wrong with the certificate that a peer shows.
pub(super) fn of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::Revoked => "it is revoked".to_owned(),
        why if is_of_namesake(why) => {
            format!("nobody who is trusted here has signed it; {NAMESAKE}")
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that is not taken here (SHA-1, or a weak key)".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not understood".to_owned()
        }
        CertificateError::Other(error) => match &error.0.to_string() {
            text if text.contains("CaUsedAsEndEntity") => {
                "it is one that signs others (CA:TRUE), which nobody may show as his own".to_owned()
            }
            text => text.clone(),
        },
        other => spaced(other),
    }
}

/// Whether it was signed by another than the CA that is trusted under the name of its issuer: that one's
/// key does not fit the signature, or could not even have made one of this kind.
pub(super) fn is_of_namesake(why: &CertificateError) -> bool {
    match why {
        CertificateError::BadSignature => true,
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id,
            public_key_algorithm_id,
        } => family(signature_algorithm_id) != family(public_key_algorithm_id),
        _ => false,
    }
}

/// Where in [`FAMILIES`] an identifier (DER) of a key or of a signature belongs.
fn family(algorithm: &[u8]) -> Option<usize> {
    // Before the object identifier stand its tag and its length.
    let identifier = algorithm.get(2..)?;
    FAMILIES.iter().position(|family| identifier.starts_with(family))
}

/// Whatever else rustls says.
pub(super) fn of_error(error: &Error) -> String {
    match error {
        Error::InvalidMessage(what) => format!("a damaged message of TLS: {}", spaced(what)),
        Error::PeerIncompatible(why) => {
            format!("nothing in common with the peer: {}", of_difference(why))
        }
        Error::PeerMisbehaved(what) => {
            format!("the peer does not keep to TLS: {}", spaced(what))
        }
        Error::AlertReceived(alert) => format!("the peer says: {}", of_alert(*alert)),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the peer does not keep to TLS: a message came out of turn".to_owned()
        }
        other => other.to_string(),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::Unknown(number) => format!("alert {number}"),
        known => spaced(&known),
    }
}

/// The name of a variant as words: `UnexpectedMessage` is an `unexpected message`.
fn spaced(variant: &impl Debug) -> String {
    let name = format!("{variant:?}");
    let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut words = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && was_lower {
            words.push(' ');
        }
        was_lower = !c.is_ascii_uppercase();
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// How it comes that a trusted CA seems to have signed, and has not.
pub(super) const NAMESAKE: &str = "a CA of its issuer's name is trusted, but has another key";

/// RSA (1.2.840.113549.1.1), elliptic curves (1.2.840.10045) and Ed25519 (1.3.101.112): the arcs under
/// which both the keys and the signatures of a family are.
const FAMILIES: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d],
    &[0x2b, 0x65, 0x70],
];

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{InvalidMessage, PeerMisbehaved};

    #[test]
    fn nothing_is_told_as_a_programmer_writes_it() {
        use AlertDescription as A;
        let alerts = [A::UnknownCA, A::BadCertificate, A::ProtocolVersion, A::DecryptError];
        let others = [
            of_difference(&PeerIncompatible::NoCipherSuitesInCommon),
            of_difference(&PeerIncompatible::KeyShareExtensionRequired),
            of_certificate(&CertificateError::BadSignature),
            of_certificate(&CertificateError::InvalidOcspResponse),
            of_error(&Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge)),
            of_error(&Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived)),
            of_error(&Error::AlertReceived(A::InternalError)),
        ];
        for told in alerts.map(of_client).into_iter().chain(others) {
            let is_word = |word: &str| {
                let odd = |c: char| c.is_ascii_uppercase() || matches!(c, '{' | '}' | ':');
                let word = word.trim_end_matches([':', ';']);
                matches!(word, "TLS" | "CA" | "CA:TRUE" | "SHA-1") || !word.contains(odd)
            };
            assert!(told.split_whitespace().all(is_word), "{told}");
        }
    }

    #[test]
    fn a_namesake_is_told_from_a_kind_of_signature_that_is_not_taken() {
        let rsa = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
        let with_rsa = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00";
        let p521 = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23";
        let ecdsa = b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
        let ed25519 = b"\x06\x03\x2b\x65\x70";
        let check = |signature: &[u8], key: &[u8], is_namesake: bool| {
            let why = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id: signature.to_vec(),
                public_key_algorithm_id: key.to_vec(),
            };
            assert_eq!(is_of_namesake(&why), is_namesake, "{signature:?} {key:?}");
            assert_eq!(of_certificate(&why).contains("another key"), is_namesake);
            assert_eq!(of_certificate(&why).contains("not taken here"), !is_namesake);
        };
        check(ecdsa, rsa, true);
        check(with_rsa, p521, true);
        check(ed25519, p521, true);
        check(ecdsa, p521, false);
        check(with_rsa, rsa, false);
        assert!(is_of_namesake(&CertificateError::BadSignature));
        assert!(!is_of_namesake(&CertificateError::UnknownIssuer));
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(spaced(&AlertDescription::UnexpectedMessage), "unexpected message");
        assert_eq!(of_alert(AlertDescription::Unknown(99)), "alert 99");
        assert_eq!(spaced(&InvalidMessage::TrailingData("S")), "trailing data");
    }
}
