//! The failure of a command: a reason, and a hint for the user.

use std::fmt::Display;

#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub what: String,
    pub hint: String,
}

impl Fault {
    pub fn new(what: impl Display, hint: impl Display) -> Self {
        Self { what: what.to_string(), hint: hint.to_string() }
    }
}
