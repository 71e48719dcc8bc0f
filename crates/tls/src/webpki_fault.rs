//! Explains faults of certificates that webpki has found.

/// Explains a fault; `None` if webpki has not told which. `authority` is the end of the sentence for the certificate of an
/// authority, which is not one of a server or a client.
pub fn explain(error: Option<&webpki::Error>, authority: &str) -> String {
    match error {
        Some(webpki::Error::CaUsedAsEndEntity) => {
            format!("invalid CA certificate: it is the certificate of an authority, {authority}")
        }
        Some(webpki::Error::UnsupportedCertVersion) => {
            "unsupported version: it is an X.509 certificate of version 1; create one of version 3 (with extensions)"
                .to_owned()
        }
        Some(error) => error.to_string(),
        None => "it is not valid".to_owned(),
    }
}
