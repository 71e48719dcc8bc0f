//! Base 64 for URLs without padding, in its only valid form, and PEM.

const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            out.push(char::from(URL[(word >> (18 - 6 * i) & 0x3f) as usize]));
        }
    }
    out
}

fn value(character: u8) -> Option<u32> {
    Some(u32::from(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    }))
}

/// Decodes a text. Fails on padding, on other characters, and on bits beyond the last byte, so that each value has one
/// encoding.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut word = 0_u32;
        for character in chunk {
            word = word << 6 | value(*character)?;
        }
        word <<= 6 * (4 - chunk.len());
        let bytes = chunk.len().checked_sub(1).filter(|bytes| *bytes > 0)?;
        if word & ((1 << (8 * (3 - bytes))) - 1) != 0 {
            return None;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..=bytes]);
    }
    Some(out)
}

/// Returns the content of the first PEM block with one of the labels.
pub(super) fn pem(text: &[u8], labels: &[&str]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    labels.iter().find_map(|label| {
        let (_, behind) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        let (body, _) = behind.split_once(&format!("-----END {label}-----"))?;
        let characters = body.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=').map(|b| match b {
            b'+' => b'-',
            b'/' => b'_',
            b'-' | b'_' => b'!',
            b => b,
        });
        decode(&characters.collect::<Vec<u8>>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_encoding() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"\xff\xfe\xfd", "__79")]
        {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
        }
        for invalid in ["Zg==", "Zh", "Zm9", "Z", "Zm+v", "Zm9v\n", "Zm9vZ", "\u{e9}a"] {
            assert_eq!(decode(invalid.as_bytes()), None, "{invalid}");
        }
        let block = b"x\n-----BEGIN PUBLIC KEY-----\nZm9v\r\nZg==\n-----END PUBLIC KEY-----\n";
        assert_eq!(pem(block, &["PUBLIC KEY"]).as_deref(), Some(&b"foof"[..]));
        assert_eq!(pem(block, &["PRIVATE KEY"]), None);
        assert_eq!(pem(&block[..40], &["PUBLIC KEY"]), None);
    }
}
