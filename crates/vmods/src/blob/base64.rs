//! Base 64 with several alphabets. Decoding accepts a missing padding, but nothing after a padding within a
//! part.

use super::text::Illegal;

pub struct Alphabet {
    digits: &'static [u8; 64],
    padding: Option<u8>,
}

pub const STANDARD: Alphabet = Alphabet {
    digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    padding: Some(b'='),
};
pub const STANDARD_NO_PADDING: Alphabet = Alphabet { digits: STANDARD.digits, padding: None };
pub const URL: Alphabet = Alphabet {
    digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    padding: Some(b'='),
};
pub const URL_NO_PADDING: Alphabet = Alphabet { digits: URL.digits, padding: None };
pub const CLOUD_FRONT: Alphabet = Alphabet {
    digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-~",
    padding: Some(b'_'),
};

impl Alphabet {
    pub fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
        for group in bytes.chunks(3) {
            let byte = |i| u32::from(group.get(i).copied().unwrap_or_default());
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for i in 0..=group.len() {
                out.push(self.digits[(bits >> (18 - 6 * i)) as usize & 63]);
            }
            out.extend(self.padding.into_iter().cycle().take(3 - group.len()));
        }
        out
    }

    pub fn is_padding(&self, character: u8) -> bool {
        self.padding == Some(character)
    }

    fn digit(&self, character: u8) -> Option<u32> {
        let d = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            _ if character == self.digits[62] => 62,
            _ if character == self.digits[63] => 63,
            _ => return None,
        };
        Some(u32::from(d))
    }

    pub fn decode(&self, parts: &[&[u8]], limit: usize) -> Result<Vec<u8>, Illegal> {
        let mut out = Vec::new();
        let mut left = limit;
        let (mut bits, mut count, mut padded) = (0_u32, 0_usize, 0_usize);
        for part in parts {
            if left == 0 {
                break;
            }
            if !part.is_empty() && padded > 0 {
                return Err(Illegal);
            }
            for &character in part.iter().take(left) {
                left -= 1;
                bits <<= 6;
                count += 1;
                if Some(character) == self.padding {
                    padded += 1;
                    continue;
                }
                bits |= self.digit(character).ok_or(Illegal)?;
                if count == 4 {
                    flush(&mut out, bits, count as i64 - padded as i64)?;
                    count = 0;
                }
            }
        }
        if count > 0 {
            if count != padded && count < 4 {
                bits <<= 6 * (4 - count);
            }
            flush(&mut out, bits, count as i64 - padded as i64)?;
        }
        Ok(out)
    }
}

/// Writes the bytes of `digits` digits in the upper end of 24 bits.
fn flush(out: &mut Vec<u8>, bits: u32, digits: i64) -> Result<(), Illegal> {
    if digits <= 1 {
        return Err(Illegal);
    }
    out.extend(bits.to_be_bytes().iter().skip(1).take(digits as usize - 1));
    Ok(())
}
