//! Sets of trusted authorities, and the certificates that are trusted as they are.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Files with all authorities that the system trusts: of Debian, Fedora, openSUSE, RHEL, Alpine.
pub const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Trusted certificates. Programs that name the same ones share them.
pub struct Authorities {
    pem: Vec<u8>,
    roots: Arc<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
}

/// The sets in use. Each call of [`Authorities::shared`] removes dropped ones.
static KNOWN: Mutex<Vec<Weak<Authorities>>> = Mutex::new(Vec::new());

impl Authorities {
    /// Reads certificates from PEM's format. Other sections are ignored. Fails if there is no certificate, or if a
    /// section is damaged.
    pub fn read(pem: &[u8]) -> Result<Authorities, String> {
        let sections: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = sections.map_err(|error| format!("the PEM format is damaged: {error}"))?;
        if certificates.is_empty() {
            return Err("it contains no certificate (no line -----BEGIN CERTIFICATE-----)".to_owned());
        }
        let mut roots = RootCertStore::empty();
        let (usable, unusable) = roots.add_parsable_certificates(certificates.iter().cloned());
        if usable == 0 {
            return Err(format!("none of its {unusable} certificates can be parsed"));
        }
        Ok(Authorities { pem: pem.to_vec(), roots: Arc::new(roots), certificates })
    }

    /// Returns the set with these certificates, like [`Authorities::read`]. The empty text is the empty set, with which
    /// no certificate is valid.
    pub fn shared(pem: &[u8]) -> Result<Arc<Authorities>, String> {
        let mut known = KNOWN.lock();
        known.retain(|set| set.strong_count() > 0);
        if let Some(found) = known.iter().filter_map(Weak::upgrade).find(|set| set.pem == pem) {
            return Ok(found);
        }
        let set = if pem.is_empty() { Authorities::empty() } else { Authorities::read(pem)? };
        let set = Arc::new(set);
        known.push(Arc::downgrade(&set));
        Ok(set)
    }

    fn empty() -> Authorities {
        let roots = Arc::new(RootCertStore::empty());
        Authorities { pem: Vec::new(), roots, certificates: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    pub(super) fn roots(&self) -> &RootCertStore {
        &self.roots
    }

    /// Returns whether this very certificate is trusted.
    pub(super) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.certificates.contains(certificate)
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}
