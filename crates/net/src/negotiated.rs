//! The facts that a transport has agreed on with its peer before the first message.

use std::sync::Arc;

use crate::http_version::HttpVersion;
use crate::tls::TlsFacts;

/// The result of a transport's negotiation. A transport that negotiates nothing, such as TCP, has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The only protocol that the connection may use; `None` if the first bytes decide.
    pub protocol: Option<HttpVersion>,
    /// The facts about TLS, if the transport uses it.
    pub tls: Option<Arc<TlsFacts>>,
}
