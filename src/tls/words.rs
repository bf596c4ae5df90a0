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
        CertificateError::BadSignature => {
            "its signature is wrong: a root of the name that it names has another key".to_owned()
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
                matches!(word, "TLS" | "CA:TRUE" | "SHA-1") || !word.contains(odd)
            };
            assert!(told.split_whitespace().all(is_word), "{told}");
        }
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(spaced(&AlertDescription::UnexpectedMessage), "unexpected message");
        assert_eq!(of_alert(AlertDescription::Unknown(99)), "alert 99");
        assert_eq!(spaced(&InvalidMessage::TrailingData("S")), "trailing data");
    }
}
