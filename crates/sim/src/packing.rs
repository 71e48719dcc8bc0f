//! gzip as origins and clients of the world use it.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

/// The length of a gzip header without optional fields. The checksums cover nothing of it.
pub const HEADER: usize = 10;

pub fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = encoder.write_all(plain);
    // Memory takes all bytes.
    encoder.finish().unwrap_or_default()
}

/// Unpacks a body, which must be one gzip stream and nothing else. Returns `None` if it is not.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (mut decoder, mut plain) = (GzDecoder::new(packed), Vec::new());
    decoder.read_to_end(&mut plain).ok()?;
    decoder.into_inner().is_empty().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_streams_are_unpacked() {
        let packed = pack(b"some text");
        assert_eq!(unpack(&packed).as_deref(), Some(&b"some text"[..]));
        assert_eq!(unpack(&packed[..packed.len() - 1]), None);
        assert_eq!(unpack(&[&packed[..], b"x"].concat()), None);
        let mut damaged = packed;
        damaged[HEADER + 3] ^= 1;
        assert_eq!(unpack(&damaged), None);
    }
}
