//! Keys, and the signatures that they verify and make. RSA uses PKCS #1 version 1.5, and elliptic curves ASN.1, as
//! OpenSSL does by default.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, RsaEncoding, RsaKeyPair, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::jwt::pem;

/// A key with the algorithm that it belongs to, if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The DER content of a PEM block.
    Public(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// PKCS #8.
    Private(Vec<u8>),
}

/// A hash function by which messages are signed.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    name: &'static str,
    rsa: &'static RsaParameters,
    encoding: Option<&'static dyn RsaEncoding>,
    curves: &'static [&'static dyn VerificationAlgorithm],
    signing: &'static [&'static EcdsaSigningAlgorithm],
}

const HASHES: [Hash; 4] = [
    Hash {
        name: "sha1",
        rsa: &signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        encoding: None,
        curves: &[],
        signing: &[],
    },
    Hash {
        name: "sha256",
        rsa: &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        encoding: Some(&signature::RSA_PKCS1_SHA256),
        curves: &[&signature::ECDSA_P256_SHA256_ASN1, &signature::ECDSA_P384_SHA256_ASN1],
        signing: &[&signature::ECDSA_P256_SHA256_ASN1_SIGNING],
    },
    Hash {
        name: "sha384",
        rsa: &signature::RSA_PKCS1_2048_8192_SHA384,
        encoding: Some(&signature::RSA_PKCS1_SHA384),
        curves: &[&signature::ECDSA_P256_SHA384_ASN1, &signature::ECDSA_P384_SHA384_ASN1],
        signing: &[&signature::ECDSA_P384_SHA384_ASN1_SIGNING],
    },
    Hash {
        name: "sha512",
        rsa: &signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        encoding: Some(&signature::RSA_PKCS1_SHA512),
        curves: &[&signature::ECDSA_P521_SHA512_ASN1],
        signing: &[&signature::ECDSA_P521_SHA512_ASN1_SIGNING],
    },
];

impl Hash {
    pub fn find(name: &str) -> Result<Hash, String> {
        let found = HASHES.iter().find(|hash| hash.name == name).copied();
        found.ok_or_else(|| format!("signatures with {name} are not supported; use sha256, sha384 or sha512"))
    }

    /// Returns whether the signature of the message fits the key.
    pub fn verifies(self, key: &Key, message: &[u8], signature: &[u8]) -> bool {
        match key {
            Key::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(self.rsa, message, signature).is_ok(),
            Key::Public(der) => {
                let mut algorithms = std::iter::once(self.rsa as &'static dyn VerificationAlgorithm)
                    .chain(self.curves.iter().copied());
                algorithms.any(|algorithm| {
                    UnparsedPublicKey::new(algorithm, der).verify(message, signature).is_ok()
                })
            }
            Key::Private(_) => false,
        }
    }

    /// Returns the signature of a message.
    pub fn sign(self, key: &Key, message: &[u8]) -> Result<Vec<u8>, String> {
        let Key::Private(der) = key else { return Err("a private key is needed".to_owned()) };
        let failed = |_| "the signature cannot be computed".to_owned();
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
            let encoding = self.encoding.ok_or_else(|| format!("{} signs nothing new", self.name))?;
            let mut out = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), message, &mut out).map_err(failed)?;
            return Ok(out);
        }
        for algorithm in self.signing {
            if let Ok(pair) = EcdsaKeyPair::from_pkcs8(algorithm, der) {
                let made = pair.sign(&SystemRandom::new(), message).map_err(failed)?;
                return Ok(made.as_ref().to_vec());
            }
        }
        Err(format!("the private key does not fit {}", self.name))
    }
}

impl Key {
    pub fn public(text: &[u8]) -> Result<Key, String> {
        let der = pem(text, &["PUBLIC KEY", "RSA PUBLIC KEY"]);
        der.map(Key::Public).ok_or_else(|| "no public key in PEM".to_owned())
    }

    pub fn private(text: &[u8]) -> Result<Key, String> {
        let der = pem(text, &["PRIVATE KEY"]);
        der.map(Key::Private).ok_or_else(|| "no private key in PEM (PKCS #8, without a password)".to_owned())
    }

    /// Returns the key as a BLOB for another object's constructor.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Key::Public(der) => [MAGIC, b"p", der].concat(),
            Key::Private(der) => [MAGIC, b"s", der].concat(),
            Key::Rsa { n, e } => [MAGIC, b"r", &(n.len() as u32).to_be_bytes()[..], n, e].concat(),
        }
    }

    /// Reads a BLOB that [`Key::encode`] returned.
    pub fn decode(blob: &[u8]) -> Option<Key> {
        let (kind, rest) = blob.strip_prefix(MAGIC)?.split_first()?;
        Some(match kind {
            b'p' => Key::Public(rest.to_vec()),
            b's' => Key::Private(rest.to_vec()),
            b'r' => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let (n, e) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
                Key::Rsa { n: n.to_vec(), e: e.to_vec() }
            }
            _ => return None,
        })
    }
}

const MAGIC: &[u8] = b"lacquer crypto key\0";

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::signature::KeyPair;

    #[test]
    fn keys_survive_their_blob_and_junk_is_no_key() {
        let keys = [Key::Public(vec![1, 2]), Key::Private(vec![]), Key::Rsa { n: vec![0, 1, 2], e: vec![3] }];
        for key in keys {
            assert_eq!(Key::decode(&key.encode()), Some(key));
        }
        let cut = &Key::Rsa { n: vec![0; 9], e: vec![] }.encode()[..MAGIC.len() + 8];
        for junk in [b"", MAGIC, &[MAGIC, b"x"].concat(), &[MAGIC, b"r\xff\xff\xff\xff"].concat(), cut] {
            assert_eq!(Key::decode(junk), None);
        }
    }

    #[test]
    fn signatures_fit_their_key_and_message_only() {
        let hash = Hash::find("sha256").unwrap();
        let ec = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let private = Key::Private(ec.to_pkcs8v1().unwrap().as_ref().to_vec());
        let public = Key::Public(ec.public_key().as_der().unwrap().as_ref().to_vec());
        let signature = hash.sign(&private, b"text").unwrap();
        assert!(hash.verifies(&public, b"text", &signature));
        assert!(!hash.verifies(&public, b"Text", &signature));
        assert!(!hash.verifies(&private, b"text", &signature));
        assert!(!hash.verifies(&public, b"text", b""));
        assert!(!hash.verifies(&Key::Public(b"junk".to_vec()), b"text", &signature));
        assert!(!Hash::find("sha512").unwrap().verifies(&public, b"text", &signature));
        assert!(hash.sign(&public, b"text").is_err());
        assert!(hash.sign(&Key::Private(b"junk".to_vec()), b"text").is_err());
        assert!(Hash::find("md5").is_err());
    }
}
