//! Numbers that begin within a byte (RFC 9204 section 4.1.1), of up to 62 bits.

use super::QpackError;
use crate::varint;
use lacquer_h2::hpack;

/// Reads a number that begins in the low `prefix` bits of the first byte. Returns the number and its length in bytes,
/// or `Ok(None)` if the input ends within it.
#[inline]
pub(super) fn read(input: &[u8], prefix: u32) -> Result<Option<(u64, usize)>, QpackError> {
    let mask = (1 << prefix) - 1;
    let Some((&first, rest)) = input.split_first() else { return Ok(None) };
    let mut value = u64::from(first) & mask;
    if value < mask {
        return Ok(Some((value, 1)));
    }
    for (i, &byte) in rest.iter().enumerate() {
        // Nine bytes of seven bits exceed 62 bits.
        let shift = 7 * i as u32;
        if shift > 56 {
            return Err(QpackError::Integer);
        }
        value += u64::from(byte & 0x7f) << shift;
        if value > varint::MAX {
            return Err(QpackError::Integer);
        }
        if byte & 0x80 == 0 {
            return Ok(Some((value, i + 2)));
        }
    }
    Ok(None)
}

/// Writes a number that begins in the low `prefix` bits of a byte whose other bits are `high`.
pub(super) fn write(out: &mut Vec<u8>, prefix: u32, high: u8, value: u64) {
    // Targets with smaller addresses have no stream numbers and counts beyond 32 bits.
    hpack::integer::write(out, prefix, high, usize::try_from(value).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for prefix in 3..=8 {
            for value in [0, 6, 7, 8, 30, 31, 127, 128, 254, 255, 256, 1337, 1 << 32, varint::MAX] {
                let mut out = Vec::new();
                write(&mut out, prefix, 0, value);
                assert_eq!(read(&out, prefix), Ok(Some((value, out.len()))));
                assert_eq!(read(&out[..out.len() - 1], prefix), Ok(None));
            }
        }
    }

    #[test]
    fn numbers_beyond_62_bits_are_rejected() {
        let mut out = Vec::new();
        write(&mut out, 5, 0, varint::MAX + 1);
        assert_eq!(read(&out, 5), Err(QpackError::Integer));
        assert_eq!(
            read(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 5),
            Err(QpackError::Integer)
        );
        assert_eq!(read(&[0xff; 16], 8), Err(QpackError::Integer));
    }
}
