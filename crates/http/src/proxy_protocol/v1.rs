//! Version 1: one line of text.

use super::header::{Endpoints, Header, Refused};
use std::net::{IpAddr, SocketAddr};

fn address(ip: &str, port: &str, v6: bool) -> Option<SocketAddr> {
    let ip = if v6 { IpAddr::V6(ip.parse().ok()?) } else { IpAddr::V4(ip.parse().ok()?) };
    let digits_only = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    digits_only.then(|| port.parse().ok()).flatten().map(|port| SocketAddr::new(ip, port))
}

pub fn parse(buf: &[u8]) -> Result<Header<'_>, Refused> {
    let end = buf.iter().position(|&b| b == b'\r').ok_or(Refused::SILENT)?;
    if buf.get(end + 1) != Some(&b'\n') {
        return Err(Refused::SILENT);
    }
    let line = String::from_utf8_lossy(&buf[..end]);
    let mut words = line.split(' ').skip(1);
    let mut next = || words.next().ok_or_else(|| Refused::new("PROXY1: Too few fields"));
    let (family, client, server, client_port, server_port) = (next()?, next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err(Refused::new("PROXY1: Too many fields"));
    }
    let v6 = match family {
        "TCP4" => false,
        "TCP6" => true,
        _ => return Err(Refused::new("PROXY1: Wrong TCP[46] field")),
    };
    let source = address(client, client_port, v6)
        .ok_or_else(|| Refused::new("PROXY1: Cannot resolve source address"))?;
    let destination = address(server, server_port, v6)
        .ok_or_else(|| Refused::new("PROXY1: Cannot resolve destination address"))?;
    Ok(Header {
        len: end + 2,
        endpoints: Some(Endpoints { client: source, server: destination }),
        tlvs: &[],
        log: Some(format!("1 {client} {client_port} {server} {server_port}")),
        garbage: None,
    })
}
