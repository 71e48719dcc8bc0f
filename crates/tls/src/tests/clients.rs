//! Clients with certificates.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevocationReason, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, Error, HandshakeKind};

use super::{Authority, Pair, add, entry, frontend_setup, store, try_shake};
use crate::bundle::File;
use crate::change::{Change, FrontendSetup};
use crate::client::{ClientVerification, explain};
use crate::store::Store;

fn file<'a>(name: &'a str, bytes: &'a [u8]) -> File<'a> {
    File { name, bytes }
}

fn verification(required: bool, authority: &Authority, crl: Option<&str>) -> Option<ClientVerification> {
    let ca = authority.issuer.pem();
    let crl = crl.map(|crl| file("crl.pem", crl.as_bytes()));
    Some(ClientVerification::load(required, file("ca.pem", ca.as_bytes()), crl).unwrap())
}

/// Returns a store with one listener for each of the verifications.
fn listeners(servers: &Authority, clients: Vec<Option<ClientVerification>>) -> Store {
    let setup = |(at, clients)| FrontendSetup { clients, ..frontend_setup(&format!("a{at}")) };
    let store = store(clients.into_iter().enumerate().map(setup).collect());
    add(&store, vec![entry(1, &servers.pair(&["example.com"]))]);
    store
}

/// Returns the settings of a client with a certificate.
fn client(servers: &Authority, own: Option<&Pair>) -> Arc<ClientConfig> {
    let mut config = servers.client(&[]);
    if let Some(own) = own {
        let chain =
            CertificateDer::pem_slice_iter(own.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(servers.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(config.crypto_provider().clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        config.resumption = Resumption::in_memory_sessions(8);
    }
    Arc::new(config)
}

/// Returns the number of the client's certificates that a listener has verified, and whether the session was resumed.
fn accepted(store: &Store, listener: &str, client: &Arc<ClientConfig>) -> Result<(usize, bool), Error> {
    let (_, server) = try_shake(&store.frontend(listener).unwrap(), client, "example.com")?;
    let resumed = server.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok((server.peer_certificates().map_or(0, <[_]>::len), resumed))
}

fn why(result: Result<(usize, bool), Error>) -> String {
    match result {
        Err(Error::InvalidCertificate(error)) => explain(&error),
        other => format!("{other:?}"),
    }
}

#[test]
fn optional_and_required() {
    let (servers, people) = (Authority::new(), Authority::named("people"));
    let store = listeners(
        &servers,
        vec![None, verification(false, &people, None), verification(true, &people, None)],
    );
    let alice = people.pair(&["alice"]);
    let foreign = servers.pair(&["mallory"]);
    assert_eq!(accepted(&store, "a0", &client(&servers, Some(&alice))), Ok((0, false)));
    assert_eq!(accepted(&store, "a1", &client(&servers, None)), Ok((0, false)));
    assert_eq!(accepted(&store, "a1", &client(&servers, Some(&alice))), Ok((1, false)));
    assert_eq!(accepted(&store, "a2", &client(&servers, Some(&alice))), Ok((1, false)));
    assert_eq!(accepted(&store, "a2", &client(&servers, None)), Err(Error::NoCertificatesPresented));
    for listener in ["a1", "a2"] {
        let refused = why(accepted(&store, listener, &client(&servers, Some(&foreign))));
        assert!(refused.starts_with("unable to get local issuer certificate"), "{refused}");
    }
}

#[test]
fn checks_of_a_certificate() {
    let (servers, people) = (Authority::new(), Authority::named("people"));
    let store = listeners(&servers, vec![verification(true, &people, None)]);
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        change(&mut params);
        why(accepted(&store, "a0", &client(&servers, Some(&people.sign(&params)))))
    };
    assert_eq!(with(&|_| {}), "Ok((1, false))");
    let expired = with(&|params| params.not_after = date_time_ymd(2001, 2, 3));
    assert_eq!(expired, "certificate has expired: it was valid until Sat, 03 Feb 2001 00:00:00 GMT");
    let future = with(&|params| params.not_before = date_time_ymd(2090, 2, 3));
    assert!(future.starts_with("certificate is not yet valid: it begins at Fri, 03 Feb 2090"), "{future}");
    let server =
        with(&|params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth]);
    assert!(server.starts_with("unsuitable certificate purpose"), "{server}");
    let authority = with(&|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert!(authority.starts_with("invalid CA certificate"), "{authority}");
}

fn authority_with_crl(next_update: i32) -> (CertifiedIssuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "people");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(7u64),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: Some(RevocationReason::KeyCompromise),
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(next_update, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer).unwrap().pem().unwrap();
    (issuer, list)
}

#[test]
fn revoked_certificates() {
    let servers = Authority::new();
    let numbered = |people: &Authority, serial: u64| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        client(&servers, Some(&people.sign(&params)))
    };
    for (next_update, good, bad) in [
        (2090, "Ok((1, false))", "certificate revoked: client-verify-crl lists it"),
        (2021, "CRL has expired on Fri, 01 Jan 2021", "CRL has expired on Fri, 01 Jan 2021"),
    ] {
        let (issuer, list) = authority_with_crl(next_update);
        let people = Authority { issuer };
        let store = listeners(&servers, vec![verification(true, &people, Some(&list))]);
        for (serial, expected) in [(6, good), (7, bad)] {
            let result = why(accepted(&store, "a0", &numbered(&people, serial)));
            assert!(result.starts_with(expected), "{result}");
        }
    }
    // The list of one authority says nothing of the certificates of another.
    let (_, list) = authority_with_crl(2090);
    let other = Authority::new();
    let store = listeners(&servers, vec![verification(true, &other, Some(&list))]);
    let result = why(accepted(&store, "a0", &numbered(&other, 6)));
    assert!(result.starts_with("unable to get certificate CRL"), "{result}");
}

/// Resumption does not verify a client again, so a session must not move to a listener with another verification.
#[test]
fn sessions_resume_under_the_same_verification_only() {
    let (servers, people, others) =
        (Authority::new(), Authority::named("people"), Authority::named("others"));
    let strict = verification(true, &people, None);
    let all = vec![
        None,
        verification(false, &people, None),
        strict.clone(),
        strict,
        verification(true, &others, None),
    ];
    let store = listeners(&servers, all);
    let alice = client(&servers, Some(&people.pair(&["alice"])));
    assert_eq!(accepted(&store, "a2", &alice), Ok((1, false)));
    assert_eq!(accepted(&store, "a2", &alice), Ok((1, true)), "the certificate belongs to the session");
    assert_eq!(accepted(&store, "a3", &alice), Ok((1, true)), "an equal verification");
    let nobody = client(&servers, None);
    for (began, listener) in [("a0", "a2"), ("a1", "a2"), ("a0", "a4")] {
        assert!(accepted(&store, began, &nobody).is_ok());
        assert_eq!(
            accepted(&store, listener, &nobody),
            Err(Error::NoCertificatesPresented),
            "{began} {listener}"
        );
    }
    assert!(accepted(&store, "a2", &alice).is_ok());
    let elsewhere = why(accepted(&store, "a4", &alice));
    assert!(elsewhere.starts_with("unable to get local issuer"), "{elsewhere}");
}

#[test]
fn new_authorities_take_effect_at_once() {
    let (servers, people, others) =
        (Authority::new(), Authority::named("people"), Authority::named("others"));
    let store = listeners(&servers, vec![verification(true, &people, None)]);
    let alice = client(&servers, Some(&people.pair(&["alice"])));
    assert_eq!(accepted(&store, "a0", &alice), Ok((1, false)));
    let change = |at, clients| store.apply(Change { clients: vec![(at, clients)], ..Change::default() });
    change(0, verification(true, &others, None)).unwrap();
    assert_eq!(
        accepted(&store, "a0", &alice),
        Err(CertificateError::UnknownIssuer.into()),
        "its ticket is void"
    );
    change(0, None).unwrap();
    assert_eq!(accepted(&store, "a0", &alice), Ok((0, false)));
    assert!(change(1, None).is_err());
}

#[test]
fn files_that_cannot_be_used() {
    let authority = Authority::new();
    let good = authority.issuer.pem();
    let load = |ca: &str, crl: Option<&str>| {
        let crl = crl.map(|crl| file("crl.pem", crl.as_bytes()));
        ClientVerification::load(true, file("ca.pem", ca.as_bytes()), crl).map(drop).unwrap_err()
    };
    let half = good.replace("-----END CERTIFICATE-----", "");
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let junk_list = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    for (ca, crl, expected) in [
        ("", None, "ca.pem: the file has no section CERTIFICATE"),
        (half.as_str(), None, "ca.pem: the section CERTIFICATE that begins in line 1 has no end"),
        (&format!("{good}{junk}"), None, "ca.pem: certificate 2 cannot be used"),
        (&good, Some(good.as_str()), "crl.pem: the file has no section X509 CRL"),
        (&good, Some(junk_list), "crl.pem: a revocation list cannot be used"),
    ] {
        let fault = load(ca, crl);
        assert!(fault.starts_with(expected), "{fault}");
    }
}
