//! The words of a line. A word in quotes may contain blanks, and the escapes `\"`, `\\`, `\n`, `\r`, `\t` and `\xNN`.

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub bytes: Vec<u8>,
    pub is_quoted: bool,
}

impl Word {
    /// Returns the word as text. Only escapes can make a word that is none.
    pub fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.bytes).map_err(|_| "the text is not UTF-8".to_owned())
    }
}

/// Splits a line into words.
pub fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(inside) => quoted(inside)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (Word { bytes: rest[..end].into(), is_quoted: false }, &rest[end..])
            }
        };
        if word.is_quoted && behind.starts_with(|c: char| !c.is_whitespace()) {
            return Err("a blank is missing after the quotes".to_owned());
        }
        words.push(word);
        rest = behind.trim_start();
    }
    Ok(words)
}

/// Parses a text in quotes, behind the first one.
fn quoted(inside: &str) -> Result<(Word, &str), String> {
    let mut bytes = Vec::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Word { bytes, is_quoted: true }, &inside[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => bytes.push(b'\n'),
                Some((_, 'r')) => bytes.push(b'\r'),
                Some((_, 't')) => bytes.push(b'\t'),
                Some((_, c @ ('"' | '\\'))) => bytes.push(c as u8),
                Some((at, 'x')) => {
                    let digits =
                        inside.get(at + 1..at + 3).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                    bytes.push(byte.ok_or("\\x needs two hexadecimal digits")?);
                    chars.nth(1);
                }
                _ => return Err("an unknown escape; known are \\\" \\\\ \\n \\r \\t \\xNN".to_owned()),
            },
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err("the quote at the end is missing".to_owned())
}
