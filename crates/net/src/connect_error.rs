//! The reasons why a connection to an origin could not be opened.

use std::borrow::Cow;

/// A step of opening a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectStage {
    Connect,
    /// Sending the endpoint's preamble.
    Preamble,
    /// Sending the PROXY header of a request's client.
    ProxyHeader,
    /// The handshake of TLS.
    Handshake,
    /// The check of the origin's certificate.
    Certificate,
}

/// The cause of a failure: an error number of the system, or a text where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Errno(i32),
    Text(Cow<'static, str>),
}

/// The reason why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    pub stage: ConnectStage,
    cause: Cause,
    held_down: bool,
    is_breaker_open: bool,
    opens_breaker: bool,
}

impl ConnectError {
    pub fn new(stage: ConnectStage, errno: i32) -> ConnectError {
        ConnectError::of(stage, Cause::Errno(errno))
    }

    fn of(stage: ConnectStage, cause: Cause) -> ConnectError {
        ConnectError { stage, cause, held_down: false, is_breaker_open: false, opens_breaker: false }
    }

    /// Returns the error of an attempt that is not made, because a recent one failed with this number.
    pub(crate) fn held_down(errno: i32, is_breaker_open: bool) -> ConnectError {
        ConnectError { held_down: true, is_breaker_open, ..ConnectError::new(ConnectStage::Connect, errno) }
    }

    /// Returns an error without an error number. The text is for the log.
    pub fn with_text(stage: ConnectStage, text: impl Into<Cow<'static, str>>) -> ConnectError {
        ConnectError::of(stage, Cause::Text(text.into()))
    }

    /// Records whether this failure has opened the circuit breaker.
    pub(crate) fn of_breaker(self, opens_breaker: bool) -> ConnectError {
        ConnectError { opens_breaker, ..self }
    }

    /// Returns whether this failure has opened the circuit breaker.
    pub fn opens_breaker(&self) -> bool {
        self.opens_breaker
    }

    /// Returns whether no attempt was made because the circuit breaker is open.
    pub fn is_breaker_open(&self) -> bool {
        self.is_breaker_open
    }

    /// Returns the cause for logs and counters. While the endpoint is held down it is 0, because the cause was logged
    /// before.
    pub fn shown(&self) -> &Cause {
        if self.held_down { &Cause::Errno(0) } else { &self.cause }
    }

    pub fn is_errno(&self, errno: i32) -> bool {
        self.cause == Cause::Errno(errno)
    }
}

impl Cause {
    /// Returns the text for the log; `error_text` formats an error number.
    pub fn text(&self, error_text: impl FnOnce(i32) -> String) -> String {
        match self {
            Cause::Errno(errno) => format!("errno {errno} ({})", error_text(*errno)),
            Cause::Text(text) => format!("({text})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_numbers_or_texts() {
        let name = |errno: i32| format!("name of {errno}");
        let refused = ConnectError::new(ConnectStage::Connect, 111);
        assert_eq!(refused.shown().text(name), "errno 111 (name of 111)");
        let repeated = ConnectError::held_down(111, false);
        assert_eq!(repeated.shown().text(name), "errno 0 (name of 0)");
        let strange = ConnectError::with_text(ConnectStage::Connect, "the certificate has expired");
        assert_eq!(strange.shown().text(name), "(the certificate has expired)");
        assert!(!strange.is_errno(0));
    }
}
