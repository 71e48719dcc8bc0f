//! The PROXY header that introduces a client to a backend.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lacquer_http::proxy_protocol;

use crate::session::Sess;

/// Writes the header; `version` is 1 or 2. If the client came with a PROXY header that names an authority (the TLS
/// server name), the authority is passed on.
pub fn write(version: u32, sess: &Sess, out: &mut Vec<u8>) {
    let authority = proxy_protocol::find_tlv(&sess.proxy_tlvs, proxy_protocol::tlv::AUTHORITY);
    proxy_protocol::write_header(
        version as u8,
        sess.client.addr,
        sess.server.addr,
        authority.unwrap_or_default(),
        out,
    );
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
