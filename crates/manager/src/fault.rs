//! The reason for which the daemon cannot start: a text for the terminal and an exit code.

use std::fmt;

/// A reason not to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    text: String,
    code: u8,
    hint: bool,
}

impl Fault {
    /// The command line asks for something that cannot be.
    pub fn usage(text: impl Into<String>) -> Fault {
        Fault { text: text.into(), code: 2, hint: true }
    }

    /// Something else is in the way; the text is complete.
    pub fn plain(text: impl Into<String>) -> Fault {
        Fault { text: text.into(), code: 2, hint: false }
    }

    /// Makes a fault without text, of which only the exit code matters.
    pub fn silent(code: u8) -> Fault {
        Fault { text: String::new(), code, hint: false }
    }

    /// The reason, without what is printed around it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Exit code of the process.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            return Ok(());
        }
        let hint = if self.hint { "(-? gives usage)\n" } else { "" };
        let blank = if self.text.starts_with('\n') { "" } else { " " };
        write!(f, "Error:{blank}{}\n{hint}", self.text.trim_end_matches('\n'))
    }
}

impl std::error::Error for Fault {}

/// A failure on the way to a running daemon.
pub type Outcome<T> = Result<T, Fault>;

/// The system's words for an error, without Rust's "(os error N)".
pub fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
