//! The certificate that a client gets.

use std::sync::Arc;

use super::{Authority, Pair, add, begin, entry, frontend_setup, load, shake, store};
use crate::challenges::PROTOCOL;
use crate::change::{ChallengeCertificates, Change, FrontendSetup, Rank};
use crate::frontend::Frontend;
use crate::leaf;
use crate::on_demand::NameList;
use crate::refused::Refused;

/// Returns the common name of the certificate that a client gets. The client does not check names.
fn subject(frontend: &Frontend, authority: &Authority, name: &str) -> Result<String, Refused> {
    #[derive(Debug)]
    struct NoCheck;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};
    impl ServerCertVerifier for NoCheck {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }
    let mut config = authority.client(&[]);
    config.dangerous().set_certificate_verifier(Arc::new(NoCheck));
    let (client, _) = shake(frontend, &Arc::new(config), name)?;
    let der = &client.peer_certificates().unwrap()[0];
    Ok(leaf::read(der).unwrap().subject().unwrap().to_owned())
}

#[test]
fn exact_names_wildcards_and_the_default() {
    let authority = Authority::new();
    let store = store(vec![frontend_setup("a0")]);
    let frontend = store.frontend("a0").unwrap();
    let subject = |name: &str| subject(&frontend, &authority, name);
    assert_eq!(subject("www.example.com"), Err(Refused::NoCertificates));
    let one = authority.pair(&["example.com", "www.example.com"]);
    let two = authority.pair(&["*.example.com", "other.net"]);
    add(&store, vec![entry(1, &one), entry(2, &two)]);
    assert_eq!(subject("WWW.example.com").unwrap(), "example.com");
    assert_eq!(subject("img.example.com").unwrap(), "*.example.com");
    assert_eq!(subject("other.net").unwrap(), "*.example.com");
    // A wildcard stands for one label; the first certificate is the default.
    assert_eq!(subject("a.img.example.com").unwrap(), "example.com");
    assert_eq!(subject("unknown").unwrap(), "example.com");
    assert_eq!(subject("").unwrap(), "example.com");
}

#[test]
fn later_transactions_and_earlier_certificates_win() {
    let authority = Authority::new();
    let store = store(vec![frontend_setup("a0")]);
    let frontend = store.frontend("a0").unwrap();
    let pair = |name: &str| authority.pair(&[name, "shared.com"]);
    let rank = |transaction, order| Rank { transaction, order };
    let of = |id: u64, pair: &Pair, rank: Rank, default| super::Entry { rank, default, ..entry(id, pair) };
    add(&store, vec![of(1, &pair("one.com"), rank(1, 1), 0), of(2, &pair("two.com"), rank(1, 2), 0)]);
    let subject = |name: &str| subject(&frontend, &authority, name).unwrap();
    assert_eq!(subject("shared.com"), "one.com");
    add(&store, vec![of(3, &pair("three.com"), rank(2, 1), 7)]);
    assert_eq!((subject("shared.com"), subject("")), ("three.com".to_owned(), "three.com".to_owned()));
    store.apply(Change { remove: vec![3, 1], ..Change::default() }).unwrap();
    assert_eq!((subject("shared.com"), subject("")), ("two.com".to_owned(), "two.com".to_owned()));
    assert_eq!(store.len(), 1);
    store.release(1);
    store.release(1);
}

/// The settings of a challenge ask for no certificate of the client. Over TCP, its connection carries no data; over QUIC,
/// nothing would stop requests.
#[test]
fn challenges_are_answered_over_tcp_alone() {
    let authority = Authority::new();
    let store = store(vec![frontend_setup("a0")]);
    let frontend = store.frontend("a0").unwrap();
    let bundle = load(&authority.pair(&["pending.test"]).bundle()).unwrap();
    let all = vec![("pending.test".to_owned(), bundle)];
    store.set_challenges(ChallengeCertificates { all }).unwrap();
    let (_, accepted) = begin(&Arc::new(authority.client(&[PROTOCOL])), "pending.test");
    let hello = accepted.client_hello();
    assert!(frontend.choose(&hello).is_ok());
    assert_eq!(frontend.choose_http3(&hello).err(), Some(Refused::NoCertificates));
}

#[test]
fn listeners_with_certificates_of_their_own() {
    let authority = Authority::new();
    let mut own = frontend_setup("own");
    (own.match_global, own.sni_nomatch_abort) = (false, true);
    let store = store(vec![frontend_setup("a0"), own]);
    let local = super::Entry { frontend: Some(1), ..entry(1, &authority.pair(&["local.com"])) };
    add(&store, vec![local, entry(2, &authority.pair(&["global.com"]))]);
    let at = |frontend: &str, name: &str| subject(&store.frontend(frontend).unwrap(), &authority, name);
    assert_eq!(at("own", "local.com").unwrap(), "local.com");
    assert_eq!(at("own", "").unwrap(), "local.com");
    assert_eq!(at("own", "global.com"), Err(Refused::UnknownName("global.com".to_owned())));
    assert_eq!(at("a0", "local.com").unwrap(), "global.com");
    assert!(store.frontend("a1").is_none());
    let wrong = super::Entry { frontend: Some(2), ..entry(3, &authority.pair(&["x.com"])) };
    assert!(store.apply(Change { remove: vec![1], add: vec![wrong], ..Change::default() }).is_err());
    assert_eq!(store.len(), 2, "a change that fails has no effect");
}

#[test]
fn listed_names_wait_for_their_certificates() {
    let authority = Authority::new();
    let own = FrontendSetup { match_global: false, ..frontend_setup("own") };
    let store = store(vec![frontend_setup("a0"), own]);
    let mut list = NameList::default();
    list.add("*.shops.com");
    store.apply(Change { on_demand: Some(Box::new(list)), ..Change::default() }).unwrap();
    let at = |frontend: &str, name: &str| subject(&store.frontend(frontend).unwrap(), &authority, name);
    assert_eq!(at("a0", "a.shops.com"), Err(Refused::Pending("a.shops.com".to_owned())));
    assert_eq!(at("a0", "b.com"), Err(Refused::NoCertificates));
    assert_eq!(at("own", "c.shops.com"), Err(Refused::NoCertificates));
    assert_eq!(store.take_wanted(), ["a.shops.com"]);
    let local = super::Entry { frontend: Some(1), ..entry(1, &authority.pair(&["local.com"])) };
    add(&store, vec![local, entry(2, &authority.pair(&["global.com"]))]);
    assert_eq!(at("a0", "b.shops.com"), Err(Refused::Pending("b.shops.com".to_owned())));
    assert_eq!(at("a0", "b.com").unwrap(), "global.com");
    assert_eq!(at("own", "c.shops.com").unwrap(), "local.com");
    add(&store, vec![entry(3, &authority.pair(&["b.shops.com"]))]);
    assert_eq!(at("a0", "b.shops.com").unwrap(), "b.shops.com");
    assert_eq!(store.take_wanted(), ["b.shops.com"]);
}

#[test]
fn alpn_follows_the_parameter_and_never_fails() {
    let authority = Authority::new();
    let store = store(vec![frontend_setup("a0")]);
    add(&store, vec![entry(1, &authority.pair(&["example.com"]))]);
    let frontend = store.frontend("a0").unwrap();
    let agreed = |offers: &[&str]| {
        let (client, _) = shake(&frontend, &Arc::new(authority.client(offers)), "example.com").unwrap();
        client.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap())
    };
    assert_eq!(agreed(&["h2", "http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&["h2"]), None);
    store.offer_http2(true);
    assert_eq!(agreed(&["http/1.1", "h2"]).as_deref(), Some("h2"));
    assert_eq!(agreed(&["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&["foobar"]), None);
    assert_eq!(agreed(&[]), None);
}
