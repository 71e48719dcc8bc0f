//! The encodings by name. Decoders treat the parts of a STRANDS as one text and stop at a limit.

use super::text::{Case, Illegal};
use super::{base64, hex, url};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Base64,
    Base64Url,
    Base64UrlNoPad,
    /// CloudFront's alphabet.
    Base64Cf,
    Hex,
    Url,
}

impl Encoding {
    pub const ALL: [Encoding; 7] = [
        Encoding::Identity,
        Encoding::Base64,
        Encoding::Base64Url,
        Encoding::Base64UrlNoPad,
        Encoding::Base64Cf,
        Encoding::Hex,
        Encoding::Url,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "IDENTITY",
            Encoding::Base64 => "BASE64",
            Encoding::Base64Url => "BASE64URL",
            Encoding::Base64UrlNoPad => "BASE64URLNOPAD",
            Encoding::Base64Cf => "BASE64CF",
            Encoding::Hex => "HEX",
            Encoding::Url => "URL",
        }
    }

    /// Returns the encoding with this name. The front end accepts only known names.
    pub fn of(name: &str) -> Encoding {
        Self::ALL.into_iter().find(|e| e.name() == name).unwrap_or(Encoding::Identity)
    }

    fn alphabet(self) -> Option<&'static base64::Alphabet> {
        match self {
            Encoding::Base64 => Some(&base64::STANDARD),
            Encoding::Base64Url => Some(&base64::URL),
            Encoding::Base64UrlNoPad => Some(&base64::URL_NO_PADDING),
            Encoding::Base64Cf => Some(&base64::CLOUD_FRONT),
            Encoding::Identity | Encoding::Hex | Encoding::Url => None,
        }
    }

    pub fn encode(self, case: Case, bytes: &[u8]) -> Vec<u8> {
        match (self, self.alphabet()) {
            (_, Some(alphabet)) => alphabet.encode(bytes),
            (Encoding::Hex, _) => hex::encode(case, bytes),
            (Encoding::Url, _) => url::encode(case, bytes),
            _ => bytes.to_vec(),
        }
    }

    pub fn decode(self, parts: &[&[u8]], limit: usize) -> Result<Vec<u8>, Illegal> {
        match (self, self.alphabet()) {
            (_, Some(alphabet)) => alphabet.decode(parts, limit),
            (Encoding::Hex, _) => hex::decode(parts, limit),
            (Encoding::Url, _) => url::decode(parts, limit),
            _ => Ok(parts.iter().copied().flatten().take(limit).copied().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(name: &str, text: &str, limit: usize) -> Result<String, Illegal> {
        let bytes = Encoding::of(name).decode(&[text.as_bytes()], limit)?;
        Ok(bytes.iter().map(|b| *b as char).collect())
    }

    #[test]
    fn every_encoding_is_reversible() {
        let all: Vec<u8> = (0..=255).collect();
        for encoding in Encoding::ALL {
            for length in [0, 1, 2, 3, 4, 5, 256] {
                let text = encoding.encode(Case::Upper, &all[..length]);
                let (a, b) = text.split_at(text.len() / 3);
                assert_eq!(encoding.decode(&[a, b], usize::MAX).unwrap(), &all[..length], "{encoding:?}");
            }
        }
    }

    #[test]
    fn base64_accepts_padding_and_short_ends() {
        assert_eq!(decode("BASE64", "Zm9vYg==", usize::MAX).unwrap(), "foob");
        assert_eq!(decode("BASE64", "Zm9vYg", usize::MAX).unwrap(), "foob");
        assert_eq!(decode("BASE64", "Zm9vYmFy", 4).unwrap(), "foo");
        assert_eq!(decode("BASE64", "_-", usize::MAX), Err(Illegal));
        assert_eq!(decode("BASE64URLNOPAD", "Zm9vYg==", usize::MAX), Err(Illegal));
        assert_eq!(decode("BASE64", "Z", usize::MAX), Err(Illegal));
        assert_eq!(Encoding::Base64.decode(&[b"Zg==", b"Zg=="], usize::MAX), Err(Illegal));
    }

    #[test]
    fn hex_prepends_a_zero_to_an_odd_number_of_digits() {
        assert_eq!(decode("HEX", "666", usize::MAX).unwrap(), "\x06f");
        assert_eq!(decode("HEX", "6f6g", 2), Err(Illegal));
        assert_eq!(decode("HEX", "6f6F61", 4).unwrap(), "oo");
    }

    #[test]
    fn url_requires_complete_escapes() {
        assert_eq!(decode("URL", "a%20b+c", usize::MAX).unwrap(), "a b+c");
        assert_eq!(decode("URL", "a%2", usize::MAX), Err(Illegal));
        assert_eq!(decode("URL", "a%20b", 3), Err(Illegal));
        assert_eq!(decode("URL", "a%2z", usize::MAX), Err(Illegal));
        assert_eq!(Encoding::Url.encode(Case::Lower, b"~a/\xff"), b"~a%2f%ff");
    }
}
