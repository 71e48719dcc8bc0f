//! Client certificates, which prove this cache's identity to origins.

use std::fmt;
use std::sync::Arc;

use rustls::CertificateError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::provider::provider;
use crate::webpki_fault;

/// A certificate chain and its key.
#[derive(Clone)]
pub struct Identity {
    pub(super) key: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads a chain and a key from PEM's format; the end-entity certificate is the first. Fails with the reason if
    /// something is missing, protected by a password, or does not belong together.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| format!("the PEM format is damaged: {error}"))?;
        if chain.is_empty() {
            return Err("it contains no certificate (no line -----BEGIN CERTIFICATE-----)".to_owned());
        }
        let key = match PrivateKeyDer::from_pem_slice(key) {
            Ok(key) => key,
            Err(_) if is_encrypted(key) => {
                return Err("the private key is protected by a password; \
                            remove it with: openssl pkey -in FILE -out NEWFILE"
                    .to_owned());
            }
            Err(_) => {
                return Err("there is no private key; append it to the file of the certificate, \
                            or configure .private_key"
                    .to_owned());
            }
        };
        let key = CertifiedKey::from_der(chain, key, provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => "the private key belongs to another certificate".to_owned(),
            rustls::Error::InvalidCertificate(fault) => {
                format!("the certificate cannot be used: {}", explain(&fault))
            }
            other => format!("the certificate or its private key cannot be used: {other}"),
        })?;
        Ok(Identity { key: Arc::new(key) })
    }
}

fn explain(fault: &CertificateError) -> String {
    match fault {
        CertificateError::BadEncoding => "bad encoding: it is not a valid certificate".to_owned(),
        CertificateError::Other(other) => webpki_fault::explain(other.0.downcast_ref(), "not of a client"),
        other => other.to_string(),
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    let contains = |word: &[u8]| pem.windows(word.len()).any(|part| part == word);
    contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED")
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}
