//! Replies to CLI commands.

use lacquer_cli::status;

/// The status and the text of a reply.
pub struct Reply {
    pub status: u16,
    pub text: String,
}

impl Reply {
    pub fn ok(text: impl Into<String>) -> Reply {
        Reply { status: status::OK, text: text.into() }
    }

    pub fn error(status: u16, text: impl Into<String>) -> Reply {
        Reply { status, text: text.into() }
    }

    pub fn unknown() -> Reply {
        Reply::error(status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n")
    }
}
