//! The error of a value.

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    pub what: String,
    pub hint: String,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), hint: hint.into() }
    }
}
