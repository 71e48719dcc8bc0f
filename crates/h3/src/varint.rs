//! Integers of variable length (RFC 9000 section 16): the first two bits of the first byte determine the length.

/// The largest value.
pub const MAX: u64 = (1 << 62) - 1;

/// The length of the longest encoding, in bytes.
pub const MAX_LEN: usize = 8;

/// Reads the integer at the start of `bytes`. Returns it and its length, or `None` if it is not complete.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
    Some((value, len))
}

/// Returns the length of the shortest encoding of `value`.
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Returns the shortest encoding of `value`, followed by zeros, and its length. Only the low 62 bits are used.
#[inline]
pub const fn encode(value: u64) -> ([u8; MAX_LEN], usize) {
    let value = value & MAX;
    let len = len(value);
    let prefix = match len {
        1 => 0,
        2 => 0x40,
        4 => 0x80,
        _ => 0xc0,
    };
    let mut bytes = (value << (64 - 8 * len as u32)).to_be_bytes();
    bytes[0] |= prefix;
    (bytes, len)
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn write(out: &mut Vec<u8>, value: u64) {
    let (bytes, len) = encode(value);
    out.extend_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15293),
            (&[0x25], 37),
            // A longer encoding than necessary is valid.
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn values_at_the_limits_round_trip() {
        for (value, expected) in
            [(0, 1), (63, 1), (64, 2), (16383, 2), (16384, 4), ((1 << 30) - 1, 4), (1 << 30, 8), (MAX, 8)]
        {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!((out.len(), len(value)), (expected, expected));
            assert_eq!(read(&out), Some((value, expected)));
        }
    }
}
