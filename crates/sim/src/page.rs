//! Bodies that tell where they come from: each byte follows from the number of the response and its place, so that a
//! body that is mixed, shifted or cut short is found out.

use std::fmt::Write as _;

use lacquer_sources::random::Random;

/// Returns the body of a response: its number, and bytes that follow from it.
pub fn body(response: usize, length: usize) -> Vec<u8> {
    let mut text = String::new();
    let _ = write!(text, "#{response};");
    let mut bytes = text.into_bytes();
    let mut random = Random::new(response as u64);
    while bytes.len() < length {
        bytes.extend(random.bits64().to_le_bytes().map(|byte| b'a' + byte % 26));
    }
    bytes.truncate(length);
    bytes
}

/// The shortest body that has a number in it.
pub const SHORTEST: usize = 16;

/// Returns the number of the response that a body comes from.
pub fn response_of(body: &[u8]) -> Option<usize> {
    let end = body.iter().take(SHORTEST).position(|&byte| byte == b';')?;
    str::from_utf8(body.get(1..end)?).ok()?.parse().ok()
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
}
