//! Reads a gzip stream without decompressing it, to find where its last block begins and where it ends. These
//! positions are needed to insert the stream into another one (see RFC 1951 and RFC 1952 for the format). The stream
//! is read in steps of bounded work, whatever it contains.

use std::io::BufRead;

/// The landmarks of a gzip stream, in bits from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmarks {
    /// The start of the first block, on a byte boundary.
    pub start: u64,
    /// The position of the bit that marks the last block.
    pub last: u64,
    /// The position after the last block.
    pub stop: u64,
}

/// The error for a stream that is invalid or ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

const MAX_BITS: usize = 15;
/// The order of the lengths of the code length codes.
const LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const END_OF_BLOCK: u16 = 256;

struct Bits<R> {
    source: R,
    hold: u64,
    have: u32,
    at: u64,
}

impl<R: BufRead> Bits<R> {
    /// Refills the buffer with as many bits as are available, up to 56.
    fn fill(&mut self) -> Result<(), Broken> {
        while self.have <= 48 {
            let bytes = self.source.fill_buf().map_err(|_| Broken)?;
            let n = bytes.len().min(((56 - self.have) / 8) as usize);
            if n == 0 {
                return Ok(());
            }
            for &byte in &bytes[..n] {
                self.hold |= u64::from(byte) << self.have;
                self.have += 8;
            }
            self.source.consume(n);
        }
        Ok(())
    }

    fn drop(&mut self, n: u32) -> Result<(), Broken> {
        if n > self.have {
            return Err(Broken);
        }
        self.hold >>= n;
        self.have -= n;
        self.at += u64::from(n);
        Ok(())
    }

    fn take(&mut self, n: u32) -> Result<u32, Broken> {
        if self.have < n {
            self.fill()?;
        }
        let value = (self.hold & ((1 << n) - 1)) as u32;
        self.drop(n)?;
        Ok(value)
    }

    fn align(&mut self) -> Result<(), Broken> {
        self.drop(self.have % 8)
    }
}

/// A prefix code: the symbol and length for every value of the next `width` bits.
struct Code {
    width: u32,
    table: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Result<Code, Broken> {
        let mut count = [0u32; MAX_BITS + 1];
        for &length in lengths {
            count[usize::from(length)] += 1;
        }
        count[0] = 0;
        let width = (1..=MAX_BITS).rev().find(|&n| count[n] > 0).unwrap_or(1) as u32;
        let mut next = [0u32; MAX_BITS + 2];
        let mut code = 0;
        for bits in 1..=MAX_BITS {
            code = (code + count[bits - 1]) << 1;
            next[bits] = code;
        }
        let mut table = vec![0u16; 1 << width];
        for (symbol, &length) in lengths.iter().enumerate().filter(|(_, l)| **l > 0) {
            let code = next[usize::from(length)];
            next[usize::from(length)] += 1;
            if code >> length != 0 {
                return Err(Broken);
            }
            let first = (code.reverse_bits() >> (32 - u32::from(length))) as usize;
            for entry in table[first..].iter_mut().step_by(1 << length) {
                *entry = (symbol as u16) << 4 | u16::from(length);
            }
        }
        Ok(Code { width, table })
    }

    fn read<R: BufRead>(&self, bits: &mut Bits<R>) -> Result<u16, Broken> {
        if bits.have < self.width {
            bits.fill()?;
        }
        let entry = self.table[(bits.hold & ((1 << self.width) - 1)) as usize];
        let length = u32::from(entry & 15);
        if length == 0 {
            return Err(Broken);
        }
        bits.drop(length)?;
        Ok(entry >> 4)
    }
}

/// The work of one step: the number of bits read and of table entries created, which cost about the same. This is the
/// number of bits in 64 kB.
const STEP: u64 = 64 * 1024 * 8;

/// The maximum number of bytes that a step reads: its own, the extra field of a header, a stored block, and bytes
/// that are buffered in advance.
pub const STEP_READS: u64 = STEP / 8 + 2 * (64 * 1024) + 1024;

/// The next part of the stream.
enum Next {
    Header,
    /// Texts that end with a zero byte: the file name and a comment. `left` is their number.
    Texts {
        left: u32,
        has_checksum: bool,
    },
    Block,
    Symbols(Codes),
    AfterBlock,
}

/// Finds the landmarks of a gzip stream step by step.
pub struct Scanner<R> {
    bits: Bits<R>,
    next: Next,
    /// The start of the first block, and of the latest one.
    start: u64,
    last: u64,
    is_last: bool,
}

impl<R: BufRead> Scanner<R> {
    /// Creates a scanner for the stream from `source`.
    pub fn new(source: R) -> Scanner<R> {
        let bits = Bits { source, hold: 0, have: 0, at: 0 };
        Scanner { bits, next: Next::Header, start: 0, last: 0, is_last: false }
    }

    /// Returns the source. The next step reads at most [`STEP_READS`] bytes from it.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.bits.source
    }

    /// Continues for a fraction of a millisecond. Returns the landmarks once all of them are known.
    pub fn step(&mut self) -> Result<Option<Landmarks>, Broken> {
        let begun = self.bits.at;
        let mut in_tables = 0;
        loop {
            let end = (begun + STEP).saturating_sub(in_tables);
            if self.bits.at >= end {
                return Ok(None);
            }
            match &mut self.next {
                Next::Header => self.next = self.header()?,
                Next::Texts { left: 0, has_checksum } => {
                    if *has_checksum {
                        self.bits.take(16)?;
                    }
                    self.start = self.bits.at;
                    self.next = Next::Block;
                }
                Next::Texts { left, .. } => {
                    if skip_text(&mut self.bits, end)? {
                        *left -= 1;
                    }
                }
                Next::Block => {
                    self.next = self.block()?;
                    if let Next::Symbols(codes) = &self.next {
                        in_tables += codes.entries();
                    }
                }
                Next::Symbols(codes) => {
                    if skip_symbols(&mut self.bits, codes, end)? {
                        self.next = Next::AfterBlock;
                    }
                }
                Next::AfterBlock if self.is_last => {
                    return Ok(Some(Landmarks { start: self.start, last: self.last, stop: self.bits.at }));
                }
                Next::AfterBlock => self.next = Next::Block,
            }
        }
    }

    fn header(&mut self) -> Result<Next, Broken> {
        let bits = &mut self.bits;
        if bits.take(24)? != 0x08_8b_1f {
            return Err(Broken);
        }
        let flags = bits.take(8)?;
        for _ in 0..6 {
            bits.take(8)?;
        }
        if flags & 4 != 0 {
            let extra = bits.take(16)?;
            for _ in 0..extra {
                bits.take(8)?;
            }
        }
        let left = (flags >> 3 & 1) + (flags >> 4 & 1);
        Ok(Next::Texts { left, has_checksum: flags & 2 != 0 })
    }

    fn block(&mut self) -> Result<Next, Broken> {
        self.last = self.bits.at;
        self.is_last = self.bits.take(1)? == 1;
        Ok(match self.bits.take(2)? {
            0 => {
                skip_stored(&mut self.bits)?;
                Next::AfterBlock
            }
            1 => Next::Symbols(fixed_codes()?),
            2 => Next::Symbols(dynamic_codes(&mut self.bits)?),
            _ => return Err(Broken),
        })
    }
}

/// Reads past the next zero byte, or up to `end`. Returns whether the text has ended.
fn skip_text<R: BufRead>(bits: &mut Bits<R>, end: u64) -> Result<bool, Broken> {
    while bits.at < end {
        if bits.take(8)? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn skip_stored<R: BufRead>(bits: &mut Bits<R>) -> Result<(), Broken> {
    bits.align()?;
    let length = bits.take(16)?;
    if bits.take(16)? != !length & 0xffff {
        return Err(Broken);
    }
    for _ in 0..length {
        bits.take(8)?;
    }
    Ok(())
}

/// The codes of literals and lengths, and of distances.
struct Codes {
    literals: Code,
    distances: Code,
}

impl Codes {
    fn new(literals: &[u8], distances: &[u8]) -> Result<Codes, Broken> {
        Ok(Codes { literals: Code::new(literals)?, distances: Code::new(distances)? })
    }

    /// Returns the number of entries of both tables.
    fn entries(&self) -> u64 {
        (self.literals.table.len() + self.distances.table.len()) as u64
    }
}

fn fixed_codes() -> Result<Codes, Broken> {
    let mut lengths = [8u8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    Codes::new(&lengths, &[5; 30])
}

fn dynamic_codes<R: BufRead>(bits: &mut Bits<R>) -> Result<Codes, Broken> {
    let literals = bits.take(5)? as usize + 257;
    let distances = bits.take(5)? as usize + 1;
    let given = bits.take(4)? as usize + 4;
    let mut lengths = [0u8; 19];
    for &index in &LENGTH_ORDER[..given] {
        lengths[index] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths)?;
    let total = literals + distances;
    let mut lengths: Vec<u8> = Vec::with_capacity(total);
    while lengths.len() < total {
        let symbol = code.read(bits)?;
        let (value, times) = match symbol {
            16 => (*lengths.last().ok_or(Broken)?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.resize(lengths.len() + times as usize, value);
    }
    if lengths.len() > total {
        return Err(Broken);
    }
    let (literals, distances) = lengths.split_at(literals);
    Codes::new(literals, distances)
}

/// Reads past the last symbol of a block, or up to `end`. Returns whether the block has ended.
fn skip_symbols<R: BufRead>(bits: &mut Bits<R>, codes: &Codes, end: u64) -> Result<bool, Broken> {
    while bits.at < end {
        match codes.literals.read(bits)? {
            0..END_OF_BLOCK => continue,
            END_OF_BLOCK => return Ok(true),
            symbol @ 265..=284 => drop(bits.take(u32::from(symbol - 261) / 4)?),
            257..=264 | 285 => {}
            _ => return Err(Broken),
        }
        let distance = codes.distances.read(bits)?;
        if distance > 29 {
            return Err(Broken);
        }
        bits.take(u32::from(distance.saturating_sub(2)) / 2)?;
    }
    Ok(false)
}

/// Finds the landmarks of a short gzip stream in a single call.
pub fn landmarks(source: impl BufRead) -> Result<Landmarks, Broken> {
    let mut scanner = Scanner::new(source);
    loop {
        if let Some(marks) = scanner.step()? {
            return Ok(marks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::pack;

    /// Returns the number of steps, and the maximum number of bytes that one of them read.
    fn steps(packed: &[u8]) -> (usize, u64) {
        let mut scanner = Scanner::new(packed);
        let (mut count, mut most, mut before) = (0, 0, 0);
        loop {
            let done = scanner.step().unwrap();
            count += 1;
            most = most.max((scanner.bits.at - before) / 8);
            before = scanner.bits.at;
            if done.is_some() {
                return (count, most);
            }
        }
    }

    #[test]
    fn the_work_of_a_step_is_bounded() {
        const BYTES: u64 = STEP / 8;
        let noise: Vec<u8> =
            (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for level in [0, 6] {
            let packed = pack(&noise, level);
            let (count, most) = steps(&packed);
            assert!(count as u64 >= packed.len() as u64 / (2 * BYTES) && most < 2 * BYTES, "{count}, {most}");
        }
        let plain = pack(b"hello, hello, hello", 6);
        let name =
            [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; 1_000_000], &[0], &plain[10..]].concat();
        let (count, most) = steps(&name);
        assert!(count > 10 && most <= BYTES + 1, "{count}, {most}");
        // Short blocks with large tables: one code has 15 bits, and the blocks are empty.
        let (count, most) = steps(&large_tables(1000));
        assert!(count > 60 && most < BYTES / 8, "{count}, {most}");
    }

    /// Returns a stream of empty blocks with tables of the maximum size.
    fn large_tables(blocks: usize) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        let put = |bits: &mut Vec<bool>, value: u32, n: u32| bits.extend((0..n).map(|i| value >> i & 1 == 1));
        for block in 0..blocks {
            put(&mut bits, u32::from(block + 1 == blocks), 1);
            put(&mut bits, 2, 2);
            // 257 literals, 30 distances, all of the code length codes.
            put(&mut bits, 0, 5);
            put(&mut bits, 29, 5);
            put(&mut bits, 15, 4);
            // Lengths 0 to 15 have codes of four bits, in order.
            for index in LENGTH_ORDER {
                put(&mut bits, if index < 16 { 4 } else { 0 }, 3);
            }
            let lengths = (0..257 + 30).map(|symbol| match symbol {
                // One of each length, and the longest for the end of the block.
                0..14 => symbol + 1,
                256 | 257 => 15,
                _ => 0,
            });
            for length in lengths {
                let code: u32 = (0..4).map(|i| (length >> i & 1) << (3 - i)).sum();
                put(&mut bits, code, 4);
            }
            // The code of the end of the block is fourteen ones and a zero.
            put(&mut bits, (1 << 14) - 1, 14);
            put(&mut bits, 0, 1);
        }
        let packed =
            bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |all, &bit| all << 1 | u8::from(bit)));
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3].into_iter().chain(packed).chain([0; 8]).collect()
    }

    #[test]
    fn the_end_of_a_stream_is_eight_bytes_before_its_end() {
        let texts: [Vec<u8>; 4] = [
            Vec::new(),
            b"hello, hello, hello".to_vec(),
            (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect(),
            (0..300_000u32).flat_map(|i| (i / 5).to_be_bytes()).collect(),
        ];
        for text in &texts {
            for level in [0, 1, 6, 9] {
                let packed = pack(text, level);
                let marks = landmarks(packed.as_slice()).unwrap();
                assert_eq!(marks.start, 80);
                assert_eq!(marks.stop.div_ceil(8) + 8, packed.len() as u64);
                assert!(marks.last >= marks.start && marks.last < marks.stop);
            }
        }
    }

    #[test]
    fn damaged_streams_are_rejected() {
        let packed = pack(b"hello, hello, hello", 6);
        for cut in 0..packed.len() - 9 {
            assert_eq!(landmarks(&packed[..cut]), Err(Broken));
        }
        assert_eq!(landmarks(b"<html>not gzip".as_slice()), Err(Broken));
    }
}
