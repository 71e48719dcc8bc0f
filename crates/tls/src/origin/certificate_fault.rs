//! Explains faults of certificates that webpki has found, for the origin's certificate and for our own.

use rustls::CertificateError;

/// Explains why a certificate of our own cannot be used.
pub fn explain_own(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "bad encoding: it is not a valid certificate".to_owned(),
        CertificateError::Other(other) => certificate_fault(other.0.downcast_ref()),
        other => other.to_string(),
    }
}

/// Explains a fault of an origin's certificate; `None` if webpki has not told which.
pub fn certificate_fault(error: Option<&webpki::Error>) -> String {
    match error {
        Some(webpki::Error::CaUsedAsEndEntity) => {
            "invalid CA certificate: it is the certificate of an authority, not of a server; if the server has \
             signed it itself, name it in .ssl_ca_file"
                .to_owned()
        }
        Some(webpki::Error::UnsupportedCertVersion) => {
            "unsupported version: it is an X.509 certificate of version 1; create one of version 3 (with extensions)"
                .to_owned()
        }
        Some(error) => error.to_string(),
        None => "it is not valid".to_owned(),
    }
}
