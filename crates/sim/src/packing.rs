//! gzip for the origins and clients of the world.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

/// The length of a gzip header without optional fields. No checksum covers it.
pub const HEADER: usize = 10;

pub fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = encoder.write_all(plain);
    // A write to memory cannot fail.
    encoder.finish().unwrap_or_default()
}

/// Decompresses a body, which must be exactly one gzip stream. Returns `None` otherwise.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (mut decoder, mut plain) = (GzDecoder::new(packed), Vec::new());
    decoder.read_to_end(&mut plain).ok()?;
    decoder.into_inner().is_empty().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_streams_are_decompressed() {
        let packed = pack(b"some text");
        assert_eq!(unpack(&packed).as_deref(), Some(&b"some text"[..]));
        assert_eq!(unpack(&packed[..packed.len() - 1]), None);
        assert_eq!(unpack(&[&packed[..], b"x"].concat()), None);
        let mut damaged = packed;
        damaged[HEADER + 3] ^= 1;
        assert_eq!(unpack(&damaged), None);
    }
}
