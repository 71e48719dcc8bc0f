//! Bodies that identify their response: each byte is derived from the number of the response and from its position, so
//! that a mixed, shifted or truncated body is detected.

use std::sync::LazyLock;

use lacquer_sources::random::Random;

/// The length of the shortest body that contains a number.
pub const SHORTEST: usize = 16;
/// The length of the longest body.
pub const LONGEST: usize = 1 << 19;
/// The number of offsets at which the letters of a body can begin.
const BEGINNINGS: usize = 1 << 20;

/// The letters from which all bodies are taken.
static LETTERS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(0);
    let letters = (0..(BEGINNINGS + LONGEST) / 8).flat_map(|_| random.bits64().to_le_bytes());
    letters.map(|byte| b'a' + byte % 26).collect()
});

/// Returns the body of a response: its number, and letters that are derived from it.
pub fn body(response: usize, length: usize) -> Vec<u8> {
    let mut bytes = format!("#{response};").into_bytes();
    let begin = Random::new(response as u64).below(BEGINNINGS as u64) as usize;
    bytes.extend(&LETTERS[begin..begin + length.saturating_sub(bytes.len())]);
    bytes.truncate(length);
    bytes
}

/// Returns the number of the response that a body belongs to.
pub fn response_of(body: &[u8]) -> Option<usize> {
    let body = body.strip_prefix(b"#")?;
    let end = body.iter().take(SHORTEST).position(|&byte| byte == b';')?;
    str::from_utf8(&body[..end]).ok()?.parse().ok()
}

/// Returns the number of the response that an entity tag, strong or weak, names.
pub fn response_of_tag(tag: &str) -> Option<usize> {
    tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_name_their_response() {
        for (response, length) in [(0, SHORTEST), (7, 100), (123_456, 70_000)] {
            let bytes = body(response, length);
            assert_eq!((bytes.len(), response_of(&bytes)), (length, Some(response)));
        }
        assert_ne!(body(1, 100)[10..], body(2, 100)[10..]);
        assert_eq!(response_of(b"Error 503"), None);
    }

    #[test]
    fn tags_name_their_response() {
        assert_eq!([r#""7""#, r#"W/"8""#, "9"].map(response_of_tag), [Some(7), Some(8), None]);
    }
}
