//! The frame around each reply: a line of thirteen bytes with status and length, the text, a newline.

/// Length of the first line.
pub const HEAD: usize = 13;

/// A reply as it goes over the wire.
pub fn encode(status: u16, text: &[u8]) -> Vec<u8> {
    let mut out = format!("{status:<3} {:<8}\n", text.len()).into_bytes();
    debug_assert_eq!(out.len(), HEAD);
    out.extend_from_slice(text);
    out.push(b'\n');
    out
}

/// Reads the first line: status and length of the text that follows.
pub fn decode_head(head: &[u8; HEAD]) -> Option<(u16, usize)> {
    let line = std::str::from_utf8(head).ok()?.strip_suffix('\n')?;
    let (status, length) = line.split_once(' ')?;
    Some((status.parse().ok()?, length.trim_end().parse().ok()?))
}

/// Cuts a reply that is longer than `limit`, at a character boundary. True when it was cut.
pub fn truncate(text: &mut Vec<u8>, limit: usize) -> bool {
    if text.len() <= limit {
        return false;
    }
    let mut end = limit.saturating_sub(1);
    let continues = |byte: u8| byte & 0xc0 == 0x80;
    for _ in 0..3 {
        end -= usize::from(end > 0 && continues(text[end]));
    }
    text.truncate(end);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let wire = encode(200, b"PONG 1 1.0");
        assert_eq!(wire, b"200 10      \nPONG 1 1.0\n");
        let head: &[u8; HEAD] = wire[..HEAD].try_into().unwrap();
        assert_eq!(decode_head(head), Some((200, 10)));
        assert_eq!(decode_head(b"hello, world!"), None);
    }

    #[test]
    fn cut_between_characters() {
        let mut text = "abécd".as_bytes().to_vec();
        assert!(truncate(&mut text, 4));
        assert_eq!(text, b"ab");
        assert!(!truncate(&mut text, 4));
    }
}
