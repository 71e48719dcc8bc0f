//! The challenge that a client answers with a digest of the challenge and the shared secret.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Length of a challenge.
pub const CHALLENGE: usize = 32;

/// Makes a challenge of lower-case letters from random bytes.
pub fn challenge(random: [u8; CHALLENGE]) -> String {
    random.iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// Returns the right answer to a challenge.
pub fn response(challenge: &str, secret: &[u8]) -> String {
    let mut digest = Sha256::new();
    for part in [challenge.as_bytes(), b"\n", secret, challenge.as_bytes(), b"\n"] {
        digest.update(part);
    }
    digest.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Compares an answer with the right one, in a time that does not depend on how much of it is right.
pub fn matches(right: &str, given: &str) -> bool {
    right.len() == given.len()
        && right.bytes().zip(given.bytes()).fold(0, |diff, (a, b)| diff | (a ^ b.to_ascii_lowercase())) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Varnish's manual: varnish-cli(7).
    #[test]
    fn the_manuals_example() {
        let answer = response("ixslvvxrgkjptxmcgnnsdxsvdmvfympg", b"foo\n");
        assert_eq!(answer, "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a");
        assert!(matches(&answer, &answer.to_uppercase()));
        assert!(!matches(&answer, "455c"));
    }

    #[test]
    fn challenges_are_letters() {
        assert_eq!(challenge([0; CHALLENGE]), "a".repeat(CHALLENGE));
        assert!(challenge([255; CHALLENGE]).bytes().all(|b| b.is_ascii_lowercase()));
    }
}
