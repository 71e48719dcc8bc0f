//! Tests of signatures: every algorithm, and the attacks on them.

use std::sync::OnceLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair,
};

use super::algorithm::{Algorithm, Key, Signed};
use super::encoding::encode;
use super::token::Token;
use super::verified;

/// A pair of keys in PEM.
struct Pair {
    private: Vec<u8>,
    public: Vec<u8>,
}

fn armor(label: &str, der: &[u8]) -> Vec<u8> {
    let text = encode(der).replace('-', "+").replace('_', "/");
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> Pair {
    let pair = EcdsaKeyPair::generate(algorithm).expect("a key");
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("an encoding");
    let public = armor("PUBLIC KEY", public.as_ref());
    Pair { private: armor("PRIVATE KEY", pair.to_pkcs8v1().expect("an encoding").as_ref()), public }
}

fn rsa() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let private: Pkcs8V1Der<'_> = pair.as_der().expect("an encoding");
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("an encoding");
        Pair { private: armor("PRIVATE KEY", private.as_ref()), public: armor("PUBLIC KEY", public.as_ref()) }
    })
}

fn ed25519() -> Pair {
    let pair = Ed25519KeyPair::generate().expect("a key");
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("an encoding");
    let public = armor("PUBLIC KEY", public.as_ref());
    Pair { private: armor("PRIVATE KEY", pair.to_pkcs8v1().expect("an encoding").as_ref()), public }
}

fn find(name: &str) -> Algorithm {
    Algorithm::find(name).expect(name)
}

fn verify(name: &str, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), String> {
    verified::verify(find(name), &Key::Text(key.to_vec()), &Signed { message, signature, kid: None })
}

#[test]
fn every_algorithm_verifies_what_it_signed_and_nothing_else() {
    let secret = Pair { private: b"secret".to_vec(), public: b"secret".to_vec() };
    let (p256, p384) = (ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING), ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING));
    let (p521, edwards) = (ecdsa(&ECDSA_P521_SHA512_FIXED_SIGNING), ed25519());
    let pairs: [(&[&str], &Pair); 6] = [
        (&["HS256", "HS384", "HS512"], &secret),
        (&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], rsa()),
        (&["ES256"], &p256),
        (&["ES384"], &p384),
        (&["ES512"], &p521),
        (&["EdDSA"], &edwards),
    ];
    let all: Vec<&str> = pairs.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    for (names, pair) in &pairs {
        for name in *names {
            let signature = find(name).sign(&pair.private, b"message").expect(name);
            // Twice: the second call may find it among the verified ones.
            for _ in 0..2 {
                assert_eq!(verify(name, &pair.public, b"message", &signature), Ok(()), "{name}");
            }
            assert!(verify(name, &pair.public, b"massage", &signature).is_err());
            for at in 0..signature.len() {
                let mut wrong = signature.clone();
                wrong[at] ^= 1;
                assert!(verify(name, &pair.public, b"message", &wrong).is_err(), "{name}: byte {at}");
            }
            for wrong in [&signature[..signature.len() - 1], &[], &vec![0; signature.len()]] {
                assert!(verify(name, &pair.public, b"message", wrong).is_err(), "{name}");
            }
            // Neither another algorithm with the same key nor the same algorithm with another key.
            for other in all.iter().filter(|other| *other != name) {
                assert!(verify(other, &pair.public, b"message", &signature).is_err(), "{other} for {name}");
            }
            for (_, other) in pairs.iter().filter(|(_, other)| !std::ptr::eq(*other, *pair)) {
                assert!(verify(name, &other.public, b"message", &signature).is_err(), "{name}");
                assert!(
                    find(name).sign(&other.private, b"message").is_err() || name.starts_with("HS"),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_public_key_is_never_a_secret() {
    let Pair { public, .. } = rsa();
    // The attacker signs with HMAC and the public key, which is known.
    let forged =
        aws_lc_rs::hmac::sign(&aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public), b"message");
    let refused = verify("HS256", public, b"message", forged.as_ref());
    assert_eq!(refused, Err("HS256 needs a secret, not a key in PEM".to_owned()));
    assert!(find("HS256").sign(public, b"message").is_err());
    for name in ["none", "None", "NONE", "", "hs256", "HS256 ", "ES256K"] {
        assert!(Algorithm::find(name).is_none(), "{name}");
    }
    for key in [
        "",
        "secret",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
    ] {
        assert!(verify("RS256", key.as_bytes(), b"message", &[1; 256]).is_err());
        assert!(verify("ES256", key.as_bytes(), b"message", &[1; 64]).is_err());
        assert!(verify("EdDSA", key.as_bytes(), b"message", &[1; 64]).is_err());
    }
}

/// The key and token of RFC 7515, appendix A.1, and the key of A.3.
#[test]
fn keys_in_json_are_chosen_by_their_type_and_name() {
    let token = Token::parse(
        b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt\
          cGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    )
    .expect("well-formed");
    let k = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let check = |jwk: &str, kid: Option<&str>| {
        let signed = Signed { message: token.signed(), signature: &token.signature, kid };
        find("HS256").verify(&Key::Jwk(jwk.as_bytes().to_vec()), &signed).is_ok()
    };
    assert!(check(&format!(r#"{{"kty":"oct","k":"{k}"}}"#), None));
    assert!(check(
        &format!(r#"{{"keys":[{{"kty":"EC"}},1,{{"kty":"oct","kid":"a","k":"{k}"}}]}}"#),
        Some("a")
    ));
    assert!(!check(&format!(r#"{{"kty":"oct","kid":"b","k":"{k}"}}"#), Some("a")));
    assert!(!check(&format!(r#"{{"kty":"oct","alg":"HS512","k":"{k}"}}"#), None));
    assert!(!check(&format!(r#"{{"kty":"oct","use":"enc","k":"{k}"}}"#), None));
    // Members that forbid the use of a key, or have a type that they must not have.
    for (member, valid) in [
        (r#""use":"sig""#, true),
        (r#""use":["sig"]"#, false),
        (r#""use":null"#, false),
        (r#""alg":1"#, false),
        (r#""key_ops":["sign","verify"]"#, true),
        (r#""key_ops":["sign"]"#, false),
        (r#""key_ops":["encrypt","decrypt"]"#, false),
        (r#""key_ops":[]"#, false),
        (r#""key_ops":"verify""#, false),
        (r#""key_ops":["verify"],"use":"enc""#, false),
    ] {
        assert_eq!(check(&format!(r#"{{"kty":"oct",{member},"k":"{k}"}}"#), None), valid, "{member}");
    }
    assert!(!check(&format!(r#"{{"kty":"oct","kid":1,"k":"{k}"}}"#), Some("a")));
    assert!(!check(&format!(r#"{{"kty":"RSA","k":"{k}"}}"#), None));
    assert!(!check(r#"{"kty":"oct","k":""}"#, None));
    let many = vec![r#"{"kty":"oct","k":"AAAA"}"#; 16].join(",");
    assert!(!check(&format!(r#"{{"keys":[{many},{{"kty":"oct","k":"{k}"}}]}}"#), None), "too many keys");
    for invalid in ["", "{", "[]", "1", r#"{"keys":{}}"#, r#"{"kty":1}"#] {
        assert!(!check(invalid, None), "{invalid}");
    }
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let point = pair.public_key().as_ref();
    let jwk = format!(
        r#"{{"kty":"EC","crv":"P-256","x":"{}","y":"{}"}}"#,
        encode(&point[1..33]),
        encode(&point[33..])
    );
    let private = armor("PRIVATE KEY", pair.to_pkcs8v1().expect("an encoding").as_ref());
    let signature = find("ES256").sign(&private, b"message").expect("a signature");
    let signed = Signed { message: b"message", signature: &signature, kid: None };
    assert_eq!(find("ES256").verify(&Key::Jwk(jwk.clone().into_bytes()), &signed), Ok(()));
    assert!(find("ES256").verify(&Key::Jwk(jwk.replace("P-256", "P-384").into_bytes()), &signed).is_err());
}

/// Run with `cargo test --release -p lacquer-vmods --lib figures -- --ignored --nocapture`. `bench/run modules` reads the
/// lines that begin with `figure`.
#[test]
#[ignore = "prints figures"]
fn figures_of_verification() {
    const ROUNDS: u32 = 2000;
    let pairs = [("ES256", ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING)), ("EdDSA", ed25519())];
    for (name, pair) in pairs.iter().map(|(name, pair)| (*name, pair)).chain([("RS256", rsa())]) {
        let message = vec![b'x'; 300];
        let signature = find(name).sign(&pair.private, &message).expect(name);
        let signed = Signed { message: &message, signature: &signature, kid: None };
        let key = Key::Text(pair.public.clone());
        for known in [false, true] {
            let start = std::time::Instant::now();
            for _ in 0..ROUNDS {
                let result = if known {
                    verified::verify(find(name), &key, &signed)
                } else {
                    find(name).verify(&key, &signed)
                };
                assert_eq!(result, Ok(()));
            }
            let (each, kind) = (start.elapsed() / ROUNDS, if known { "known" } else { "new" });
            println!("{name}, {kind}: {each:?}");
            println!("figure\tjwt {name} {kind}\t{}", each.as_nanos());
        }
    }
}
