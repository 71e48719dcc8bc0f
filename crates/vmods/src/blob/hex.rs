//! Hexadecimal digits. An odd number of digits is read with a leading zero.

use super::text::{Case, Illegal};

pub fn digits(case: Case) -> &'static [u8; 16] {
    match case {
        Case::Lower => b"0123456789abcdef",
        Case::Upper => b"0123456789ABCDEF",
    }
}

pub fn value(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|d| d as u8)
}

pub fn encode(case: Case, bytes: &[u8]) -> Vec<u8> {
    let digits = digits(case);
    bytes.iter().flat_map(|b| [digits[usize::from(b >> 4)], digits[usize::from(b & 15)]]).collect()
}

/// Decodes digits. All parts must consist of digits, even those after the limit.
pub fn decode(parts: &[&[u8]], limit: usize) -> Result<Vec<u8>, Illegal> {
    let all = parts.iter().copied().flatten().map(|d| value(*d));
    let mut nibbles: Vec<u8> = all.collect::<Option<_>>().ok_or(Illegal)?;
    nibbles.truncate(limit);
    if nibbles.len() % 2 == 1 {
        nibbles.insert(0, 0);
    }
    Ok(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
