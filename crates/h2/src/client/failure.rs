//! The reasons for which a stream ends before its response is complete.

use crate::error_table::Error;

/// The reason for the early end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server has not processed the request (RFC 9113 section 8.7). It may be sent again.
    Unprocessed(&'static str),
    /// The server has reset the stream with this code.
    Reset(u32),
    /// The response breaks a rule.
    Malformed(&'static str),
    /// The server breaks a rule of the connection, which has ended.
    Connection(Box<str>),
    /// The server has closed the connection.
    Closed,
}

impl Failure {
    /// Returns whether the request may be sent again, whatever its method is.
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, Failure::Unprocessed(_))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unprocessed(why) => write!(f, "HTTP/2: the request was not processed: {why}"),
            Failure::Reset(code) => {
                let error = Error::of_stream(*code);
                write!(f, "HTTP/2: the stream was reset with code {code} ({})", error.text())
            }
            Failure::Malformed(why) => write!(f, "HTTP/2: malformed response: {why}"),
            Failure::Connection(why) => write!(f, "HTTP/2: the connection has failed: {why}"),
            Failure::Closed => f.write_str("HTTP/2: the connection was closed"),
        }
    }
}

impl std::error::Error for Failure {}
