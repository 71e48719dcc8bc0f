//! Replies to CLI commands.

use lacquer_cli::link::MAX_MESSAGE;
use lacquer_cli::status;

/// The maximum length of a text in bytes: a message has room for it and its other fields.
pub const LONGEST_TEXT: usize = MAX_MESSAGE - 64;

/// The status and the text of a reply. The text need not be UTF-8.
pub struct Reply {
    pub status: u16,
    pub text: Vec<u8>,
}

impl Reply {
    pub fn ok(text: impl Into<Vec<u8>>) -> Reply {
        Reply { status: status::OK, text: text.into() }
    }

    pub fn error(status: u16, text: impl Into<Vec<u8>>) -> Reply {
        Reply { status, text: text.into() }
    }

    pub fn unknown() -> Reply {
        Reply::error(status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n")
    }

    /// Truncates a text with more bytes than this.
    pub fn within(mut self, most: usize) -> Reply {
        if self.text.len() > most {
            self.text.truncate(most);
            if self.status == status::OK {
                self.status = status::TRUNCATED;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use lacquer_cli::link::{self, FromWorker};

    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_truncated() {
        for (reply, most, expected) in [
            (Reply::ok("12345"), 5, (status::OK, "12345")),
            (Reply::ok("12345"), 4, (status::TRUNCATED, "1234")),
            (Reply::error(status::CANT, "12345"), 3, (status::CANT, "123")),
        ] {
            let Reply { status, text } = reply.within(most);
            assert_eq!((status, text.as_slice()), (expected.0, expected.1.as_bytes()));
        }
    }

    #[test]
    fn the_other_fields_of_a_reply_fit_beside_the_text() {
        let mut wire = Vec::new();
        let text = vec![b'x'; 1 << 16];
        link::send(&mut wire, &FromWorker::Reply { id: u64::MAX, status: u16::MAX, text: text.clone() })
            .unwrap();
        // A length has ten bytes at most.
        assert!(wire.len() - text.len() + 10 <= MAX_MESSAGE - LONGEST_TEXT, "{}", wire.len());
    }
}
