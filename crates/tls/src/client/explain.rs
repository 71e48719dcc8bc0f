//! Explains why the certificate of a client was refused, for the log.

use lacquer_http::date;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use crate::webpki_fault;

/// The reason if a client sends no certificate although the listener requires one.
pub const NO_CERTIFICATE: &str =
    "the client sent no certificate, which client-verify = required demands; optional accepts such clients";

fn day(time: UnixTime) -> String {
    String::from_utf8_lossy(&date::format(time.as_secs() as f64)).into_owned()
}

/// Returns the check that a client's certificate has failed, in the words of OpenSSL, and what to do.
pub fn explain(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "unable to get local issuer certificate: no authority of client-verify-ca has signed it, or the client \
             does not send its intermediate certificates"
                .to_owned()
        }
        CertificateError::Expired => "certificate has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("certificate has expired: it was valid until {}", day(*not_after))
        }
        CertificateError::NotValidYet => "certificate is not yet valid".to_owned(),
        CertificateError::NotValidYetContext { not_before, time } => format!(
            "certificate is not yet valid: it begins at {}, and the clock here shows {}",
            day(*not_before),
            day(*time)
        ),
        CertificateError::Revoked => "certificate revoked: client-verify-crl lists it".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "unable to get certificate CRL: client-verify-crl has no list of its authority".to_owned()
        }
        CertificateError::ExpiredRevocationList => "CRL has expired: renew client-verify-crl".to_owned(),
        CertificateError::ExpiredRevocationListContext { next_update, .. } => {
            format!("CRL has expired on {}: renew client-verify-crl", day(*next_update))
        }
        CertificateError::BadSignature => {
            "certificate signature failure: the signature of the certificate or the handshake is wrong".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "unsuitable certificate purpose: it is not for clients".to_owned()
        }
        CertificateError::BadEncoding => "bad encoding: it is not a valid certificate".to_owned(),
        CertificateError::Other(other) => webpki_fault::explain(other.0.downcast_ref(), "not of a client"),
        other => other.to_string(),
    }
}
