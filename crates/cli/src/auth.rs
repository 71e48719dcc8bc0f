//! The login: the client responds to a challenge with a digest of the challenge and the shared secret.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Length of a challenge in bytes.
pub const CHALLENGE: usize = 32;

/// Creates a challenge of lower-case letters from random bytes.
pub fn challenge(random: [u8; CHALLENGE]) -> String {
    random.iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// Returns the correct response to a challenge.
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

/// Compares a response with the correct one, in a time that does not depend on how many characters match.
pub fn matches(right: &str, given: &str) -> bool {
    right.len() == given.len()
        && right.bytes().zip(given.bytes()).fold(0, |diff, (a, b)| diff | (a ^ b.to_ascii_lowercase())) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Varnish's manual: varnish-cli(7).
    #[test]
    fn the_example_of_varnishs_manual_matches() {
        let correct = response("ixslvvxrgkjptxmcgnnsdxsvdmvfympg", b"foo\n");
        assert_eq!(correct, "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a");
        assert!(matches(&correct, &correct.to_uppercase()));
        assert!(!matches(&correct, "455c"));
    }

    #[test]
    fn challenges_are_letters() {
        assert_eq!(challenge([0; CHALLENGE]), "a".repeat(CHALLENGE));
        assert!(challenge([255; CHALLENGE]).bytes().all(|b| b.is_ascii_lowercase()));
    }
}
