//! Gzip streams for attacks.

use lacquer_filters::{Chain, Gzip};

/// Returns a gzip stream of `length` zeros.
pub fn zeros(length: usize) -> Vec<u8> {
    repeated(&vec![0; 1 << 20], length, 9)
}

/// Returns a gzip stream of `length` unordered digits: a code for each, and hardly a repetition.
pub fn digits(length: usize) -> Vec<u8> {
    let digit = |n: u32| b"0123456789abcdef"[(n.wrapping_mul(2_654_435_761) >> 28) as usize];
    repeated(&(0..1u32 << 20).map(|n| digit(n.wrapping_mul(n))).collect::<Vec<_>>(), length, 1)
}

fn repeated(piece: &[u8], length: usize, level: u32) -> Vec<u8> {
    let mut chain = Chain::new(vec![Box::new(Gzip::new(level))], 64 << 10);
    let mut packed = Vec::new();
    let mut left = length;
    while left > 0 {
        let mut input = &piece[..left.min(piece.len())];
        left -= input.len();
        while let Some(out) = chain.next(&mut input, left == 0).expect("zeros can be compressed") {
            packed.extend_from_slice(out);
        }
    }
    packed
}
