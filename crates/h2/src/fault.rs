//! Faults: the end of a stream or a connection, and the record for the log.

use crate::error_table::{Error, Reason};
use std::borrow::Cow;

/// The tag of a record, and the transaction that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `Debug` of the session.
    Debug,
    /// `SessError` of the session.
    SessError,
    /// `BogoHeader` of the session.
    SessBogoHeader,
    /// `BogoHeader` of the request.
    BogoHeader,
    /// `LostHeader` of the request.
    LostHeader,
}

/// A record for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub tag: Tag,
    pub text: Cow<'static, str>,
}

impl Note {
    pub fn new(tag: Tag, text: impl Into<Cow<'static, str>>) -> Note {
        Note { tag, text: text.into() }
    }
}

/// The end of a connection or a stream, with its reason and its log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub error: Error,
    pub note: Option<Note>,
}

impl Fault {
    pub(crate) fn connection(reason: Reason, text: impl Into<Cow<'static, str>>) -> Fault {
        Error::Connection(reason).noted(Tag::SessError, text)
    }
}

impl Error {
    /// Returns a fault with this record.
    pub(crate) fn noted(self, tag: Tag, text: impl Into<Cow<'static, str>>) -> Fault {
        Fault { error: self, note: Some(Note::new(tag, text)) }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault { error, note: None }
    }
}
