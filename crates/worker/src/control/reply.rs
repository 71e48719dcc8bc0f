//! Replies to CLI commands.

use lacquer_cli::status;

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
}
