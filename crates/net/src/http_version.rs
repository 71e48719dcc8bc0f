//! The versions of HTTP that a transport can negotiate.

/// A version of HTTP that a transport can negotiate (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
}
