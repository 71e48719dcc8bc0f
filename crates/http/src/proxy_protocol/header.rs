//! A parsed PROXY header, independent of the version.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// The two ends of the client's connection, according to the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The length of the header in bytes.
    pub len: usize,
    /// The addresses; `None` if those of the connection itself apply.
    pub endpoints: Option<Endpoints>,
    /// The extensions of version 2; see [`find_tlv`](super::find_tlv).
    pub tlvs: &'a [u8],
    /// The text of the `Proxy` record, if one is logged.
    pub log: Option<String>,
    /// The text of a `ProxyGarbage` record about an ignored part.
    pub garbage: Option<String>,
}

/// The error for a refused header. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The text of a `Proxy` record that is logged first.
    pub log: Option<String>,
    /// The text of the `ProxyGarbage` record, if one is logged.
    pub garbage: Option<String>,
}

impl Refused {
    pub(super) const SILENT: Refused = Refused { log: None, garbage: None };

    pub(super) fn new(text: impl Into<String>) -> Refused {
        Refused { log: None, garbage: Some(text.into()) }
    }
}

/// Formats an address as Varnish does: an IPv4-mapped address as IPv4.
pub(super) fn format_ip(address: IpAddr) -> String {
    let mut text = String::new();
    let plain = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let _ = write!(text, "{plain}");
    text
}
