//! The PROXY protocol, versions 1 and 2: what a load balancer in front says about the client, read from
//! the first bytes of a connection and written to backends that want it.

mod crc32c_table;
mod emit;
mod v1;
mod v2;

pub use emit::write_header;
pub use v2::{Tlvs, find_tlv, tlv};

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

const SIGNATURE_1: &[u8] = b"PROXY";
const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest version 1 line, line end included.
const MAX_LINE: usize = 107;
/// Longest payload of version 2 that is accepted.
pub(crate) const MAX_PAYLOAD: usize = 1024;

/// How much of a header is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    More,
    Junk,
    Overflow,
    Complete,
}

/// Looks whether `buf` begins with a complete header.
pub fn scan(buf: &[u8]) -> Scan {
    if buf.starts_with(SIGNATURE_1) {
        let newline = crate::ascii::find_byte(buf, SIGNATURE_1.len(), b'\n');
        return match newline {
            Some(n) if n > MAX_LINE => Scan::Overflow,
            Some(_) => Scan::Complete,
            None if buf.len() > MAX_PAYLOAD => Scan::Overflow,
            None => Scan::More,
        };
    }
    if buf.starts_with(SIGNATURE_2) {
        return match v2::total_len(buf) {
            Some(n) if n > 16 + MAX_PAYLOAD => Scan::Overflow,
            Some(n) if n <= buf.len() => Scan::Complete,
            _ => Scan::More,
        };
    }
    if SIGNATURE_1.starts_with(buf) || SIGNATURE_2.starts_with(buf) { Scan::More } else { Scan::Junk }
}

/// Who the proxy says is talking to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

/// A header that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Bytes of the input that it takes.
    pub len: usize,
    /// `None`: the connection speaks for itself.
    pub endpoints: Option<Endpoints>,
    /// Version 2's extensions; see [`find_tlv`].
    pub tlvs: &'a [u8],
    /// The text of the `Proxy` record, if one is written.
    pub log: Option<String>,
    /// The text of a `ProxyGarbage` record about something that was ignored.
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
    const SILENT: Refused = Refused { log: None, garbage: None };

    fn new(text: impl Into<String>) -> Refused {
        Refused { log: None, garbage: Some(text.into()) }
    }
}

/// Parses the header that [`scan`] found complete.
pub fn parse(buf: &[u8]) -> Result<Header<'_>, Refused> {
    if buf.starts_with(SIGNATURE_1) { v1::parse(buf) } else { v2::parse(buf) }
}

/// An address as Varnish writes it: IPv4 in IPv6 as IPv4.
pub(crate) fn format_ip(address: IpAddr) -> String {
    let mut text = String::new();
    let plain = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let _ = write!(text, "{plain}");
    text
}

#[cfg(test)]
mod tests;
