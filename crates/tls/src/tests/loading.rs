//! Files of certificates, good and bad.

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd};

use super::{Authority, Pair, add, entry, frontend_setup, load, shake, store};
use crate::bundle::{Bundle, ChainPool, File, Files, MAX_FILE};
use crate::leaf::{self, Leaf};
use crate::staple::{Verdict, made};

fn facts(pair: &Pair) -> Leaf {
    load(&pair.bundle()).unwrap().leaf().unwrap()
}

fn fault(text: &str) -> String {
    load(text).map(drop).unwrap_err()
}

fn files<'a>(certificate: &'a str, key: Option<&'a str>) -> Files<'a> {
    let certificate = File { name: "c.pem", bytes: certificate.as_bytes() };
    let key = key.map(|key| File { name: "k.pem", bytes: key.as_bytes() });
    Files { certificate, key, dh: None, staple: None }
}

#[test]
fn facts_of_certificates() {
    let authority = Authority::new();
    let leaf = facts(&authority.pair(&["Example.COM", "*.example.net"]));
    assert_eq!(leaf.names(), ["example.com", "*.example.net"]);
    assert_eq!(leaf.subject(), Some("Example.COM"));
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, "Nobody");
    params.distinguished_name.push(DnType::CommonName, "only-a-cn.example.com");
    (params.not_before, params.not_after) = (date_time_ymd(1999, 12, 31), date_time_ymd(2060, 2, 29));
    let leaf = facts(&authority.sign(&params));
    assert_eq!(leaf.names(), ["only-a-cn.example.com"]);
    assert_eq!((leaf.not_before(), leaf.not_after()), (946_598_400, 2_845_238_400));
}

#[test]
fn a_thousand_names() {
    let names: Vec<String> = (0..1000).map(|n| format!("host-{n}.example.com")).collect();
    let pair = Authority::new().pair(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(facts(&pair).names().len(), 1000);
}

#[test]
fn kinds_of_keys() {
    let authority = Authority::new();
    for kind in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(kind).unwrap();
        let params = CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        assert!(load(&format!("{}{}", key.serialize_pem(), certificate.pem())).is_ok());
    }
}

#[test]
fn keys_in_files_of_their_own() {
    let authority = Authority::new();
    let (one, other) = (authority.pair(&["one.com"]), authority.pair(&["other.com"]));
    assert!(Bundle::load(files(&one.certificate, Some(&one.key))).is_ok());
    let fault = |key: &str| Bundle::load(files(&one.certificate, Some(key))).map(drop).unwrap_err();
    let mismatch = fault(&other.key);
    assert!(mismatch.contains("Private key mismatch: the key in k.pem is not that"), "{mismatch}");
    assert!(fault("").contains("k.pem: the file has no private key"));
    let mut chain = files(&one.certificate, None);
    let text = format!("{}{}{}", other.certificate, one.certificate, one.key);
    chain.certificate.bytes = text.as_bytes();
    let order = Bundle::load(chain).map(drop).unwrap_err();
    assert!(order.contains("the key is that of certificate 2 in c.pem; move"), "{order}");
}

#[test]
fn half_written_files() {
    let whole = Authority::new().pair(&["example.com"]).bundle();
    assert!(load(&whole).is_ok());
    for end in 0..whole.trim_end().len() {
        assert!(load(&whole[..end]).is_err(), "{end} bytes:\n{}", &whole[..end]);
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let whole = Authority::new().pair(&["example.com"]).bundle();
    let mut seed = 1u64;
    for _ in 0..2000 {
        let mut bytes = whole.clone().into_bytes();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % bytes.len();
        bytes[at] = (seed >> 24) as u8;
        let certificate = File { name: "c.pem", bytes: &bytes };
        let _ = Bundle::load(Files { certificate, key: None, dh: None, staple: None });
    }
}

#[test]
fn files_that_are_no_certificates() {
    let pair = Authority::new().pair(&["example.com"]);
    for (text, why) in [
        (String::new(), "the file has no section of PEM"),
        ("\0\u{1}".repeat(1000), "the file has no section of PEM"),
        (pair.key.clone(), "no section CERTIFICATE, but PRIVATE KEY"),
        (pair.certificate.clone(), "Error loading private key: c.pem: the file has no private key"),
        (pair.bundle().replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), "protected by a password"),
        (
            pair.bundle()
                .replace("BEGIN PRIVATE KEY-----\n", "BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"),
            "protected by a password",
        ),
        (pair.bundle().replace("PRIVATE KEY", "DSA PRIVATE KEY"), "kind DSA PRIVATE KEY are not supported"),
        (pair.bundle().replace("PRIVATE KEY", "RSA PRIVATE KEY"), "the key is damaged or of another kind"),
        ("x".repeat(MAX_FILE as usize + 1), "more than 1024 kB"),
    ] {
        let fault = fault(&text);
        assert!(fault.contains(why), "{why}: {fault}");
    }
}

#[test]
fn names_with_nul_are_refused() {
    let authority = Authority::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "example.com\0.evil.org");
    let fault = fault(&authority.sign(&params).bundle());
    assert!(fault.contains("has a byte that no name of a host has"), "{fault}");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, "Nobody");
    params.distinguished_name.remove(DnType::CommonName);
    let no_name = load(&authority.sign(&params).bundle()).map(drop).unwrap_err();
    assert!(no_name.contains("Could not find valid SAN or CN"), "{no_name}");
}

fn staple<'a>(text: &'a str, bytes: &'a [u8]) -> Files<'a> {
    Files { staple: Some(File { name: "s", bytes }), ..files(text, None) }
}

#[test]
fn staples_and_dh_parameters() {
    let authority = Authority::new();
    let pair = authority.pair(&["example.com"]);
    let text = pair.bundle();
    let certificate = load(&text).unwrap().certificates()[0].clone();
    let serial = leaf::parts(&certificate).unwrap().serial.content;
    let response = made::response(serial, &[0x80, 0], Some("20300101000000Z"));
    let of_another = made::response(&[1], &[0x80, 0], None);
    for bad in [&b""[..], b"\x30\x03\x0a\x01\x01", b"-----BEGIN", &of_another] {
        let fault = Bundle::load(staple(&text, bad)).map(drop).unwrap_err();
        assert!(fault.contains("OCSP response: s:"), "{fault}");
    }
    // Clients get a response as long as it is valid, and none that speaks against the certificate.
    let (bundle, _) = Bundle::load(staple(&text, &response)).unwrap();
    let key = bundle.stapled_key().unwrap();
    assert_eq!(key.at(1_893_456_000.0).ocsp.as_deref(), Some(&response[..]));
    assert!(key.at(1_893_456_001.0).ocsp.is_none());
    let revoked = made::response(serial, &[0xa1, 0], None);
    let (revoked, _) = Bundle::load(staple(&text, &revoked)).unwrap();
    assert!(revoked.stapled_key().unwrap().at(0.0).ocsp.is_none());
    assert_eq!(revoked.statement().map(|found| found.verdict()), Some(Verdict::Revoked));
    let dh = |bytes: &'static [u8]| Files { dh: Some(File { name: "d", bytes }), ..files(&text, None) };
    assert!(Bundle::load(dh(b"-----BEGIN DH PARAMETERS-----\nAA==\n-----END DH PARAMETERS-----\n")).is_ok());
    assert!(Bundle::load(dh(b"x")).map(drop).unwrap_err().contains("No DH parameters found"));
    let store = store(vec![frontend_setup("a0")]);
    add(&store, vec![super::Entry { bundle, ..entry(1, &pair) }]);
    shake(&store.frontend("a0").unwrap(), &Arc::new(authority.client(&[])), "example.com").unwrap();
}

#[test]
fn bundles_survive_the_link_and_share_their_chain() {
    let authority = Authority::new();
    let mut pool = ChainPool::default();
    let mut bundles: Vec<Bundle> = (0..2)
        .map(|_| {
            let text = authority.pair(&["example.com"]).bundle() + &authority.issuer.pem();
            let sent = postcard::to_stdvec(&load(&text).unwrap()).unwrap();
            let mut bundle: Bundle = postcard::from_bytes(&sent).unwrap();
            bundle.share(&mut pool);
            bundle
        })
        .collect();
    assert!(Arc::ptr_eq(&bundles[0].certificates()[1], &bundles[1].certificates()[1]));
    assert_eq!(format!("{pool:?}"), "ChainPool { certificates: 3, keys: 2 }");
    let again = postcard::to_stdvec(&bundles[0]).unwrap();
    let mut again: Bundle = postcard::from_bytes(&again).unwrap();
    again.share(&mut pool);
    assert!(again == bundles[0] && Arc::ptr_eq(&again.certificates()[0], &bundles[0].certificates()[0]));
    drop(again);
    assert!(!format!("{:?}", bundles[0]).contains("key"));
    bundles.clear();
    pool.tidy();
    assert_eq!(format!("{pool:?}"), "ChainPool { certificates: 0, keys: 0 }");
}

/// Writes certificates for a measurement: `LACQUER_CERTIFICATES=DIR:NUMBER`.
#[test]
#[ignore = "makes files for measurements"]
fn many_files() {
    let Ok(wanted) = std::env::var("LACQUER_CERTIFICATES") else { return };
    let (dir, number) = wanted.split_once(':').unwrap();
    let authority = Authority::new();
    for at in 0..number.parse::<u32>().unwrap() {
        let pair =
            authority.pair(&[&format!("host-{at}.example.com"), &format!("www.host-{at}.example.com")]);
        std::fs::write(format!("{dir}/{at}.pem"), pair.bundle() + &authority.issuer.pem()).unwrap();
    }
}
