//! Writes the header that is sent to a backend.

use super::{MAX_PAYLOAD, SIGNATURE_1, SIGNATURE_2};
use std::net::{IpAddr, SocketAddr};

/// Appends a header of `version` 1 or 2. Its family is IPv4 if both addresses are, also as IPv4-mapped ones. Otherwise it
/// is IPv6, and an IPv4 address is mapped. `extensions` are written in
/// version 2 only, unless they are longer than receivers accept.
pub fn write_header(
    version: u8,
    client: SocketAddr,
    server: SocketAddr,
    extensions: &[u8],
    out: &mut Vec<u8>,
) {
    let ips = [client.ip(), server.ip()].map(|ip| ip.to_canonical());
    let v6 = ips.iter().any(IpAddr::is_ipv6);
    let ips = if v6 { ips.map(to_v6) } else { ips };
    let ports = [client.port(), server.port()];
    if version == 1 {
        write_v1(v6, ips, ports, out);
    } else {
        write_v2(v6, ips, ports, extensions, out);
    }
}

fn to_v6(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    }
}

fn write_v1(v6: bool, ips: [IpAddr; 2], [from_port, to_port]: [u16; 2], out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE_1);
    out.extend_from_slice(if v6 { b" TCP6 " } else { b" TCP4 " });
    let [from, to] = ips;
    out.extend_from_slice(format!("{from} {to} {from_port} {to_port}\r\n").as_bytes());
}

fn write_v2(v6: bool, ips: [IpAddr; 2], ports: [u16; 2], extensions: &[u8], out: &mut Vec<u8>) {
    let addresses = if v6 { 36 } else { 12 };
    let extensions = if addresses + extensions.len() <= MAX_PAYLOAD { extensions } else { &[] };
    out.extend_from_slice(SIGNATURE_2);
    out.extend_from_slice(&[0x21, if v6 { 0x21 } else { 0x11 }]);
    out.extend_from_slice(&((addresses + extensions.len()) as u16).to_be_bytes());
    for ip in ips {
        match ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    for port in ports {
        out.extend_from_slice(&port.to_be_bytes());
    }
    out.extend_from_slice(extensions);
}
