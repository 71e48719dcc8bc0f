//! The account at an authority to which the ACME account is bound (RFC 8555, section 7.3.4).

use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use instant_acme::ExternalAccountKey;

/// Authorities give the key in base64url, with padding or without.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The minimum length of a key, in bytes: a shorter one is probably cut off.
const SHORTEST_KEY: usize = 16;

/// The identifier and the key that an authority has given.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    id: String,
    key: Vec<u8>,
}

/// The key appears in no message.
impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ExternalAccount {
    /// Parses the text of a file: the identifier and the key in base64url, separated by blanks or line ends. The error is
    /// a text for the operator, without the key.
    pub fn parse(text: &[u8]) -> Result<ExternalAccount, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it contains other bytes than text")?;
        let mut words = text.split_ascii_whitespace();
        let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else {
            return Err("write the key identifier and the HMAC key of the authority, nothing else".to_owned());
        };
        if id.contains(char::is_control) {
            return Err("the key identifier contains control characters".to_owned());
        }
        let key = ANY_PADDING.decode(key).map_err(|_| "the second word, the HMAC key, is not base64url")?;
        if key.len() < SHORTEST_KEY {
            return Err(format!(
                "the HMAC key has {} bytes, fewer than {SHORTEST_KEY}: is it complete?",
                key.len()
            ));
        }
        Ok(ExternalAccount { id: id.to_owned(), key })
    }

    /// Returns the key that signs the request for an account.
    pub(crate) fn key(&self) -> ExternalAccountKey {
        ExternalAccountKey::new(self.id.clone(), &self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_an_identifier_and_a_key() {
        let parsed = ExternalAccount::parse(b"kid-1\nAAECAwQFBgcICQoLDA0O_-8=\n").unwrap();
        assert_eq!(parsed.id, "kid-1");
        assert_eq!(parsed.key[14..], [14, 0xff, 0xef]);
        assert_eq!(ExternalAccount::parse(b" kid-1  AAECAwQFBgcICQoLDA0O_-8"), Ok(parsed.clone()));
        assert_eq!(format!("{parsed:?}"), "ExternalAccount { id: \"kid-1\", .. }");
    }

    #[test]
    fn other_files_are_refused_without_repeating_them() {
        let wrong: [(&[u8], &str); 7] = [
            (b"", "nothing else"),
            (b"kid", "nothing else"),
            (b"kid AAECAwQFBgcICQoLDA0ODw more", "nothing else"),
            (b"kid hu+sh/", "not base64url"),
            (b"kid c2VjcmV0", "6 bytes"),
            (b"\xff\xfe kid", "other bytes"),
            (b"k\x1bid AAECAwQFBgcICQoLDA0ODw", "control characters"),
        ];
        for (text, why) in wrong {
            let error = ExternalAccount::parse(text).unwrap_err();
            assert!(
                error.contains(why) && ["hu+sh", "c2V"].iter().all(|key| !error.contains(key)),
                "{error}"
            );
        }
    }
}
