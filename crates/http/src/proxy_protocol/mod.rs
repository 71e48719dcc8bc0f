//! The PROXY protocol, versions 1 and 2: headers in which a load balancer describes the client. They are parsed from
//! the first bytes of a connection, and written to backends that expect them.

mod crc32c_table;
mod emit;
pub mod extensions;
mod header;
mod v1;
mod v2;

pub use emit::write_header;
pub use header::{Endpoints, Header, Refused};
pub use v2::{Tlvs, find_tlv, tlv};

const SIGNATURE_1: &[u8] = b"PROXY";
const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The maximum length of a line of version 1, including the line end.
const MAX_LINE: usize = 107;
/// The maximum accepted payload of version 2, in bytes.
const MAX_PAYLOAD: usize = 1024;

/// The result of a scan for a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    More,
    Junk,
    Overflow,
    Complete,
}

/// Tests whether `buf` begins with a complete header.
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

/// Parses a header for which [`scan`] returned `Complete`.
pub fn parse(buf: &[u8]) -> Result<Header<'_>, Refused> {
    if buf.starts_with(SIGNATURE_1) { v1::parse(buf) } else { v2::parse(buf) }
}

#[cfg(test)]
mod tests;
