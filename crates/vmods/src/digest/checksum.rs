//! Checksums of 32 bits, with the names of libmhash.

/// Computes the CRC with the most significant bit first: Ethernet's polynomial in the opposite bit order.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b) << 24, |crc, _| {
            if crc & 1 << 31 == 0 { crc << 1 } else { crc << 1 ^ 0x04c1_1db7 }
        })
    })
}

/// Computes the CRC of gzip and PNG, with the least significant bit first.
pub fn crc32b(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, b| {
        (0..8)
            .fold(crc ^ u32::from(*b), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xedb8_8320 })
    })
}

pub fn adler32(bytes: &[u8]) -> u32 {
    const PRIME: u32 = 65521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % PRIME;
        (a, (b + a) % PRIME)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_known_values() {
        assert_eq!(crc32(b"checksum").to_le_bytes(), [0x7f, 0xbe, 0xb0, 0x2e]);
        assert_eq!(crc32b(b"checksum").to_le_bytes(), [0x9a, 0xdf, 0x6f, 0xde]);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }
}
