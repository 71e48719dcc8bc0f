//! Explains why a handshake with an origin has failed: what is wrong, and what to do.

use lacquer_http::date;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use super::settings::OriginTls;
use crate::webpki_fault;

/// The end of the sentence about an origin with the certificate of an authority.
const NOT_OF_A_SERVER: &str = "not of a server; if the server has signed it itself, name it in .ssl_ca_file";

/// The reason if the origin sends something else than TLS.
pub const NOT_TLS: &str = "the origin does not speak TLS on this port; check .port, or remove .ssl";
/// The reason if the origin closes the connection.
pub const CLOSED: &str = "the origin closed the connection during the handshake; its log may say why";

/// The reason if the origin closes the connection later, without close_notify.
pub const TRUNCATED: &str = "the origin closed the connection without close_notify: bytes may be missing";

/// The reason for a failed handshake, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The origin's certificate was refused.
    pub is_verification: bool,
    /// The fault, and its remedy.
    pub text: String,
}

/// Returns the reason for an error that TLS has reported during a handshake with these settings.
pub fn explain(error: &Error, tls: &OriginTls) -> Failure {
    match error {
        Error::InvalidCertificate(error) => {
            Failure { is_verification: true, text: of_certificate(error, tls) }
        }
        Error::NoCertificatesPresented => {
            Failure { is_verification: true, text: "the origin sent no certificate".to_owned() }
        }
        error => Failure { is_verification: false, text: of_protocol(error) },
    }
}

fn day(time: UnixTime) -> String {
    String::from_utf8_lossy(&date::format(time.as_secs() as f64)).into_owned()
}

/// The maximum number of names of a certificate in a reason.
const MOST_NAMES: usize = 5;

/// Returns the names of a certificate, each of which has the form `DnsName("example.com")`, as one text.
fn listed(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inside = name.split_once('(').map_or(name.as_str(), |(_, rest)| rest);
        inside.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let names: Vec<String> = presented.iter().take(MOST_NAMES).map(bare).collect();
    match presented.len() {
        0 => "no server".to_owned(),
        n if n > MOST_NAMES => format!("{} and {} others", names.join(", "), n - MOST_NAMES),
        _ => names.join(", "),
    }
}

/// Begins with the words of OpenSSL, so that readers find them where they know them.
fn of_certificate(error: &CertificateError, tls: &OriginTls) -> String {
    match error {
        CertificateError::UnknownIssuer if tls.trusts_nobody() => {
            "unable to get local issuer certificate: no authority is trusted; install the package \
             ca-certificates or set .ssl_ca_file, then load the VCL again"
                .to_owned()
        }
        CertificateError::UnknownIssuer => {
            "unable to get local issuer certificate: no trusted authority has signed it, or the origin does not \
             send its intermediate certificates; name the authority in .ssl_ca_file"
                .to_owned()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("certificate has expired: it was valid until {}; renew it on the origin", day(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, time } => format!(
            "certificate is not yet valid: it begins at {}, and the clock here shows {}",
            day(*not_before),
            day(*time)
        ),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!(
                "hostname mismatch: it is not for {} but for {}; set .host_header to a name in the certificate",
                tls.name().to_str(),
                listed(presented)
            )
        }
        CertificateError::BadSignature => {
            "certificate signature failure: the signature of the certificate or the handshake is wrong".to_owned()
        }
        CertificateError::InvalidPurposeContext { .. } => {
            "unsuitable certificate purpose: it is not for servers".to_owned()
        }
        CertificateError::Revoked => "certificate revoked".to_owned(),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "unsupported signature algorithm: it is signed with SHA-1 or another outdated algorithm".to_owned()
        }
        CertificateError::BadEncoding => "bad encoding: it is not a valid certificate".to_owned(),
        CertificateError::Other(other) => webpki_fault::explain(other.0.downcast_ref(), NOT_OF_A_SERVER),
        other => other.to_string(),
    }
}

fn of_protocol(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::MessageTooLarge) => {
            NOT_TLS.to_owned()
        }
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
            "the origin supports neither TLS 1.2 nor TLS 1.3".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns the reason for which an origin has sent a fatal alert.
pub fn explain_alert(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::ProtocolVersion => "the origin refuses TLS 1.2 and TLS 1.3".to_owned(),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            "the origin ended the handshake (alert HandshakeFailure): it supports none of our cipher suites, or \
             wants a client certificate (.certificate)"
                .to_owned()
        }
        Alert::UnrecognisedName => {
            "the origin has no site of this name (alert UnrecognizedName); check .host_header, or set .ssl_sni = 0"
                .to_owned()
        }
        Alert::CertificateRequired => {
            "the origin wants a client certificate (alert CertificateRequired); set .certificate".to_owned()
        }
        Alert::BadCertificate
        | Alert::UnknownCA
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::UnsupportedCertificate
        | Alert::AccessDenied => {
            format!("the origin refused our client certificate (alert {alert:?}); check .certificate")
        }
        alert => format!("the origin ended the handshake (alert {alert:?})"),
    }
}
