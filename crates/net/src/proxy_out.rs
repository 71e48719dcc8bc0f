//! The PROXY header that passes a client's address to a backend.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lacquer_http::proxy_protocol;
use lacquer_http::proxy_protocol::extensions::{self, ClientName, TlsSession};

use crate::Side;
use crate::tls::TlsFacts;

/// The description of a client's TLS session.
pub enum Extensions<'a> {
    /// Those of the PROXY header that the client sent; empty if it sent none.
    Received(&'a [u8]),
    /// Facts about the client's own connection.
    Session(&'a TlsFacts),
}

/// Writes the header; `version` is 1 or 2. Version 2 describes the client's TLS session too.
pub fn write(version: u32, client: &Side, server: &Side, extensions: &Extensions<'_>, out: &mut Vec<u8>) {
    let extensions = match *extensions {
        Extensions::Received(received) => extensions::passed_on(received),
        Extensions::Session(facts) => describe(facts),
    };
    proxy_protocol::write_header(version as u8, client.addr, server.addr, &extensions, out);
}

fn describe(facts: &TlsFacts) -> Vec<u8> {
    let common_name = facts.client.as_ref().map(|client| client.common_name().unwrap_or_default());
    let client = common_name.as_deref();
    let session = TlsSession {
        version: facts.version,
        cipher: facts.cipher,
        server_name: facts.server_name.as_deref().unwrap_or_default(),
        alpn: facts.alpn.as_deref().unwrap_or_default(),
        algorithms: [facts.certificate.signature.as_deref(), facts.certificate.key.as_deref()]
            .map(Option::unwrap_or_default),
        client: client.map(|common_name| ClientName { common_name, is_resumed: facts.is_resumed }),
    };
    session.extensions()
}

/// Returns a header of version 2 for a proxy that connects onward. Its source address is unspecified; its destination
/// is the address to connect to.
pub fn onward(to: SocketAddr, authority: Option<&str>) -> Vec<u8> {
    let unspecified: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut out = Vec::new();
    let authority = extensions::authority(authority.unwrap_or_default());
    proxy_protocol::write_header(2, SocketAddr::new(unspecified, 0), to, &authority, &mut out);
    out
}
