//! The reason why the daemon cannot start: a text for the terminal and an exit code.

use std::fmt;

/// A reason not to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    text: String,
    code: u8,
    hint: bool,
}

impl Fault {
    /// Creates a fault of the command line. Its text refers to `-?`.
    pub fn usage(text: impl Into<String>) -> Fault {
        Fault { text: text.into(), code: 2, hint: true }
    }

    /// Creates any other fault. Its text is printed without a hint.
    pub fn plain(text: impl Into<String>) -> Fault {
        Fault { text: text.into(), code: 2, hint: false }
    }

    /// Creates a fault without text, for its exit code.
    pub fn silent(code: u8) -> Fault {
        Fault { text: String::new(), code, hint: false }
    }

    /// The reason, without the prefix and the hint that are printed with it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the lines for a user who does not know the daemon and its options.
    pub fn brief(&self) -> String {
        let text = self.text.trim_matches('\n');
        if text.is_empty() { String::new() } else { format!("lacquer: {text}\n") }
    }

    /// The exit code of the process.
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

/// The result of a startup step.
pub type Outcome<T> = Result<T, Fault>;

/// Returns the system's text for an error, without Rust's "(os error N)".
pub fn os_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
