//! Reads a gzip stream without unpacking it, to find out where its last block begins and where it ends:
//! what one must know to put it into the middle of another (see RFC 1951 for the format).

use std::io::BufRead;

/// A gzip stream's landmarks, in bits from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmarks {
    /// Where the first block begins, on a byte boundary.
    pub start: u64,
    /// The bit that says which block is the last.
    pub last: u64,
    /// Behind the last block.
    pub stop: u64,
}

/// The stream is not valid, or ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

const MAX_BITS: usize = 15;
/// The order in which the lengths of the code length codes come.
const LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const END_OF_BLOCK: u16 = 256;

struct Bits<R> {
    source: R,
    hold: u64,
    have: u32,
    at: u64,
}

impl<R: BufRead> Bits<R> {
    /// Holds as many bits as there are, up to 56.
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

    fn skip_text(&mut self) -> Result<(), Broken> {
        while self.take(8)? != 0 {}
        Ok(())
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

/// Finds the landmarks of the gzip stream that `source` gives.
pub fn landmarks(source: impl BufRead) -> Result<Landmarks, Broken> {
    let mut bits = Bits { source, hold: 0, have: 0, at: 0 };
    skip_header(&mut bits)?;
    let start = bits.at;
    loop {
        let last = bits.at;
        let is_last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => skip_stored(&mut bits)?,
            1 => skip_symbols(&mut bits, &fixed_codes()?)?,
            2 => {
                let codes = dynamic_codes(&mut bits)?;
                skip_symbols(&mut bits, &codes)?;
            }
            _ => return Err(Broken),
        }
        if is_last {
            return Ok(Landmarks { start, last, stop: bits.at });
        }
    }
}

fn skip_header<R: BufRead>(bits: &mut Bits<R>) -> Result<(), Broken> {
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
    if flags & 8 != 0 {
        bits.skip_text()?;
    }
    if flags & 16 != 0 {
        bits.skip_text()?;
    }
    if flags & 2 != 0 {
        bits.take(16)?;
    }
    Ok(())
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

/// Codes of literals and lengths, and of distances.
type Codes = (Code, Code);

fn fixed_codes() -> Result<Codes, Broken> {
    let mut lengths = [8u8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    Ok((Code::new(&lengths)?, Code::new(&[5; 30])?))
}

fn dynamic_codes<R: BufRead>(bits: &mut Bits<R>) -> Result<Codes, Broken> {
    let literals = bits.take(5)? as usize + 257;
    let distances = bits.take(5)? as usize + 1;
    let given = bits.take(4)? as usize + 4;
    let mut lengths = [0u8; 19];
    for &place in &LENGTH_ORDER[..given] {
        lengths[place] = bits.take(3)? as u8;
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
    Ok((Code::new(&lengths[..literals])?, Code::new(&lengths[literals..])?))
}

fn skip_symbols<R: BufRead>(bits: &mut Bits<R>, (literals, distances): &Codes) -> Result<(), Broken> {
    loop {
        match literals.read(bits)? {
            0..END_OF_BLOCK => continue,
            END_OF_BLOCK => return Ok(()),
            symbol @ 265..=284 => drop(bits.take(u32::from(symbol - 261) / 4)?),
            257..=264 | 285 => {}
            _ => return Err(Broken),
        }
        let distance = distances.read(bits)?;
        if distance > 29 {
            return Err(Broken);
        }
        bits.take(u32::from(distance.saturating_sub(2)) / 2)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::pack;

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
    fn damage_is_noticed() {
        let packed = pack(b"hello, hello, hello", 6);
        for cut in 0..packed.len() - 9 {
            assert_eq!(landmarks(&packed[..cut]), Err(Broken));
        }
        assert_eq!(landmarks(b"<html>not gzip".as_slice()), Err(Broken));
    }
}
