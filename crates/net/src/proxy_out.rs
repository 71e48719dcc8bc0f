//! The PROXY header that introduces a client to a backend.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lacquer_http::proxy_protocol;

use crate::Side;

/// Writes the header; `version` is 1 or 2. `extensions` are those of the PROXY header with which the client came, if it
/// did. If they name an authority (the TLS server name), it is passed on.
pub fn write(version: u32, client: &Side, server: &Side, extensions: &[u8], out: &mut Vec<u8>) {
    let authority = proxy_protocol::find_tlv(extensions, proxy_protocol::tlv::AUTHORITY).unwrap_or_default();
    proxy_protocol::write_header(version as u8, client.addr, server.addr, authority, out);
}

/// Returns a header of version 2 for a server that connects onward. It has no client; its server address is
/// the one to connect to.
pub fn onward(to: SocketAddr, authority: Option<&str>) -> Vec<u8> {
    let nobody: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut out = Vec::new();
    let authority = authority.unwrap_or_default().as_bytes();
    proxy_protocol::write_header(2, SocketAddr::new(nobody, 0), to, authority, &mut out);
    out
}
