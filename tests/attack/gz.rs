//! Gzip streams as attackers make them.

use lacquer_filters::{Chain, Gzip};

/// Returns what so many zeros are packed.
pub fn zeros(length: usize) -> Vec<u8> {
    let mut chain = Chain::new(vec![Box::new(Gzip::new(9))], 64 << 10);
    let mut packed = Vec::new();
    let piece = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let mut input = &piece[..left.min(piece.len())];
        left -= input.len();
        while let Some(out) = chain.next(&mut input, left == 0).expect("zeros can be packed") {
            packed.extend_from_slice(out);
        }
    }
    packed
}
