//! The algorithms of tokens, each of which accepts one kind of key. This prevents that a public key, which anybody may
//! know, is used as the secret of another algorithm.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RsaEncoding, RsaKeyPair, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use aws_lc_rs::{error::Unspecified, hmac};
use serde_json::Value as Json;

use super::encoding::{decode, pem};

/// The key of a reader, as VCL has set it.
pub(super) enum Key {
    /// A secret, or a public key in PEM.
    Text(Vec<u8>),
    /// One key or a set of keys in JSON.
    Jwk(Vec<u8>),
}

/// Limit on the number of keys of a set.
const MOST_KEYS: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Algorithm {
    pub name: &'static str,
    family: Family,
}

#[derive(Clone, Copy)]
enum Family {
    Hmac(&'static hmac::Algorithm),
    Rsa(&'static RsaParameters, &'static dyn RsaEncoding),
    Ecdsa(&'static dyn VerificationAlgorithm, &'static EcdsaSigningAlgorithm, &'static str),
    Ed25519,
}

const ALGORITHMS: [Algorithm; 13] = {
    const fn of(name: &'static str, family: Family) -> Algorithm {
        Algorithm { name, family }
    }
    use Family::{Ecdsa, Ed25519, Hmac, Rsa};
    [
        of("HS256", Hmac(&hmac::HMAC_SHA256)),
        of("HS384", Hmac(&hmac::HMAC_SHA384)),
        of("HS512", Hmac(&hmac::HMAC_SHA512)),
        of("RS256", Rsa(&signature::RSA_PKCS1_2048_8192_SHA256, &signature::RSA_PKCS1_SHA256)),
        of("RS384", Rsa(&signature::RSA_PKCS1_2048_8192_SHA384, &signature::RSA_PKCS1_SHA384)),
        of("RS512", Rsa(&signature::RSA_PKCS1_2048_8192_SHA512, &signature::RSA_PKCS1_SHA512)),
        of("PS256", Rsa(&signature::RSA_PSS_2048_8192_SHA256, &signature::RSA_PSS_SHA256)),
        of("PS384", Rsa(&signature::RSA_PSS_2048_8192_SHA384, &signature::RSA_PSS_SHA384)),
        of("PS512", Rsa(&signature::RSA_PSS_2048_8192_SHA512, &signature::RSA_PSS_SHA512)),
        of(
            "ES256",
            Ecdsa(&signature::ECDSA_P256_SHA256_FIXED, &signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
        ),
        of(
            "ES384",
            Ecdsa(&signature::ECDSA_P384_SHA384_FIXED, &signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
        ),
        of(
            "ES512",
            Ecdsa(&signature::ECDSA_P521_SHA512_FIXED, &signature::ECDSA_P521_SHA512_FIXED_SIGNING, "P-521"),
        ),
        of("EdDSA", Ed25519),
    ]
};

/// A signed message.
pub(super) struct Signed<'t> {
    pub message: &'t [u8],
    pub signature: &'t [u8],
    /// The identifier of the key, if the token names one.
    pub kid: Option<&'t str>,
}

fn text<'j>(jwk: &'j Json, name: &str) -> Option<&'j str> {
    jwk.get(name)?.as_str()
}

fn bytes(jwk: &Json, name: &str) -> Option<Vec<u8>> {
    decode(text(jwk, name)?.as_bytes())
}

impl Algorithm {
    pub fn find(name: &str) -> Option<Algorithm> {
        ALGORITHMS.into_iter().find(|algorithm| algorithm.name == name)
    }

    /// Returns whether a signature takes so long that another thread should compute it.
    pub fn signs_slowly(self) -> bool {
        matches!(self.family, Family::Rsa(..))
    }

    /// Returns whether verification takes longer than finding a token in the cache.
    pub fn verifies_slowly(self) -> bool {
        !matches!(self.family, Family::Hmac(_))
    }

    pub fn verify(self, key: &Key, signed: &Signed<'_>) -> Result<(), String> {
        match key {
            Key::Text(key) => self.verify_text(key, signed),
            Key::Jwk(json) => self.verify_jwk(json, signed),
        }
    }

    fn verify_text(self, key: &[u8], signed: &Signed<'_>) -> Result<(), String> {
        let is_pem = key.windows(10).any(|part| part == b"-----BEGIN");
        let public = || {
            pem(key, &["PUBLIC KEY", "RSA PUBLIC KEY"])
                .ok_or_else(|| format!("{} needs a public key in PEM", self.name))
        };
        let verified = match self.family {
            Family::Hmac(_) if is_pem => {
                return Err(format!("{} needs a secret, not a key in PEM", self.name));
            }
            Family::Hmac(algorithm) => hmac_verify(*algorithm, key, signed),
            Family::Rsa(parameters, _) => {
                UnparsedPublicKey::new(parameters, public()?).verify(signed.message, signed.signature)
            }
            Family::Ecdsa(algorithm, ..) => {
                UnparsedPublicKey::new(algorithm, public()?).verify(signed.message, signed.signature)
            }
            Family::Ed25519 => UnparsedPublicKey::new(&signature::ED25519, public()?)
                .verify(signed.message, signed.signature),
        };
        verified.map_err(|Unspecified| "the signature does not fit".to_owned())
    }

    fn verify_jwk(self, json: &[u8], signed: &Signed<'_>) -> Result<(), String> {
        let parsed = crate::json::parse(json).map_err(|error| format!("the key is not JSON: {error}"))?;
        let keys = match parsed.get("keys") {
            Some(Json::Array(keys)) => keys.as_slice(),
            _ => std::slice::from_ref(&parsed),
        };
        let fits = |key: &&Json| {
            let same = |name: &str, wanted: &str| key.get(name).is_none_or(|value| value == wanted);
            let is_for = |operation: &str| match key.get("key_ops") {
                None => true,
                Some(Json::Array(operations)) => operations.iter().any(|one| one == operation),
                Some(_) => false,
            };
            same("alg", self.name)
                && same("use", "sig")
                && is_for("verify")
                && signed.kid.is_none_or(|kid| same("kid", kid))
        };
        let mut usable = keys.iter().take(MOST_KEYS).filter(fits);
        if usable.any(|key| self.verify_one(key, signed) == Some(())) {
            return Ok(());
        }
        Err(format!("no key for {} fits the signature", self.name))
    }

    /// Returns `None` if the key is of another type or does not fit the signature.
    fn verify_one(self, jwk: &Json, signed: &Signed<'_>) -> Option<()> {
        let Signed { message, signature, .. } = signed;
        match (self.family, text(jwk, "kty")?) {
            (Family::Hmac(algorithm), "oct") => {
                let secret = bytes(jwk, "k").filter(|secret| !secret.is_empty())?;
                hmac_verify(*algorithm, &secret, signed)
            }
            (Family::Rsa(parameters, _), "RSA") => {
                let key = RsaPublicKeyComponents { n: bytes(jwk, "n")?, e: bytes(jwk, "e")? };
                key.verify(parameters, message, signature)
            }
            (Family::Ecdsa(algorithm, _, curve), "EC") if text(jwk, "crv") == Some(curve) => {
                let point = [&[4][..], &bytes(jwk, "x")?, &bytes(jwk, "y")?].concat();
                UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
            (Family::Ed25519, "OKP") if text(jwk, "crv") == Some("Ed25519") => {
                UnparsedPublicKey::new(&signature::ED25519, bytes(jwk, "x")?).verify(message, signature)
            }
            _ => return None,
        }
        .ok()
    }

    /// Signs a message with a secret, or with a private key in PEM.
    pub fn sign(self, key: &[u8], message: &[u8]) -> Result<Vec<u8>, String> {
        let private = || {
            pem(key, &["PRIVATE KEY"])
                .ok_or_else(|| format!("{} needs a private key in PEM (PKCS #8)", self.name))
        };
        let rejected = |error: aws_lc_rs::error::KeyRejected| format!("the private key is invalid: {error}");
        let failed = |Unspecified| "the signature cannot be computed".to_owned();
        match self.family {
            Family::Hmac(_) if key.is_empty() => Err("the key is empty".to_owned()),
            Family::Hmac(_) if key.windows(10).any(|part| part == b"-----BEGIN") => {
                Err(format!("{} needs a secret, not a key in PEM", self.name))
            }
            Family::Hmac(algorithm) => {
                Ok(hmac::sign(&hmac::Key::new(*algorithm, key), message).as_ref().to_vec())
            }
            Family::Rsa(_, encoding) => {
                let pair = RsaKeyPair::from_pkcs8(&private()?).map_err(rejected)?;
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut out).map_err(failed)?;
                Ok(out)
            }
            Family::Ecdsa(_, algorithm, _) => {
                let pair = EcdsaKeyPair::from_pkcs8(algorithm, &private()?).map_err(rejected)?;
                pair.sign(&SystemRandom::new(), message).map(|made| made.as_ref().to_vec()).map_err(failed)
            }
            Family::Ed25519 => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&private()?).map_err(rejected)?;
                pair.try_sign(message).map(|made| made.as_ref().to_vec()).map_err(failed)
            }
        }
    }
}

fn hmac_verify(algorithm: hmac::Algorithm, secret: &[u8], signed: &Signed<'_>) -> Result<(), Unspecified> {
    hmac::verify(&hmac::Key::new(algorithm, secret), signed.message, signed.signature)
}
