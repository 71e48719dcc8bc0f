//! The Huffman code of HPACK (RFC 7541 section 5.2). A table that is indexed by the next twelve bits yields up to two
//! characters per lookup. Longer codes, which only rare characters have, are found by their length, because the code
//! is canonical.

use super::HpackError;
use super::huffman_table::CODE_LENGTHS;

/// The number of bits that index the table.
const WINDOW: u32 = 12;

/// The length of the longest code of a character, in bits.
const MAX_BITS: u32 = 30;

/// The code of each character, in the low bits.
const CODES: [u32; 256] = {
    let mut codes = [0; 256];
    let (mut code, mut bits) = (0u32, 0);
    while bits <= MAX_BITS {
        let mut c = 0;
        while c < 256 {
            if CODE_LENGTHS[c] as u32 == bits {
                codes[c] = code;
                code += 1;
            }
            c += 1;
        }
        code <<= 1;
        bits += 1;
    }
    codes
};

/// The characters whose codes are at the beginning of a window.
#[derive(Clone, Copy)]
struct Lookup {
    chars: [u8; 2],
    /// The length of the first code in bits; 0 if it is longer than the window.
    first_bits: u8,
    /// The length of both codes in bits, or of the first one if the second does not fit.
    bits: u8,
}

const NO_MATCH: Lookup = Lookup { chars: [0; 2], first_bits: 0, bits: 0 };

static TABLE: [Lookup; 1 << WINDOW] = {
    let mut table = [NO_MATCH; 1 << WINDOW];
    let mut c = 0;
    while c < 256 {
        let bits = CODE_LENGTHS[c];
        if bits as u32 <= WINDOW {
            let unused = WINDOW - bits as u32;
            let mut window = CODES[c] << unused;
            while window < (CODES[c] + 1) << unused {
                table[window as usize] = Lookup { chars: [c as u8, 0], first_bits: bits, bits };
                window += 1;
            }
        }
        c += 1;
    }
    let mut window = 0;
    while window < table.len() {
        let bits = table[window].bits;
        let next = table[window << bits & ((1 << WINDOW) - 1)];
        if bits > 0 && next.first_bits > 0 && bits as u32 + next.first_bits as u32 <= WINDOW {
            table[window].chars[1] = next.chars[0];
            table[window].bits = bits + next.first_bits;
        }
        window += 1;
    }
    table
};

/// The characters, ordered by code.
const BY_CODE: [u8; 256] = {
    let mut sorted = [0; 256];
    let (mut n, mut bits) = (0, 0);
    while bits <= MAX_BITS {
        let mut c = 0;
        while c < 256 {
            if CODE_LENGTHS[c] as u32 == bits {
                sorted[n] = c as u8;
                n += 1;
            }
            c += 1;
        }
        bits += 1;
    }
    sorted
};

/// All codes of one length.
#[derive(Clone, Copy)]
struct Length {
    /// The first code after them, left-aligned.
    end: u32,
    first: u32,
    /// The index of their first character in [`BY_CODE`].
    rank: u32,
}

/// The lengths that exceed the window.
const LONG: [Length; (MAX_BITS - WINDOW) as usize] = {
    let mut lengths = [Length { end: 0, first: 0, rank: 0 }; (MAX_BITS - WINDOW) as usize];
    let (mut code, mut rank, mut bits) = (0, 0, 1);
    while bits <= MAX_BITS {
        code <<= 1;
        let first = code;
        let start = rank;
        while rank < 256 && CODE_LENGTHS[BY_CODE[rank as usize] as usize] as u32 == bits {
            code += 1;
            rank += 1;
        }
        if bits > WINDOW {
            let end = code << (32 - bits);
            lengths[(bits - WINDOW - 1) as usize] = Length { end, first, rank: start };
        }
        bits += 1;
    }
    lengths
};

/// Returns the character whose long code is at the beginning of the bits, and the length of the code. Returns `None`
/// for the end-of-string code, which must not occur.
#[cold]
fn long_code(bits: u64) -> Option<(u8, u32)> {
    let code = (bits >> 32) as u32;
    let at = LONG.iter().position(|length| code < length.end)?;
    let (length, width) = (&LONG[at], WINDOW + 1 + at as u32);
    Some((BY_CODE[(length.rank + (code >> (32 - width)) - length.first) as usize], width))
}

#[inline]
fn look_up(bits: u64) -> Lookup {
    TABLE[(bits >> (64 - WINDOW)) as usize]
}

/// The remaining bits of the input, the next one first.
struct Bits<'a> {
    input: &'a [u8],
    next: u64,
    count: u32,
}

impl Bits<'_> {
    /// Refills to at least 56 bits. Returns false if fewer than eight bytes are left.
    #[inline]
    fn refill_fast(&mut self) -> bool {
        let Some(word) = self.input.first_chunk::<8>() else { return false };
        self.next |= u64::from_be_bytes(*word) >> self.count;
        let bytes = (63 - self.count) / 8;
        self.input = &self.input[bytes as usize..];
        self.count += bytes * 8;
        true
    }

    fn refill(&mut self) {
        while let (true, Some((&byte, rest))) = (self.count <= 56, self.input.split_first()) {
            self.next |= u64::from(byte) << (56 - self.count);
            self.count += 8;
            self.input = rest;
        }
    }

    #[inline]
    fn skip(&mut self, bits: u32) {
        self.next <<= bits;
        self.count -= bits;
    }
}

/// Decodes `input` to the start of `out`. Returns the length, or `None` if there is not enough room.
pub fn decode(input: &[u8], out: &mut [u8]) -> Result<Option<usize>, HpackError> {
    /// The number of lookups for which 56 bits are always sufficient.
    const LOOKUPS: u32 = 56 / WINDOW;
    let mut bits = Bits { input, next: 0, count: 0 };
    let mut at = 0;
    'words: while at + 2 * LOOKUPS as usize <= out.len() && bits.refill_fast() {
        for _ in 0..LOOKUPS {
            let found = look_up(bits.next);
            if found.first_bits == 0 {
                if bits.count < MAX_BITS {
                    continue 'words;
                }
                let (c, width) = long_code(bits.next).ok_or(HpackError::Huffman)?;
                out[at] = c;
                at += 1;
                bits.skip(width);
                continue 'words;
            }
            out[at..at + 2].copy_from_slice(&found.chars);
            at += 1 + usize::from(found.bits != found.first_bits);
            bits.skip(u32::from(found.bits));
        }
    }
    decode_rest(bits, out, at)
}

fn decode_rest(mut bits: Bits<'_>, out: &mut [u8], mut at: usize) -> Result<Option<usize>, HpackError> {
    loop {
        bits.refill();
        let found = look_up(bits.next);
        let (c, width) = match found.first_bits {
            0 => long_code(bits.next).ok_or(HpackError::Huffman)?,
            width => (found.chars[0], u32::from(width)),
        };
        if width > bits.count {
            let padding = bits.next.leading_ones() >= bits.count && bits.count < 8;
            return if padding { Ok(Some(at)) } else { Err(HpackError::Huffman) };
        }
        let Some(place) = out.get_mut(at) else { return Ok(None) };
        *place = c;
        at += 1;
        bits.skip(width);
    }
}

/// Returns the length of `text` when encoded.
pub fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|&c| CODE_LENGTHS[c as usize] as usize).sum::<usize>().div_ceil(8)
}

/// Appends the encoded `text`, padded to a whole byte.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &c in text {
        let width = u32::from(CODE_LENGTHS[c as usize]);
        bits = bits << width | u64::from(CODES[c as usize]);
        count += width;
        if count >= u32::BITS {
            count -= u32::BITS;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        let padding = 8 - count;
        out.push((bits << padding) as u8 | ((1 << padding) - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_testing::{Random, rounds};

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = [0; 4096];
        decode(input, &mut out).map(|len| out[..len.unwrap()].to_vec())
    }

    #[test]
    fn encoded_strings_decode_to_the_original() {
        let mut random = Random(1);
        for round in 0..rounds(20_000) {
            let rare = round as u64 % 3;
            let text: Vec<u8> = (0..random.below(90))
                .map(|_| {
                    if random.below(3) < rare { random.number() as u8 } else { b'a' + random.below(26) as u8 }
                })
                .collect();
            let mut code = Vec::new();
            encode(&text, &mut code);
            assert_eq!(code.len(), encoded_len(&text));
            assert_eq!(decoded(&code), Ok(text.clone()));
            let mut exact = vec![0; text.len()];
            assert_eq!(decode(&code, &mut exact), Ok(Some(text.len())));
            assert_eq!(exact, text);
            if let Some(short) = text.len().checked_sub(1) {
                assert_eq!(decode(&code, &mut exact[..short]), Ok(None));
            }
        }
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        let code = |c: u8| (CODES[c as usize], CODE_LENGTHS[c as usize]);
        assert_eq!(code(b'0'), (0x0, 5));
        assert_eq!(code(b'~'), (0x1ffd, 13));
        assert_eq!(code(0), (0x1ff8, 13));
        assert_eq!(code(255), (0x3ff_ffee, 26));
        assert_eq!(code(22), (0x3fff_fffe, 30));
    }

    #[test]
    fn damaged_strings_are_rejected() {
        assert_eq!(decoded(&[]), Ok(vec![]));
        assert_eq!(decoded(&[0x1f]), Ok(b"a".to_vec()));
        // Padding with zeros, with eight ones, and the end-of-string code within the input.
        assert_eq!(decoded(&[0x18]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0x1f, 0xff]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0xff; 4]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0xff; 40]), Err(HpackError::Huffman));
    }
}
