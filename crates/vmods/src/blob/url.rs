//! Percent encoding: everything except RFC 3986's unreserved characters is escaped. A plus is decoded as a plus.

use super::hex::{digits, value};
use super::text::{Case, Illegal};

pub fn encode(case: Case, bytes: &[u8]) -> Vec<u8> {
    let digits = digits(case);
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', digits[usize::from(b >> 4)], digits[usize::from(b & 15)]]);
        }
    }
    out
}

pub fn decode(parts: &[&[u8]], limit: usize) -> Result<Vec<u8>, Illegal> {
    let mut out = Vec::new();
    let mut input = parts.iter().copied().flatten().take(limit);
    while let Some(&b) = input.next() {
        if b == b'%' {
            let mut nibble = || input.next().and_then(|d| value(*d)).ok_or(Illegal);
            out.push(nibble()? << 4 | nibble()?);
        } else {
            out.push(b);
        }
    }
    Ok(out)
}
