//! Writes the header that is sent to a backend.

use super::header::format_ip;
use super::{SIGNATURE_1, SIGNATURE_2, tlv};
use std::net::{IpAddr, SocketAddr};

/// Appends a header of `version` 1 or 2. If the address families of client and server differ, the header has family
/// IPv6: version 2 maps the IPv4 address, version 1 writes it as it is. `authority` is written in version 2 only.
pub fn write_header(
    version: u8,
    client: SocketAddr,
    server: SocketAddr,
    authority: &[u8],
    out: &mut Vec<u8>,
) {
    let v6 = server.is_ipv6() || client.is_ipv6();
    if version == 1 {
        write_v1(v6, client, server, out);
    } else {
        write_v2(v6, client, server, authority, out);
    }
}

fn write_v1(v6: bool, client: SocketAddr, server: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE_1);
    out.extend_from_slice(if v6 { b" TCP6 " } else { b" TCP4 " });
    let (from, to) = (format_ip(client.ip()), format_ip(server.ip()));
    out.extend_from_slice(format!("{from} {to} {} {}\r\n", client.port(), server.port()).as_bytes());
}

fn write_v2(v6: bool, client: SocketAddr, server: SocketAddr, authority: &[u8], out: &mut Vec<u8>) {
    let authority = &authority[..authority.len().min(super::MAX_PAYLOAD / 2)];
    let extension = if authority.is_empty() { 0 } else { 3 + authority.len() };
    let addresses = if v6 { 36 } else { 12 };
    out.extend_from_slice(SIGNATURE_2);
    out.extend_from_slice(&[0x21, if v6 { 0x21 } else { 0x11 }]);
    out.extend_from_slice(&((addresses + extension) as u16).to_be_bytes());
    for address in [client.ip(), server.ip()] {
        match (address, v6) {
            (IpAddr::V4(ip), false) => out.extend_from_slice(&ip.octets()),
            (IpAddr::V4(ip), true) => out.extend_from_slice(&ip.to_ipv6_mapped().octets()),
            (IpAddr::V6(ip), _) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&server.port().to_be_bytes());
    if !authority.is_empty() {
        out.push(tlv::AUTHORITY);
        out.extend_from_slice(&(authority.len() as u16).to_be_bytes());
        out.extend_from_slice(authority);
    }
}
