//! Joins several bodies into one gzip stream: one header, the blocks of all bodies, and one trailer for all.
//!
//! A gzipped body is inserted without decompressing it: its header and trailer are removed, the mark of its last
//! block is cleared, and it is padded to a byte boundary. A plain body is inserted as stored blocks, which costs a
//! few bytes but no time.

pub use crate::deflate::{Broken, Landmarks, STEP_READS, Scanner, landmarks};

/// The header of every stream.
pub const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3];
/// An empty stored block without the three bits of its head.
const EMPTY_BLOCK: [u8; 4] = [0, 0, 0xff, 0xff];
const TRAILER: usize = 8;
const STORED_MAX: usize = 65535;

/// CRC-32 and length of bytes that arrive in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    pub crc: u32,
    pub length: u64,
}

impl Checksum {
    pub fn of(bytes: &[u8]) -> Checksum {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        Checksum { crc: crc.sum(), length: bytes.len() as u64 }
    }

    /// Extends the checksum to these bytes followed by those of `next`.
    pub fn append(&mut self, next: Checksum) {
        self.crc = shifted(self.crc, next.length) ^ next.crc;
        // A trailer contains the length modulo 2^32.
        self.length = self.length.wrapping_add(next.length);
    }
}

/// Multiplies a vector by a matrix over GF(2).
fn times(matrix: &[u32; 32], mut vector: u32) -> u32 {
    let mut sum = 0;
    while vector != 0 {
        sum ^= matrix[vector.trailing_zeros() as usize];
        vector &= vector - 1;
    }
    sum
}

/// Returns the CRC after appending `zeros` zero bytes.
fn shifted(mut crc: u32, mut zeros: u64) -> u32 {
    // The operator for one zero bit, squared three times, is that for one zero byte.
    let mut operator = [0u32; 32];
    operator[0] = 0xedb8_8320;
    for (n, row) in operator.iter_mut().enumerate().skip(1) {
        *row = 1 << (n - 1);
    }
    let square = |m: &[u32; 32]| m.map(|row| times(m, row));
    for _ in 0..3 {
        operator = square(&operator);
    }
    while zeros != 0 && crc != 0 {
        if zeros & 1 != 0 {
            crc = times(&operator, crc);
        }
        zeros >>= 1;
        operator = square(&operator);
    }
    crc
}

/// Returns the end of the stream, after a byte boundary: an empty last block, and the checksum.
pub fn trailer(sum: Checksum) -> [u8; 13] {
    let mut bytes = [1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[5..9].copy_from_slice(&sum.crc.to_le_bytes());
    bytes[9..].copy_from_slice(&(sum.length as u32).to_le_bytes());
    bytes
}

/// Appends plain bytes as stored blocks.
pub fn wrap(bytes: &[u8], out: &mut Vec<u8>) {
    for block in bytes.chunks(STORED_MAX) {
        let length = block.len() as u16;
        out.push(0);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
}

/// Converts a gzip stream, piece by piece, into a part of another stream.
pub struct Strip {
    marks: Landmarks,
    at: u64,
    trailer: Vec<u8>,
}

impl Strip {
    pub fn new(marks: Landmarks) -> Strip {
        Strip { marks, at: 0, trailer: Vec::with_capacity(TRAILER) }
    }

    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let from = self.at;
        self.at += input.len() as u64;
        let within =
            |at: u64| usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX).min(input.len());
        let Landmarks { start, last, stop } = self.marks;
        let base = out.len();
        let first = within(start / 8);
        out.extend_from_slice(&input[first..within(stop / 8).max(first)]);
        if (from..self.at).contains(&(last / 8)) {
            out[base + within(last / 8) - first] &= !(1 << (last % 8));
        }
        let used = stop % 8;
        if used != 0 && (from..self.at).contains(&(stop / 8)) {
            out.push(input[within(stop / 8)] & ((1 << used) - 1));
            if used > 5 {
                out.push(0);
            }
            out.extend_from_slice(&EMPTY_BLOCK);
        }
        let tail = &input[within(stop.div_ceil(8))..];
        self.trailer.extend_from_slice(&tail[..tail.len().min(TRAILER - self.trailer.len())]);
    }

    /// Returns the checksum from the stream's trailer. Valid once the whole stream was pushed.
    pub fn checksum(&self) -> Checksum {
        let (crc, length) = self.trailer.split_at(self.trailer.len().min(4));
        let number = |b: &[u8]| b.try_into().map_or(0, u32::from_le_bytes);
        Checksum { crc: number(crc), length: u64::from(number(length)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::{pack, unpack};

    #[test]
    fn checksums_of_parts_add_up() {
        let text: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        for cut in [0, 1, 7, 1234, 4000] {
            let mut sum = Checksum::of(&text[..cut]);
            sum.append(Checksum::of(&text[cut..]));
            assert_eq!(sum, Checksum::of(&text));
        }
    }

    #[test]
    fn plain_and_packed_parts_make_one_stream() {
        // Bodies of different lengths end at different bits of a byte.
        let parts: Vec<Vec<u8>> = (0..60u32)
            .map(|n| (0..n * n * 40).map(|i| (i.wrapping_mul(n * 7919) >> 9) as u8).collect())
            .collect();
        for step in [1, 13, 100_000] {
            let mut stream = HEADER.to_vec();
            let mut sum = Checksum::default();
            for (n, part) in parts.iter().enumerate() {
                if n % 5 == 0 {
                    wrap(part, &mut stream);
                    sum.append(Checksum::of(part));
                    continue;
                }
                let packed = pack(part, (n % 10) as u32);
                let mut strip = Strip::new(landmarks(packed.as_slice()).unwrap());
                packed.chunks(step).for_each(|piece| strip.push(piece, &mut stream));
                assert_eq!(strip.checksum(), Checksum::of(part));
                sum.append(strip.checksum());
            }
            stream.extend_from_slice(&trailer(sum));
            assert!(unpack(&stream) == parts.concat());
        }
    }
}
