//! Splits a line into words like the management protocol: spaces separate, double quotes
//! group, backslash escapes are C's. Parameters use it for comma-separated lists, the CLI for commands.

/// The separators of words, and whether quotes are special.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether commas separate words too.
    pub comma: bool,
    /// Whether `#` starts a comment that ends with the line.
    pub comment: bool,
    /// Whether quotes and backslashes are ordinary characters.
    pub no_escapes: bool,
}

impl Rules {
    /// The rules of a command line of the CLI.
    pub const COMMAND: Rules = Rules { comma: false, comment: true, no_escapes: false };
    /// The rules of a comma-separated list.
    pub const LIST: Rules = Rules { comma: true, comment: false, no_escapes: false };
}

/// Decodes a backslash sequence at the start of `text`. Returns the byte and the length of the sequence.
pub fn backslash(text: &[u8]) -> Option<(u8, usize)> {
    match *text.get(1)? {
        b'n' => Some((b'\n', 2)),
        b'r' => Some((b'\r', 2)),
        b't' => Some((b'\t', 2)),
        b'"' => Some((b'"', 2)),
        b'\\' => Some((b'\\', 2)),
        b'0'..=b'7' => {
            let digits = text[1..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(b));
            let (value, length) = digits.fold((0u8, 1), |(v, n), d| (v.wrapping_shl(3) | (d - b'0'), n + 1));
            Some((value, length))
        }
        b'x' => {
            let hex = std::str::from_utf8(text.get(2..4)?).ok()?;
            if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            u8::from_str_radix(hex, 16).ok().map(|b| (b, 4))
        }
        _ => None,
    }
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Splits a line into words of bytes. The error is the protocol's text.
pub fn split_bytes(line: &[u8], rules: Rules) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut words = Vec::new();
    let mut separator: Option<(u8, usize)> = None;
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        if is_space(byte) {
            at += 1;
            continue;
        }
        if let Some((sep, sep_at)) = separator {
            if rules.comma && byte == b',' && (is_space(sep) || sep == b'"') {
                separator = None;
                at += 1;
                continue;
            }
            if sep == b'"' && byte == b'"' && at - sep_at < 2 {
                return Err("Missing separator between arguments");
            }
        }
        if rules.comment && byte == b'#' {
            separator = None;
            break;
        }
        let (word, end) = parse_word(line, at, rules)?;
        separator = line.get(end).map(|sep| (*sep, end));
        words.push(word);
        at = end + 1;
    }
    if separator.is_some_and(|(sep, _)| sep == b',') {
        words.push(Vec::new());
    }
    Ok(words)
}

/// Parses the word that begins at `at`. Returns it and the position of its separator.
fn parse_word(line: &[u8], mut at: usize, rules: Rules) -> Result<(Vec<u8>, usize), &'static str> {
    let quoted = !rules.no_escapes && line[at] == b'"';
    if quoted {
        at += 1;
    }
    let mut word = Vec::new();
    while at < line.len() {
        let byte = line[at];
        if !rules.no_escapes && byte == b'\\' {
            let (decoded, length) = backslash(&line[at..]).ok_or("Invalid backslash sequence")?;
            word.push(decoded);
            at += length;
            continue;
        }
        if quoted {
            if byte == b'"' {
                return Ok((word, at));
            }
        } else {
            if is_space(byte) || (rules.comma && byte == b',') {
                return Ok((word, at));
            }
            if !rules.no_escapes && byte == b'"' {
                return Err("Invalid '\"'");
            }
        }
        word.push(byte);
        at += 1;
    }
    if quoted { Err("Missing '\"'") } else { Ok((word, at)) }
}

/// Splits like [`split_bytes`] and returns text, in which bytes that are not UTF-8 are replaced.
pub fn split(line: &str, rules: Rules) -> Result<Vec<String>, &'static str> {
    let words = split_bytes(line.as_bytes(), rules)?;
    Ok(words.into_iter().map(|w| String::from_utf8_lossy(&w).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Result<Vec<String>, &'static str> {
        split(line, Rules::COMMAND)
    }

    #[test]
    fn quotes_and_escapes_are_decoded() {
        assert_eq!(
            command(r#"vcl.inline a "x \"y\"\n\x41\101" # c"#).unwrap(),
            ["vcl.inline", "a", "x \"y\"\nAA"]
        );
        assert_eq!(command(""), Ok(vec![]));
        assert_eq!(command("\"\"").unwrap(), [""]);
    }

    #[test]
    fn errors_have_the_protocols_texts() {
        assert_eq!(command("\"a"), Err("Missing '\"'"));
        assert_eq!(command("a\"b"), Err("Invalid '\"'"));
        assert_eq!(command("\\q"), Err("Invalid backslash sequence"));
        assert_eq!(command("\"a\"\"b\""), Err("Missing separator between arguments"));
    }

    #[test]
    fn commas_separate_lists() {
        let list = |text| split(text, Rules::LIST).unwrap();
        assert_eq!(list("a,b , c"), ["a", "b", "c"]);
        assert_eq!(list("a,"), ["a", ""]);
        assert_eq!(list("\"a,b\",c"), ["a,b", "c"]);
    }
}
