//! The format of a reply: a line of thirteen bytes with status and length, the text, a newline.

/// Length of the first line in bytes.
pub const HEAD: usize = 13;

/// Returns a reply in its format for the connection.
pub fn encode(status: u16, text: &[u8]) -> Vec<u8> {
    let mut out = format!("{status:<3} {:<8}\n", text.len()).into_bytes();
    debug_assert_eq!(out.len(), HEAD);
    out.extend_from_slice(text);
    out.push(b'\n');
    out
}

/// Truncates a reply that is longer than `limit`, at a character boundary. Returns whether it was truncated.
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
    fn status_and_length_come_first() {
        assert_eq!(encode(200, b"PONG 1 1.0"), b"200 10      \nPONG 1 1.0\n");
    }

    #[test]
    fn text_is_truncated_between_characters() {
        let mut text = "abécd".as_bytes().to_vec();
        assert!(truncate(&mut text, 4));
        assert_eq!(text, b"ab");
        assert!(!truncate(&mut text, 4));
    }
}
