//! A PROXY header as a value, the same for both versions.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// The two ends of the client's connection, as the proxy's header contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

/// A header that was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Bytes of the input that it takes.
    pub len: usize,
    /// The addresses; `None` if those of the connection count.
    pub endpoints: Option<Endpoints>,
    /// Version 2's extensions; see [`find_tlv`](super::find_tlv).
    pub tlvs: &'a [u8],
    /// The text of the `Proxy` record, if one is written.
    pub log: Option<String>,
    /// The text of a `ProxyGarbage` record about an ignored part.
    pub garbage: Option<String>,
}

/// A header that is refused; the connection is to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The text of a `Proxy` record that is written before.
    pub log: Option<String>,
    /// The text of the `ProxyGarbage` record, if one is written.
    pub garbage: Option<String>,
}

impl Refused {
    pub(super) const SILENT: Refused = Refused { log: None, garbage: None };

    pub(super) fn new(text: impl Into<String>) -> Refused {
        Refused { log: None, garbage: Some(text.into()) }
    }
}

/// Formats an address as Varnish does: IPv4 in IPv6 as IPv4.
pub(super) fn format_ip(address: IpAddr) -> String {
    let mut text = String::new();
    let plain = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let _ = write!(text, "{plain}");
    text
}
