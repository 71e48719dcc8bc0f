//! Bans as bytes, for the next process.

use crate::bans::build::BanSpec;

/// Returns the words of a ban as the text of a note: each with its length.
pub(crate) fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(&(word.len() as u32).to_le_bytes());
        text.extend_from_slice(word);
    }
    text
}

/// Returns the ban of a text, or `None` if the text is damaged.
pub(crate) fn decode(mut text: &[u8]) -> Option<BanSpec> {
    let mut words = Vec::new();
    while !text.is_empty() {
        let (length, rest) = text.split_first_chunk()?;
        let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        words.push(word);
        text = rest;
    }
    if words.is_empty() { Some(BanSpec::default()) } else { BanSpec::from_words(&words).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn words_survive_and_damaged_texts_are_rejected() {
        let words = [&b"req.url"[..], b"~", b"^/a b\xe9", b"&&", b"obj.http.X", b"==", b""];
        let spec = BanSpec::from_words(&words).expect("the ban is valid");
        let text = encode(spec.words());
        assert_eq!(decode(&text), Some(spec));
        assert_eq!(decode(&[]), Some(BanSpec::default()));
        for length in 1..text.len() {
            // A text may end after a whole condition, but that is another ban; the checksum of the note excludes it.
            let _ = decode(&text[..length]);
        }
        assert_eq!(decode(&text[..text.len() - 5]), None);
        assert_eq!(decode(&[1, 0, 0, 0, 0xff]), None);
        assert_eq!(decode(&[0xff; 4]), None);
    }
}
