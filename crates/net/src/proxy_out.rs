//! The PROXY header that passes a client's address to a backend.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lacquer_http::proxy_protocol;

use crate::Side;

/// Writes the header; `version` is 1 or 2. `extensions` are those of the PROXY header that the client sent, empty if
/// it sent none. An authority in them (the TLS server name) is passed on.
pub fn write(version: u32, client: &Side, server: &Side, extensions: &[u8], out: &mut Vec<u8>) {
    let authority = proxy_protocol::find_tlv(extensions, proxy_protocol::tlv::AUTHORITY).unwrap_or_default();
    proxy_protocol::write_header(version as u8, client.addr, server.addr, authority, out);
}

/// Returns a header of version 2 for a proxy that connects onward. Its source address is unspecified; its destination
/// is the address to connect to.
pub fn onward(to: SocketAddr, authority: Option<&str>) -> Vec<u8> {
    let unspecified: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut out = Vec::new();
    let authority = authority.unwrap_or_default().as_bytes();
    proxy_protocol::write_header(2, SocketAddr::new(unspecified, 0), to, authority, &mut out);
    out
}
