//! The check of an origin's certificate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::checks::Checks;
use super::provider::provider;
use crate::leaf;

#[derive(Debug)]
pub(super) struct Verifier {
    checks: Checks,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub fn new(checks: Checks) -> Verifier {
        Verifier { checks, algorithms: provider().signature_verification_algorithms }
    }
}

/// Returns whether the only objection is that the certificate is that of an authority.
fn is_authority_itself(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Returns whether the objection is that a certificate has no alternative names.
fn has_no_names(error: &Error) -> bool {
    use CertificateError::NotValidForNameContext as WrongName;
    matches!(error, Error::InvalidCertificate(WrongName { presented, .. }) if presented.is_empty())
}

/// Returns whether the common name is the name of the server, as in old certificates without alternative names. OpenSSL
/// still compares it.
fn is_common_name(certificate: &[u8], server_name: &ServerName<'_>) -> bool {
    let Ok(leaf) = leaf::read(certificate) else { return false };
    let wanted = server_name.to_str().to_ascii_lowercase();
    let matches = |name: &String| match name.strip_prefix("*.") {
        Some(parent) => {
            wanted.split_once('.').is_some_and(|(_, rest)| rest == parent && parent.contains('.'))
        }
        None => *name == wanted,
    };
    leaf.names().iter().any(matches)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Checks::Authorities { trusted, name } = &self.checks else {
            return Ok(ServerCertVerified::assertion());
        };
        let parsed = ParsedCertificate::try_from(certificate)?;
        let all = self.algorithms.all;
        let signed =
            verify_server_cert_signed_by_trust_anchor(&parsed, trusted.roots(), intermediates, now, all);
        match signed {
            // A server with a certificate that it has signed itself, which is trusted as it is. The period of validity
            // is checked before this objection is raised.
            Err(error) if is_authority_itself(&error) && trusted.contains(certificate) => {}
            signed => signed?,
        }
        if *name {
            match verify_server_name(&parsed, server_name) {
                Err(error) if has_no_names(&error) && is_common_name(certificate, server_name) => {}
                verified => verified?,
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if matches!(self.checks, Checks::None) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if matches!(self.checks, Checks::None) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
