//! The failures of a TLS connection, with the alert that the peer gets and the text for the log.

use std::fmt;
use std::io;

use lacquer_tls::{Refused, client};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// A failure that ends a TLS connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The peer has sent a request of HTTP in clear text.
    HttpRequest,
    /// The peer has sent bytes that are no record of TLS.
    NotTls,
    /// A record was changed on its way, or protected with other keys.
    BadRecordMac,
    RecordOverflow,
    /// The peer has sent a message that is not allowed at this point.
    Unexpected(&'static str),
    /// The peer has sent too much of something that has no effect.
    TooMuch(&'static str),
    Renegotiation,
    /// The peer has sent this fatal alert.
    Alert(AlertDescription),
    /// The stream has ended without a close_notify alert: bytes may be missing.
    Truncated,
    /// The handshake has failed.
    Handshake(Error),
    /// The certificate of a client was refused.
    Certificate(CertificateError),
    /// The client has sent no certificate, which the listener requires.
    NoCertificate,
    /// No certificate was chosen.
    Refused(Refused),
    /// The socket has failed.
    Socket(io::ErrorKind),
    Internal(&'static str),
}

/// The party that a failure is due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The peer has broken a rule.
    Peer,
    /// The peer and this end have no protocol, cipher or name in common.
    Mismatch,
    /// The connection was lost.
    Network,
    /// A fault of this program or its configuration.
    Local,
}

impl Failure {
    /// Classifies bytes that are no record of TLS.
    pub(crate) fn not_tls(bytes: &[u8]) -> Failure {
        let methods: [&[u8]; 9] =
            [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI "];
        let begins = |method: &&[u8]| {
            let n = bytes.len().min(method.len());
            n > 0 && bytes[..n] == method[..n]
        };
        if methods.iter().any(begins) { Failure::HttpRequest } else { Failure::NotTls }
    }

    /// Distinguishes the failures that concern the certificate of a client.
    pub(crate) fn of_client(self) -> Failure {
        match self {
            Failure::Handshake(Error::InvalidCertificate(error)) => Failure::Certificate(error),
            Failure::Handshake(Error::NoCertificatesPresented) => Failure::NoCertificate,
            other => other,
        }
    }

    pub fn culprit(&self) -> Culprit {
        match self {
            Failure::Alert(_)
            | Failure::Certificate(_)
            | Failure::NoCertificate
            | Failure::Refused(Refused::UnknownName(_)) => Culprit::Mismatch,
            Failure::Handshake(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => {
                Culprit::Mismatch
            }
            Failure::Handshake(
                Error::General(_)
                | Error::FailedToGetCurrentTime
                | Error::FailedToGetRandomBytes
                | Error::EncryptError
                | Error::HandshakeNotComplete,
            )
            | Failure::Refused(_)
            | Failure::Internal(_) => Culprit::Local,
            Failure::Truncated | Failure::Socket(_) => Culprit::Network,
            _ => Culprit::Peer,
        }
    }

    /// Returns the alert for a failure after the handshake; `None` if the peer gets none.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        Some(match self {
            Failure::BadRecordMac => AlertDescription::BadRecordMac,
            Failure::RecordOverflow => AlertDescription::RecordOverflow,
            Failure::Unexpected(_) | Failure::TooMuch(_) | Failure::NotTls | Failure::HttpRequest => {
                AlertDescription::UnexpectedMessage
            }
            Failure::Renegotiation => AlertDescription::NoRenegotiation,
            Failure::Certificate(_) => AlertDescription::CertificateExpired,
            Failure::NoCertificate => AlertDescription::CertificateRequired,
            Failure::Handshake(_) => AlertDescription::IllegalParameter,
            Failure::Internal(_) => AlertDescription::InternalError,
            Failure::Alert(_) | Failure::Truncated | Failure::Refused(_) | Failure::Socket(_) => return None,
        })
    }

    /// Returns the number of the reason in OpenSSL, which Varnish's users filter logs by; 0 if it has none.
    fn reason(&self) -> u32 {
        match self {
            Failure::HttpRequest => 156,
            Failure::NotTls
            | Failure::Handshake(Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion)) => 267,
            Failure::BadRecordMac | Failure::Handshake(Error::DecryptError) => 281,
            Failure::RecordOverflow | Failure::Handshake(Error::PeerSentOversizedRecord) => 146,
            Failure::Unexpected(_)
            | Failure::Handshake(
                Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. },
            ) => 244,
            Failure::TooMuch(_) => 409,
            Failure::Renegotiation => 339,
            Failure::Truncated => 294,
            Failure::Alert(alert) | Failure::Handshake(Error::AlertReceived(alert)) => {
                1000 + u32::from(u8::from(*alert))
            }
            Failure::Handshake(Error::NoApplicationProtocol) => 235,
            Failure::NoCertificate | Failure::Handshake(Error::NoCertificatesPresented) => 199,
            Failure::Certificate(_) | Failure::Handshake(Error::InvalidCertificate(_)) => 134,
            Failure::Handshake(Error::PeerIncompatible(why)) => match why {
                PeerIncompatible::NoCipherSuitesInCommon => 193,
                PeerIncompatible::NoKxGroupsInCommon => 101,
                PeerIncompatible::NoSignatureSchemesInCommon => 118,
                _ => 258,
            },
            _ => 0,
        }
    }

    /// Returns the text for the log record `TLS` or `BackendSSL`, in the format of OpenSSL's errors.
    pub fn log_text(&self) -> String {
        match self {
            Failure::Refused(why) => why.to_string(),
            _ => format!("error:{:08X}:SSL routines::{self}", 0x0A00_0000 + self.reason()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::HttpRequest => write!(f, "http request"),
            Failure::NotTls => write!(f, "wrong version number: the peer does not use TLS"),
            Failure::BadRecordMac => write!(f, "decryption failed or bad record mac"),
            Failure::RecordOverflow => write!(f, "data length too long"),
            Failure::Unexpected(what) => write!(f, "unexpected message: {what}"),
            Failure::TooMuch(what) => write!(f, "too many {what}"),
            Failure::Renegotiation => write!(f, "no renegotiation"),
            Failure::Truncated => write!(f, "unexpected eof while reading"),
            Failure::Alert(alert) | Failure::Handshake(Error::AlertReceived(alert)) => {
                write!(f, "alert {alert:?}")
            }
            Failure::Certificate(error) => {
                write!(f, "certificate verify failed: {}", client::explain(error))
            }
            Failure::NoCertificate => {
                write!(f, "peer did not return a certificate: {}", client::NO_CERTIFICATE)
            }
            Failure::Handshake(error) => error.fmt(f),
            Failure::Refused(why) => why.fmt(f),
            Failure::Socket(kind) => write!(f, "the connection failed: {kind}"),
            Failure::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Handshake(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        let kind = match failure {
            Failure::Truncated => io::ErrorKind::UnexpectedEof,
            Failure::Socket(kind) => return kind.into(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, failure)
    }
}
