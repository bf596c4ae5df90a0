//! Files that are right, and files that are not; certificates that change.

use super::live::Renewal;
use super::*;
use crate::books::Books;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::path::Path;
use std::time::Duration;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, change: impl Fn(&mut CertificateParams)) -> (rcgen::Certificate, String) {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key.serialize_pem())
    }

    fn pair(&self) -> (String, String) {
        let (cert, key) = self.issue(|_| {});
        (cert.pem(), key)
    }
}

fn settings(dir: &Path) -> ServerSettings {
    ServerSettings {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
        client_ca: None,
        min_version: Version::V12,
    }
}

fn write(dir: &Path, cert: &str, key: &str) {
    fs::write(dir.join("cert.pem"), cert).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_said_under_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let ((cert, key), (other, other_key)) = (authority.pair(), authority.pair());
    let half = &cert[..cert.len() / 2];
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nTUlJ\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nTUlJ\n-----END RSA PRIVATE KEY-----\n";
    let nonsense = "-----BEGIN PRIVATE KEY-----\nUzNDUjNU\n-----END PRIVATE KEY-----\n";
    let turned = format!("{}{cert}", authority.0.pem());
    for (cert, key, at, says) in [
        ("", key.as_str(), "cert", "is empty"),
        ("S3CR3T", &key, "cert", "holds no certificate"),
        (key.as_str(), &key, "cert", "holds no certificate"),
        (half, &key, "cert", "is damaged, or not written to its end"),
        (&cert, "", "key", "is empty"),
        (&cert, "S3CR3T", "key", "holds no private key"),
        (&cert, &cert, "key", "holds a certificate and no private key"),
        (&cert, encrypted, "key", "holds an encrypted key"),
        (&cert, old, "key", "holds an encrypted key"),
        (&cert, nonsense, "key", "of a kind that cannot be used"),
        (&cert, &other_key, "key", "does not hold the key of the certificate in"),
        (&other, &key, "key", "does not hold the key of the certificate in"),
        (&turned, &key, "cert", "the certificate of the key as number 2; it must stand first"),
    ] {
        write(dir.path(), cert, key);
        let problem = Server::load(&settings(dir.path())).unwrap_err();
        assert!(problem.key == at && problem.message.contains(says), "{says}: {problem}");
        assert!(!problem.message.contains("S3CR3T") && !problem.message.contains("UzNDUjNU"));
    }
    write(dir.path(), &cert, &key);
    let with =
        |ca: &str| ServerSettings { client_ca: Some(dir.path().join(ca)), ..settings(dir.path()) };
    assert!(Server::load(&with("none")).unwrap_err().message.contains("cannot be read"));
    assert_eq!(Server::load(&with("key.pem")).unwrap_err().key, "client_ca");
    assert!(Server::load(&with("cert.pem")).is_ok());
}

#[test]
fn what_is_odd_is_allowed_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("root"), Authority::new("other"));
    let odd = |cert: &str, key: &str| {
        write(dir.path(), cert, key);
        let (_, oddities) = Server::load(&settings(dir.path())).unwrap();
        oddities.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("\n")
    };
    let (cert, key) = authority.pair();
    assert_eq!(odd(&cert, &key), "");
    assert_eq!(odd(&format!("{cert}{}", authority.0.pem()), &key), "");
    let wrong = odd(&format!("{cert}{}", other.0.pem()), &key);
    assert!(wrong.contains("certificate 2 has not signed certificate 1"), "{wrong}");
    let (past, key) = authority.issue(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert!(odd(&past.pem(), &key).contains("has expired"));
    let (future, key) =
        authority.issue(|params| params.not_before = rcgen::date_time_ymd(2200, 1, 1));
    assert!(odd(&future.pem(), &key).contains("not valid yet"));
}

#[test]
fn a_certificate_and_its_key_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = Authority::new("root").pair();
    write(dir.path(), &cert, &key);
    let path = |name: &str| Some(dir.path().join(name));
    let ca = path("cert.pem");
    let all =
        ClientSettings { ca, cert: path("cert.pem"), key: path("key.pem"), ..Default::default() };
    assert!(Client::load(&all).is_ok());
    let without = ClientSettings { key: None, ..all.clone() };
    assert_eq!(Client::load(&without).unwrap_err().key, "key");
    let without = ClientSettings { cert: None, ..all.clone() };
    assert_eq!(Client::load(&without).unwrap_err().key, "cert");
    let nameless = ClientSettings { server_name: Some("not a name".to_owned()), ..all };
    assert_eq!(Client::load(&nameless).unwrap_err().key, "server_name");
}

#[test]
fn a_certificate_names_its_subject_and_its_alternatives_once() {
    let (cert, _) = Authority::new("root").issue(|params| {
        params.distinguished_name.push(DnType::CommonName, "a.test");
        params.subject_alt_names.extend([
            SanType::DnsName("b.test".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
            SanType::IpAddress("::1".parse().unwrap()),
            SanType::Rfc822Name("me@a.test".try_into().unwrap()),
            SanType::URI("spiffe://a/b".try_into().unwrap()),
        ]);
    });
    assert_eq!(
        PeerCertificate::of(&[cert.der().clone()]).names,
        ["a.test", "b.test", "10.0.0.1", "::1", "me@a.test", "spiffe://a/b"]
    );
    assert_eq!(PeerCertificate::of(&[]), PeerCertificate::default());
    assert_eq!(
        PeerCertificate::of(&[CertificateDer::from(vec![1, 2])]),
        PeerCertificate::default()
    );
}

#[test]
fn new_files_are_used_when_they_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let ((cert, key), (other, other_key)) = (authority.pair(), authority.pair());
    write(dir.path(), &cert, &key);
    let server = Server::load(&settings(dir.path())).unwrap().0.renewable();
    assert_eq!(server.renew(), Renewal::Same);
    for half in [(other.as_str(), key.as_str()), (&other[..100], &other_key)] {
        write(dir.path(), half.0, half.1);
        assert!(matches!(server.renew(), Renewal::Kept(_)));
        assert_eq!(server.renew(), Renewal::StillKept);
    }
    write(dir.path(), &other, &other_key);
    assert_eq!(server.renew(), Renewal::New(Vec::new()));
    let (past, past_key) =
        authority.issue(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    write(dir.path(), &past.pem(), &past_key);
    let Renewal::New(odd) = server.renew() else { panic!("it can be used") };
    assert!(odd.len() == 1 && odd[0].message.contains("has expired"), "{odd:?}");
    write(dir.path(), &other, &other_key);
    assert_eq!(server.renew(), Renewal::New(Vec::new()));
    fs::remove_file(dir.path().join("key.pem")).unwrap();
    assert!(matches!(server.renew(), Renewal::Kept(_)));
    fs::write(dir.path().join("key.pem"), &other_key).unwrap();
    assert_eq!(server.renew(), Renewal::Same);
}

/// In TLS 1.2 the handshake has told already whether the certificate was taken.
#[tokio::test(start_paused = true)]
async fn only_where_the_verdict_comes_later_is_it_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let (cert, key) = authority.pair();
    write(dir.path(), &cert, &key);
    fs::write(dir.path().join("ca.pem"), authority.0.pem()).unwrap();
    let path = |name: &str| Some(dir.path().join(name));
    let (ca, cert, key) = (path("ca.pem"), path("cert.pem"), path("key.pem"));
    let both = ClientSettings { ca, cert, key, ..ClientSettings::default() };
    let (client, _) = Client::load(&both).unwrap();
    for (version, waits) in [(&TLS12, false), (&TLS13, true)] {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                CertificateDer::pem_file_iter(dir.path().join("cert.pem"))
                    .unwrap()
                    .collect::<Result<_, _>>()
                    .unwrap(),
                PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).unwrap(),
            )
            .unwrap();
        // It says nothing of its own accord.
        config.send_tls13_tickets = 0;
        let (one, other) = tokio::io::duplex(1 << 16);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let before = tokio::time::Instant::now();
        let (near, far) = tokio::join!(client.connect("a.test", one), acceptor.accept(other));
        assert!(near.is_ok() && far.is_ok());
        assert_eq!(before.elapsed() >= Duration::from_millis(500), waits, "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_keeper_sees_new_files_by_itself_and_tells_when_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let (cert, key) = authority.pair();
    write(dir.path(), &cert, &key);
    let (server, _) = Server::load(&settings(dir.path())).unwrap();
    let (keeper, book) = (Keeper::default(), Books::default().listener("l"));
    keeper.look_after(Owner::Listener("l".into(), book.clone()), &server.renewable());
    let _watch = keeper.watch();
    let before = book.certificate_expires.get();
    let (cert, key) = authority.issue(|params| params.not_after = rcgen::date_time_ymd(2100, 1, 1));
    write(dir.path(), &cert.pem(), &key);
    tokio::time::sleep(Duration::from_secs(61)).await;
    while book.certificate_expires.get() == before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(book.certificate_expires.get(), 4_102_444_800);
    assert_eq!(book.noticed.counts(), [("certificate_renewed", 1)]);
    drop(server);
    assert_eq!(keeper.renew(), [""; 0]);
    assert_eq!(book.certificate_expires.get(), 0, "nobody shows it any more");
}

#[test]
fn nothing_prints_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = Authority::new("root").pair();
    write(dir.path(), &cert, &key);
    let path = |name: &str| Some(dir.path().join(name));
    let client = ClientSettings {
        ca: path("cert.pem"),
        cert: path("cert.pem"),
        key: path("key.pem"),
        ..Default::default()
    };
    let shown = format!(
        "{:?} {:?}",
        Server::load(&settings(dir.path())).unwrap(),
        Client::load(&client).unwrap()
    );
    let secret = key.lines().nth(1).unwrap();
    assert!(!shown.contains(secret) && !shown.contains("PrivateKey"), "{shown}");
}
