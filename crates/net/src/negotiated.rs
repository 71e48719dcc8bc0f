//! The facts that a transport has agreed on with its peer before the first message.

/// A version of HTTP that a transport can negotiate (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
}

/// The result of a transport's negotiation. A transport that negotiates nothing, such as TCP, has the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The only protocol that the connection may use; `None` if the first bytes decide.
    pub protocol: Option<HttpVersion>,
}
