//! Replies to the user of the management port.

use lacquer_cli::status;

/// A status and a text for the user.
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    pub fn ok(text: impl Into<String>) -> Answer {
        Answer { status: status::OK, text: text.into() }
    }

    pub fn refuse(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, text: text.into() }
    }

    pub fn unknown() -> Answer {
        Answer::refuse(status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n")
    }
}
