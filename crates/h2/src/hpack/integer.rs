//! Numbers that begin within a byte (RFC 7541 section 5.1).

use super::HpackError;

/// The maximum shift at which a further byte still fits into 32 bits.
const LAST_SHIFT: u32 = 28;

/// Reads a number that begins in the low `prefix` bits of the first byte. Returns the number and its length in bytes,
/// or `Ok(None)` if the input ends within it.
pub fn read(input: &[u8], prefix: u32) -> Result<Option<(u32, usize)>, HpackError> {
    let mask = (1 << prefix) - 1;
    let Some((&first, rest)) = input.split_first() else { return Ok(None) };
    let mut value = u32::from(first) & mask;
    if value < mask {
        return Ok(Some((value, 1)));
    }
    for (i, &byte) in rest.iter().enumerate() {
        let shift = 7 * i as u32;
        if shift > LAST_SHIFT || shift == LAST_SHIFT && byte & 0x78 != 0 {
            return Err(HpackError::Integer);
        }
        value = value.checked_add(u32::from(byte & 0x7f) << shift).ok_or(HpackError::Integer)?;
        if byte & 0x80 == 0 {
            return Ok(Some((value, i + 2)));
        }
    }
    Ok(None)
}

/// Writes a number that begins in the low `prefix` bits of a byte whose other bits are `high`.
pub fn write(out: &mut Vec<u8>, prefix: u32, high: u8, value: usize) {
    let mask = (1 << prefix) - 1;
    if value < mask {
        out.push(high | value as u8);
        return;
    }
    out.push(high | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_round_trip() {
        for (prefix, value, bytes) in
            [(5, 10, &[0b01010][..]), (5, 1337, &[0b11111, 0b1001_1010, 0b1010]), (8, 42, &[42])]
        {
            let mut out = Vec::new();
            write(&mut out, prefix, 0, value);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes, prefix), Ok(Some((value as u32, bytes.len()))));
        }
    }

    #[test]
    fn numbers_beyond_32_bits_are_rejected() {
        for value in [0, 30, 31, 32, 158, 159, 0xffff, 0x7fff_ffff] {
            let mut out = Vec::new();
            write(&mut out, 5, 0xe0, value);
            assert_eq!(read(&out, 5), Ok(Some((value as u32, out.len()))));
            assert_eq!(read(&out[..out.len() - 1], 5), Ok(None));
        }
        assert_eq!(read(&[0x1f, 0xff, 0xff, 0xff, 0xff, 0x0f], 5), Err(HpackError::Integer));
        assert_eq!(read(&[0x1f, 0xff, 0xff, 0xff, 0xff, 0x10], 5), Err(HpackError::Integer));
        assert_eq!(read(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 5), Err(HpackError::Integer));
    }
}
