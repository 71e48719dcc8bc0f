//! Base 64 in its only valid form, and PEM.

use crate::blob::base64::{Alphabet, STANDARD_NO_PADDING, URL_NO_PADDING};

pub(super) fn encode(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&URL_NO_PADDING.encode(bytes)).into_owned()
}

/// Decodes a text. Fails on padding, on other characters, and on bits beyond the last byte, so that each value has one
/// encoding.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    decode_strictly(&URL_NO_PADDING, text)
}

fn decode_strictly(alphabet: &Alphabet, text: &[u8]) -> Option<Vec<u8>> {
    let bytes = alphabet.decode(&[text], usize::MAX).ok()?;
    (alphabet.encode(&bytes) == text).then_some(bytes)
}

/// Returns the content of the first PEM block with one of the labels.
pub(crate) fn pem(text: &[u8], labels: &[&str]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    labels.iter().find_map(|label| {
        let (_, behind) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        let (body, _) = behind.split_once(&format!("-----END {label}-----"))?;
        let characters: Vec<u8> = body.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=').collect();
        decode_strictly(&STANDARD_NO_PADDING, &characters)
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
