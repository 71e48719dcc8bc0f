//! CRC-32C (Castagnoli), as version 2 uses it. The table is computed at compile time.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

/// Returns the checksum of the parts, in order.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(!0, |crc, b| (crc >> 8) ^ TABLE[((crc ^ u32::from(*b)) & 0xff) as usize])
}

#[test]
fn check_value() {
    assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
}
