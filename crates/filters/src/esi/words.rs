//! The keywords of the ESI parser, and the character classes that it distinguishes.

/// Markers that can follow `<`. They are matched in this step.
pub const OPENINGS: [&[u8]; 6] = [b"!--esi", b"!---->", b"!--", b"/esi:", b"esi:", b"![CDATA["];
pub const ELEMENTS: [&[u8]; 3] = [b"include", b"remove", b"comment"];
pub const INCLUDE_ATTRIBUTES: [&[u8]; 2] = [b"src=", b"onerror="];
/// The byte-step mark that the feature `esi_remove_bom` removes.
pub const BOM: [&[u8]; 1] = [b"\xeb\xbb\xbf"];

pub enum Found {
    Entry(usize),
    Nothing,
    /// The input ends within a word.
    Undecided,
}

/// Returns which of the words the input begins with.
pub fn find(words: &[&[u8]], input: &[u8]) -> Found {
    for (i, word) in words.iter().enumerate() {
        if input.starts_with(word) {
            return Found::Entry(i);
        }
        if word.starts_with(input) {
            return Found::Undecided;
        }
    }
    Found::Nothing
}

pub fn is_blank(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\r' | b'\n')
}

pub fn is_space(c: u8) -> bool {
    is_blank(c) || c == 0x0b
}

pub fn is_name_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b':' | b'_') || (c >= 0xc0 && c != 0xd7 && c != 0xf7)
}

pub fn is_name(c: u8) -> bool {
    is_name_start(c) || c.is_ascii_digit() || matches!(c, b'-' | b'.' | 0xb7)
}

/// Resolves the character entities of XML.
pub fn resolve(text: &[u8]) -> Vec<u8> {
    const ENTITIES: [(&[u8], u8); 5] =
        [(b"&apos;", b'\''), (b"&quot;", b'"'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&amp;", b'&')];
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        match ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity)) {
            Some((entity, character)) => {
                out.push(*character);
                rest = &rest[entity.len()..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}
