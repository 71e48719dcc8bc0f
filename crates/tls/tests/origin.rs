//! Handshakes with origins of all kinds, in memory.

use std::sync::Arc;

use lacquer_tls::origin::{Authorities, Checks, Identity, OriginTls, explain};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection};

/// An authority for tests.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    Authority { certificate, issuer: Issuer::new(params, key) }
}

/// A certificate and its key.
struct Pair(Certificate, KeyPair);

impl Authority {
    fn pem(&self) -> Vec<u8> {
        self.certificate.pem().into_bytes()
    }

    fn trusted(&self) -> Arc<Authorities> {
        Authorities::shared(&self.pem()).unwrap()
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair(params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn certificate(&self, names: &[&str]) -> Pair {
        self.sign(&for_names(names))
    }
}

fn for_names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn server(pair: &Pair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(pair.1.serialize_der()).unwrap();
    let builder =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![pair.0.der().clone()], key).unwrap())
}

fn client(tls: &OriginTls) -> ClientConnection {
    ClientConnection::new(tls.config().clone(), tls.name().clone()).unwrap()
}

/// Does a handshake. The error is the reason that the origin's connection would log.
fn handshake(
    tls: &OriginTls,
    server: &Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), String> {
    let (mut near, mut far) = (client(tls), ServerConnection::new(server.clone()).unwrap());
    let mut wire = Vec::new();
    for _ in 0..10 {
        while near.wants_write() {
            near.write_tls(&mut wire).unwrap();
        }
        while !wire.is_empty() {
            let read = far.read_tls(&mut wire.as_slice()).unwrap();
            wire.drain(..read);
            let _ = far.process_new_packets();
        }
        while far.wants_write() {
            far.write_tls(&mut wire).unwrap();
        }
        while !wire.is_empty() {
            let read = near.read_tls(&mut wire.as_slice()).unwrap();
            wire.drain(..read);
            if let Err(error) = near.process_new_packets() {
                let failure = explain(&error, tls);
                return Err(format!("{}{}", if failure.is_verification { "!" } else { "" }, failure.text));
            }
        }
        if !near.wants_write() && !far.wants_write() {
            break;
        }
    }
    Ok((near, far))
}

fn settings(name: &str, trusted: &Arc<Authorities>, checks_name: bool) -> OriginTls {
    let checks = Checks::Authorities { trusted: trusted.clone(), name: checks_name };
    OriginTls::new(name, true, checks, None).unwrap()
}

/// Returns the beginning of the reason for which a handshake fails.
fn refused(tls: &OriginTls, server: &Arc<ServerConfig>) -> String {
    let reason = handshake(tls, server).map(|_| ()).expect_err("the handshake fails");
    reason.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn each_check_has_its_own_reason() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let trusted = ours.trusted();
    let good = server(&ours.certificate(&["example.com", "192.0.2.1"]));
    for name in ["example.com", "EXAMPLE.com", "192.0.2.1"] {
        assert!(handshake(&settings(name, &trusted, true), &good).is_ok(), "{name}");
    }
    let other_name = settings("example.org", &trusted, true);
    let reason = handshake(&other_name, &good).err().unwrap();
    assert_eq!(
        reason,
        "!hostname mismatch: it is not for example.org but for example.com, 192.0.2.1; \
         set .host_header to a name in the certificate"
    );
    assert!(handshake(&settings("example.org", &trusted, false), &good).is_ok(), "the name is not checked");
    let tls = settings("example.com", &trusted, true);
    let foreign = server(&theirs.certificate(&["example.com"]));
    assert_eq!(refused(&tls, &foreign), "!unable to get local issuer certificate");
    let mut old = for_names(&["example.com"]);
    (old.not_before, old.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 2));
    let expired = handshake(&tls, &server(&ours.sign(&old))).err().unwrap();
    assert!(
        expired.starts_with("!certificate has expired: it was valid until Sat, 02 Jan 2021 00:00:00 GMT"),
        "{expired}"
    );
    old.not_after = date_time_ymd(2099, 1, 1);
    old.not_before = date_time_ymd(2098, 1, 1);
    assert_eq!(refused(&tls, &server(&ours.sign(&old))), "!certificate is not yet valid");
    let mut of_authority = for_names(&["example.com"]);
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(refused(&tls, &server(&ours.sign(&of_authority))), "!invalid CA certificate");
    let unchecked = OriginTls::new("a b", true, Checks::None, None).unwrap();
    for server in [&good, &foreign, &server(&ours.sign(&old)), &server(&ours.sign(&of_authority))] {
        assert!(handshake(&unchecked, server).is_ok());
    }
    let nobody = Authorities::shared(b"").unwrap();
    let reason = handshake(&settings("example.com", &nobody, false), &good).err().unwrap();
    assert!(reason.contains("no authority is trusted; install"), "{reason}");
}

/// A self-signed certificate is valid if it is named as trusted, even if it is that of an authority, as the usual
/// commands create it.
#[test]
fn self_signed_certificates_can_be_trusted() {
    for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        let key = KeyPair::generate().unwrap();
        let mut params = for_names(&["own.example"]);
        params.is_ca = is_ca;
        let pair = Pair(params.self_signed(&key).unwrap(), key);
        let trusted = Authorities::shared(pair.0.pem().as_bytes()).unwrap();
        let own = server(&pair);
        assert!(handshake(&settings("own.example", &trusted, true), &own).is_ok(), "{is_ca:?}");
        assert_eq!(refused(&settings("other.example", &trusted, true), &own), "!hostname mismatch");
        let other = authority("other").trusted();
        assert!(handshake(&settings("own.example", &other, true), &own).is_err());
    }
}

/// Certificates without alternative names are for the server of their common name.
#[test]
fn common_names_are_compared_if_there_are_no_others() {
    let ours = authority("ours");
    let named = |common: &str, names: &[&str]| {
        let mut params = for_names(names);
        params.distinguished_name.push(DnType::CommonName, common);
        server(&ours.sign(&params))
    };
    let valid = |name: &str, server: &Arc<ServerConfig>| {
        handshake(&settings(name, &ours.trusted(), true), server).is_ok()
    };
    let old = named("Old.example", &[]);
    assert!(valid("old.example", &old) && !valid("new.example", &old) && !valid("a.old.example", &old));
    let wildcard = named("*.old.example", &[]);
    assert!(
        valid("a.old.example", &wildcard)
            && !valid("a.b.old.example", &wildcard)
            && !valid("old.example", &wildcard)
    );
    assert!(!valid("a.example", &named("*.example", &[])));
    assert!(!valid("old.example", &named("old.example", &["new.example"])));
}

#[test]
fn names_are_sent_unless_switched_off() {
    let pair = authority("a").certificate(&["example.com"]);
    let sent = |name: &str, sends| {
        let tls = OriginTls::new(name, sends, Checks::None, None).unwrap();
        let (_, far) = handshake(&tls, &server(&pair)).unwrap();
        far.server_name().map(str::to_owned)
    };
    assert_eq!(sent("example.com", true).as_deref(), Some("example.com"));
    assert_eq!(sent("example.com", false), None);
    assert_eq!(sent("192.0.2.1", true), None);
    assert_eq!(sent("not a name", true), None);
}

#[test]
fn later_connections_resume_the_session() {
    let ours = authority("ours");
    let (tls, server) =
        (settings("e.example", &ours.trusted(), true), server(&ours.certificate(&["e.example"])));
    let kind = |tls: &OriginTls| handshake(tls, &server).unwrap().0.handshake_kind();
    assert_eq!(kind(&tls), Some(HandshakeKind::Full));
    assert_eq!(kind(&tls), Some(HandshakeKind::Resumed));
    let others = settings("e.example", &ours.trusted(), true);
    assert_eq!(kind(&others), Some(HandshakeKind::Full), "other settings, other sessions");
}

#[test]
fn origins_can_require_client_certificates() {
    let (ours, theirs) = (authority("ours"), authority("clients"));
    let pair = ours.certificate(&["example.com"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(theirs.certificate.der().clone()).unwrap();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(pair.1.serialize_der()).unwrap();
    let server = builder.with_client_cert_verifier(clients).with_single_cert(vec![pair.0.der().clone()], key);
    let server = Arc::new(server.unwrap());
    let connect = |identity: Option<&Pair>| {
        let read =
            |pair: &Pair| Identity::read(pair.0.pem().as_bytes(), pair.1.serialize_pem().as_bytes()).unwrap();
        let checks = Checks::Authorities { trusted: ours.trusted(), name: true };
        handshake(&OriginTls::new("example.com", true, checks, identity.map(read)).unwrap(), &server)
            .map(|_| ())
    };
    assert_eq!(connect(Some(&theirs.certificate(&["cache"]))), Ok(()));
    let missing = connect(None).unwrap_err();
    assert!(
        missing.contains("wants a client certificate (alert CertificateRequired); set .certificate"),
        "{missing}"
    );
    let wrong = connect(Some(&ours.certificate(&["cache"]))).unwrap_err();
    assert!(wrong.starts_with("the origin refused our client certificate (alert "), "{wrong}");
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let ours = authority("ours");
    let (one, two) = (ours.certificate(&["a"]), ours.certificate(&["b"]));
    let key = one.1.serialize_pem().into_bytes();
    let certificate = one.0.pem().into_bytes();
    let both = [&certificate[..], &key].concat();
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAQID\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(Identity::read(&both, &both).is_ok());
    for (certificate, key, expected) in [
        (
            &both[..],
            &two.1.serialize_pem().into_bytes()[..],
            "the private key belongs to another certificate",
        ),
        (&certificate, &certificate, "there is no private key; append it"),
        (&key, &key, "it contains no certificate"),
        (&certificate, encrypted, "the private key is protected by a password; remove it with"),
        (b"", b"", "it contains no certificate"),
        (&certificate[..certificate.len() / 2], &key, "the PEM format is damaged"),
    ] {
        let error = Identity::read(certificate, key).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    for (pem, expected) in [
        (&b""[..], "it contains no certificate"),
        (&key, "it contains no certificate"),
        (&certificate[..certificate.len() / 2], "the PEM format is damaged"),
        (b"-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n", "none of its 1 certificates"),
    ] {
        let error = Authorities::read(pem).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(Arc::ptr_eq(&ours.trusted(), &ours.trusted()));
}

/// The response of a server that does not speak TLS.
#[test]
fn other_protocols_are_recognized() {
    let tls = OriginTls::new("a", true, Checks::None, None).unwrap();
    for sent in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"220 mail.example ESMTP\r\n"] {
        let mut near = client(&tls);
        near.read_tls(&mut &sent[..]).unwrap();
        let failure = explain(&near.process_new_packets().unwrap_err(), &tls);
        assert_eq!(failure.text, "the origin does not speak TLS on this port; check .port, or remove .ssl");
        assert!(!failure.is_verification);
    }
}
