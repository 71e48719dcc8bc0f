//! Version 2: a binary header with typed extensions (TLVs).

use super::crc32c_table::crc32c;
use super::header::{Endpoints, Header, Refused, format_ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Types of extensions.
pub mod tlv {
    pub const ALPN: u8 = 0x01;
    pub const AUTHORITY: u8 = 0x02;
    pub const CRC32C: u8 = 0x03;
    pub const SSL: u8 = 0x20;
    pub const SSL_VERSION: u8 = 0x21;
    pub const SSL_CN: u8 = 0x22;
    pub const SSL_CIPHER: u8 = 0x23;
    pub const SSL_SIG_ALG: u8 = 0x24;
    pub const SSL_KEY_ALG: u8 = 0x25;
}

const FIXED: usize = 16;
/// The length of the fields before the nested extensions of an SSL extension: client flags and verification result.
const SSL_PREFIX: usize = 5;

/// Returns the length of the whole header, once its length field has been received.
pub(super) fn total_len(buf: &[u8]) -> Option<usize> {
    let length = buf.get(14..16)?;
    Some(FIXED + u16::from_be_bytes([length[0], length[1]]) as usize)
}

/// Iterates over the extensions in order. Stops at the first malformed one and records the reason in `error`.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
    pub error: Option<&'static str>,
}

impl<'a> Tlvs<'a> {
    pub fn new(bytes: &'a [u8]) -> Tlvs<'a> {
        Tlvs { rest: bytes, error: None }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        if self.rest.is_empty() || self.error.is_some() {
            return None;
        }
        let Some((&[kind, high, low], rest)) = self.rest.split_first_chunk::<3>() else {
            self.error = Some("Dribble bytes");
            return None;
        };
        let Some((value, rest)) = rest.split_at_checked(u16::from_be_bytes([high, low]) as usize) else {
            self.error = Some("Length Error");
            return None;
        };
        self.rest = rest;
        Some((kind, value))
    }
}

/// Returns the value of the first extension of this type, including those nested in the SSL extension.
pub fn find_tlv(tlvs: &[u8], kind: u8) -> Option<&[u8]> {
    for (found, value) in Tlvs::new(tlvs) {
        if found == kind {
            return Some(value);
        }
        if found == tlv::SSL
            && let Some(inner) = value.get(SSL_PREFIX..)
            && let Some((_, value)) = Tlvs::new(inner).find(|(inner_kind, _)| *inner_kind == kind)
        {
            return Some(value);
        }
    }
    None
}

fn check_tlvs(header: &[u8], tlvs: &[u8]) -> Result<(), Refused> {
    let bad = |text| Refused::new(format!("PROXY2: TLV {text}"));
    let mut all = Tlvs::new(tlvs);
    while let Some((kind, value)) = all.next() {
        match kind {
            tlv::SSL => {
                let mut inner = Tlvs::new(value.get(SSL_PREFIX..).ok_or_else(|| bad("Length Error"))?);
                inner.by_ref().for_each(drop);
                if let Some(text) = inner.error {
                    return Err(bad(text));
                }
            }
            tlv::CRC32C => {
                let sum: [u8; 4] = value.try_into().map_err(|_| bad("Length Error"))?;
                let at = header.len() - all.rest.len() - sum.len();
                if crc32c(&[&header[..at], &[0; 4], &header[at + 4..]]) != u32::from_be_bytes(sum) {
                    return Err(Refused::new("PROXY2: CRC error"));
                }
            }
            _ => {}
        }
    }
    all.error.map_or(Ok(()), |text| Err(bad(text)))
}

fn ip(bytes: &[u8]) -> IpAddr {
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => IpAddr::V6(Ipv6Addr::from(v6)),
        Err(_) => IpAddr::V4(<[u8; 4]>::try_from(bytes).map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from)),
    }
}

fn endpoints(addresses: &[u8], width: usize) -> Endpoints {
    let (client, rest) = addresses.split_at(width);
    let (server, ports) = rest.split_at(width);
    Endpoints {
        client: SocketAddr::new(ip(client), u16::from_be_bytes([ports[0], ports[1]])),
        server: SocketAddr::new(ip(server), u16::from_be_bytes([ports[2], ports[3]])),
    }
}

pub fn parse(buf: &[u8]) -> Result<Header<'_>, Refused> {
    let len = total_len(buf).filter(|&n| n <= buf.len()).ok_or(Refused::SILENT)?;
    let header = &buf[..len];
    let (version, command) = (header[12] >> 4, header[12] & 15);
    if version != 2 {
        return Err(Refused::new(format!("PROXY2: bad version ({version})")));
    }
    let mut result = Header { len, endpoints: None, tlvs: &[], log: None, garbage: None };
    match command {
        0 => {
            result.log = Some("2 local local local local".into());
            return Ok(result);
        }
        1 => {}
        _ => return Err(Refused::new(format!("PROXY2: bad command ({command})"))),
    }
    let (width, family) = match header[13] {
        0x11 => (4, "IPv4"),
        0x21 => (16, "IPv6"),
        other => {
            result.garbage = Some(match other {
                0 => "PROXY2: Ignoring UNSPEC|UNSPEC addresses".into(),
                _ => format!("PROXY2: Ignoring unsupported protocol (0x{other:02x})"),
            });
            return Ok(result);
        }
    };
    let payload = &header[FIXED..];
    let Some((addresses, tlvs)) = payload.split_at_checked(2 * width + 4) else {
        result.garbage = Some(format!("PROXY2: Ignoring short {family} addresses ({})", payload.len()));
        return Ok(result);
    };
    let Endpoints { client, server } = endpoints(addresses, width);
    let (from, to) = (format_ip(client.ip()), format_ip(server.ip()));
    result.log = Some(format!("2 {from} {} {to} {}", client.port(), server.port()));
    if let Err(refused) = check_tlvs(header, tlvs) {
        return Err(Refused { log: result.log, ..refused });
    }
    result.endpoints = Some(Endpoints { client, server });
    result.tlvs = tlvs;
    Ok(result)
}
